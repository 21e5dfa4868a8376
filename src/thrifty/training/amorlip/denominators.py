"""What the towers divide by: the batch's sums, the networks' predictions, or both; and when the networks learn.

Steps 2 to 5 of arXiv 2505.18983, algorithm 1. With several ranks the networks are always fitted to everybody's batch;
the towers' own sums are everybody's (``"global"``), or this rank's, each negative standing for W (``"local"``).
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from thrifty.training.amorlip.amortizer import Pair, PartitionAmortizer
from thrifty.training.amorlip.partition import BatchPartition, Coefficients, walk
from thrifty.training.amorlip.precision import as_number, autocast_off, wide
from thrifty.training.amorlip.ring import Group, size_of


class Divided(NamedTuple):
    """What a batch is divided by.

    Args:
        log_lambda: log λ of images and texts, on the scale of the sum.
        kept: The batch's weighed logits, A + log c, if they were held at once.
        seconds: In stage I, as the host sees it.
    """

    log_lambda: Pair
    kept: Float[Tensor, "batch batch"] | None
    seconds: float


class Denominators:
    """log λ of every sample of a batch.

    Args:
        amortizer: The networks; its settings say which denominators.
        gather: ``"global"`` or ``"local"``.
        group: The ranks.
    """

    def __init__(self, amortizer: PartitionAmortizer, gather: str, group: Group) -> None:
        self.amortizer, self.config, self.group = amortizer, amortizer.config, group
        self.local, self.ranks = gather == "local", size_of(group)

    def coefficients(self, batch: int, *, networks: bool = False) -> Coefficients:
        """Return κ and ω of the towers' loss, or of sums as the networks know them, which may lack the pair."""
        lacking = networks and self.config.negatives_only
        positive = 0.0 if lacking else self.amortizer.pos_coef(batch * self.ranks)
        return Coefficients(positive, float(self.ranks) if self.local else 1.0)

    @torch.no_grad()
    def of(
        self, image_features: Tensor, text_features: Tensor, logit_scale: Tensor, logit_bias: Tensor | float,
        caption_ids: Tensor | None, *, fit: bool,
    ) -> Divided:  # fmt: skip
        """Return what the towers divide by; fit the networks before, if asked."""
        with autocast_off(image_features):
            u, v = wide(image_features.detach()), wide(text_features.detach())
            scale, bias = as_number(logit_scale, u), as_number(logit_bias, u)
            own = self.coefficients(len(u), networks=True)
            batch = targets = kept = None
            if self.config.encoder_lambda == "combined":
                reach = None if self.local else self.group
                keep = not self.config.negatives_only  # the towers' own coefficients are others then
                batch, kept = walk(u, v, scale, bias, own, caption_ids, self.config.chunk_size, reach, keep=keep)
                targets = self.amortizer.mixed(u, v, scale, batch.mean_scale())
            began = time.perf_counter()
            if fit:
                self._fit(u, v, scale, bias, caption_ids, None if self.local else batch, targets)
            seconds = time.perf_counter() - began
            if batch is not None and targets is not None:
                means, log_count = targets, batch.log_count
            else:
                means = self.amortizer.predict(u, v, scale, which=self.config.encoder_lambda)
                log_count = self._log_count(len(u), caption_ids, own, u)
            sums = [mean + log_count for mean in means]
            if self.config.negatives_only:
                pair = self._log_pair(u, v, scale, bias)
                sums = [torch.logaddexp(total, pair) for total in sums]
            # A row without any negative has nothing to be divided by: its weights are 0.
            image, text = (torch.where(total == -math.inf, 0.0, total) for total in sums)
        return Divided((image, text), kept, seconds)

    def _fit(
        self, u: Tensor, v: Tensor, scale: Tensor, bias: Tensor, ids: Tensor | None,
        known: BatchPartition | None, targets: Pair | None,
    ) -> None:  # fmt: skip
        """Fit the networks to the partition functions of everybody's batch, which may be known already."""
        if known is None or targets is None:
            own = self.amortizer.coefficients(len(u) * self.ranks)
            known = walk(u, v, scale, bias, own, ids, self.config.chunk_size, self.group)[0]
            targets = self.amortizer.mixed(u, v, scale, known.mean_scale())
        positive = self._log_pair(u, v, scale, bias) - known.log_count if self.config.negatives_only else None
        self.amortizer.fit(u, v, scale, known, targets, positive)

    def _log_count(self, batch: int, ids: Tensor | None, own: Coefficients, like: Tensor) -> Tensor:
        """Log N where no sum was computed."""
        total = batch if self.local else batch * self.ranks
        equal = like.new_ones(batch) if ids is None else (ids.unsqueeze(1) == self._all_ids(ids)).sum(1).to(like)
        return (own.negative * (total - equal) + own.positive).log()

    def _all_ids(self, ids: Tensor) -> Tensor:
        if self.ranks == 1 or self.local:
            return ids
        gathered = [torch.empty_like(ids) for _ in range(self.ranks)]
        dist.all_gather(gathered, ids.contiguous(), group=self.group)
        return torch.cat(gathered)

    def _log_pair(self, u: Tensor, v: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """Log κ e^{A_ii}."""
        kappa = self.amortizer.pos_coef(len(u) * self.ranks)
        return scale * (u * v).sum(1) + bias + (math.log(kappa) if kappa else -math.inf)
