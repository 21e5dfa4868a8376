"""``AmorLIPLoss``: in place of ``open_clip.ClipLoss``, in the loop that is there already.

One call is one step of arXiv 2505.18983, algorithm 1: the networks may be fitted (stage I), the denominators are
chosen, and the towers' loss is computed with them (stage II).
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Literal

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import one_of, whole
from thrifty.training.amorlip.admission import check_captions, check_pair, check_width, remarks
from thrifty.training.amorlip.amortizer import Pair, PartitionAmortizer
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.contrastive import Contrast, contrast
from thrifty.training.amorlip.denominators import Denominators
from thrifty.training.amorlip.diagnostics import diagnose
from thrifty.training.amorlip.partition import auto_pos_coef
from thrifty.training.amorlip.precision import as_number, wide
from thrifty.training.amorlip.ring import Group, check_ranks, size_of
from thrifty.training.amorlip.schedules import rho_at
from thrifty.training.amorlip.temperature import with_temperature

_log = logging.getLogger(__name__)


class AmorLIPLoss(nn.Module):
    """Contrastive loss whose softmax denominators are carried across batches by two small networks.

    Args:
        embed_dim: d, the width of the embeddings.
        config: The settings.
        num_samples: n of the data set, for ``pos_coef="auto"``.
        steps_per_epoch: Optimiser steps of an epoch, if nobody calls :meth:`set_epoch`.
        gather: With several ranks: ``"global"``, every rank's samples are negatives (exactly one big batch), or
            ``"local"``, this rank's stand for all and the towers' loss needs no communication.
        rank: Of this process, as ``ClipLoss`` takes it.
        world_size: Processes whose batches are one.
        group: They, if not all processes.
        accum_freq: Calls that make one optimiser step, each with all the step's features (open_clip's
            ``--accum-freq``).
        check_every: Optimiser steps between two checks that all ranks have the same networks; 0: never.
        **overrides: Single settings of :class:`AmorLIPConfig`: ``AmorLIPLoss(512, objective="gkl")``.

    Raises:
        ValueError: A setting is out of range.

    Example:
        >>> import torch
        >>> loss = AmorLIPLoss(16, num_samples=1000, steps_per_epoch=10)
        >>> u, v = (torch.nn.functional.normalize(torch.randn(8, 16), dim=1).requires_grad_() for _ in range(2))
        >>> list(loss(u, v, torch.tensor(14.3), output_dict=True))
        ['contrastive_loss']

    Source:
        arXiv 2505.18983, algorithm 1.
    """

    def __init__(
        self,
        embed_dim: int,
        config: AmorLIPConfig | None = None,
        *,
        num_samples: int | None = None,
        steps_per_epoch: int | None = None,
        gather: Literal["global", "local"] = "global",
        rank: int = 0,
        world_size: int = 1,
        group: Group = None,
        accum_freq: int = 1,
        check_every: int = 0,
        **overrides: Any,
    ) -> None:
        super().__init__()
        one_of("gather", gather, ("global", "local"))
        self.gather, self.rank, self.world_size = gather, rank, whole("world_size", world_size)
        if not 0 <= whole("rank", rank, least=0) < world_size:
            raise ValueError(f"rank: expected one of {world_size} ranks, got {rank}")
        if world_size > 1 and group is None:
            if not dist.is_initialized():
                raise ValueError(f"world_size: expected torch.distributed to be initialised for {world_size} ranks")
            group = dist.group.WORLD
        self.group = group if world_size > 1 else None
        if size_of(self.group) != world_size:
            raise ValueError(f"world_size: expected the {size_of(self.group)} ranks of the group, got {world_size}")
        self.accum_freq = whole("accum_freq", accum_freq)
        self.check_every = whole("check_every", check_every, least=0)
        self.steps_per_epoch = None if steps_per_epoch is None else whole("steps_per_epoch", steps_per_epoch)
        self.amortizer = PartitionAmortizer(embed_dim, config, num_samples=num_samples, group=self.group, **overrides)
        self._told_epoch = False
        self._warned: set[str] = set()
        self._denominators = Denominators(self.amortizer, gather, self.group)
        # Between two calls that learn, and of that in stage I; of this call, in stage I.
        self._seconds = self._seconds_fitting = self._fitting = 0.0
        self._last_call: float | None = None
        self._found: tuple[Contrast, Pair] | None = None
        self._seen: tuple[Tensor, Tensor, Tensor] = (torch.empty(0),) * 3
        if self.config.epochs == 1 and self.config.use_prev and self.config.encoder_lambda == "combined":
            self._warn(
                "epochs: in a run of one epoch there is no earlier network to mix in, and the loss is the batch's own "
                "softmax; call parts of it epochs (set_epoch), or divide by the networks (encoder_lambda)"
            )

    @property
    def config(self) -> AmorLIPConfig:
        """The settings."""
        return self.amortizer.config

    def set_epoch(self, epoch: int, steps_per_epoch: int | None = None) -> None:
        """Enter an epoch, counted from 0: call it where the sampler is told, before the epoch's first step.

        Args:
            epoch: Its number; the one that the loss is in already changes nothing (after a resume).
            steps_per_epoch: Optimiser steps of it, to be warned of an average that forgets too slowly.

        Raises:
            ValueError: One of them is out of range.
        """
        self._told_epoch = True
        before = self.amortizer.epoch
        if before is not None and whole("epoch", epoch, least=0, what="an epoch") < before:
            self._warn(f"epoch: it went back from {before} to {epoch}, and beta with it")
        if steps_per_epoch is not None:
            self.steps_per_epoch = whole("steps_per_epoch", steps_per_epoch)
        self._check_average()
        self.amortizer.start_epoch(epoch)

    @property
    def log_lambda(self) -> Pair | None:
        """What the last call divided by: log λ of its images and texts, on the scale of the sum."""
        return None if self._found is None else self._found[1]

    def amortization_parameters(self) -> list[nn.Parameter]:
        """Return the networks' parameters, which the loss trains itself: keep them out of the towers' optimizer."""
        return list(self.amortizer.online.parameters())

    def log_partition(
        self,
        features: Float[Tensor, "batch dim"],
        modality: Literal["image", "text"],
        logit_scale: Float[Tensor, ""] | float = 1.0,
        *,
        to_sum_scale: int | None = None,
    ) -> Float[Tensor, " batch"]:
        """Return what the averaged network says of log Z.

        Args:
            features: Of unit length.
            modality: Whose they are.
            logit_scale: s; looked at with ``scale_inputs`` or prototypes.
            to_sum_scale: Samples of the batch whose sum is meant (log N is added); ``None``: the mean.

        Raises:
            ValueError: There is no such modality, or the features are of another width.
        """
        one_of("modality", modality, ("image", "text"))
        check_width("features", features, self.amortizer.embed_dim)
        found = self.amortizer.predict(features, features, logit_scale)[modality == "text"]
        if to_sum_scale is None:
            return found
        return found + math.log(self.amortizer.coefficients(to_sum_scale).count(to_sum_scale))

    def forward(
        self,
        image_features: Float[Tensor, "batch dim"],
        text_features: Float[Tensor, "batch dim"],
        logit_scale: Float[Tensor, ""] | float,
        logit_bias: Float[Tensor, ""] | None = None,
        output_dict: bool = False,
        *,
        caption_ids: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, ""] | dict[str, Tensor]:
        """Return the towers' loss; in training mode and with gradients on, also fit the networks when that is due.

        Args:
            image_features: u, of unit length.
            text_features: v, likewise.
            logit_scale: s = exp(t), as open_clip gives it: a tensor, or a number.
            logit_bias: b, of models that have one.
            output_dict: Return ``{"contrastive_loss": loss}``.
            caption_ids: Equal numbers are equal captions, which are then no negatives of each other
                (:func:`~thrifty.training.amorlip.caption_ids` makes them of tokens).

        Raises:
            ValueError: Features that do not fit together, hold NaN, or are alone; a scale that is not positive.
        """
        if self.config.normalize:
            image_features, text_features = (functional.normalize(x, dim=-1) for x in (image_features, text_features))
        self._check(image_features, text_features, logit_scale, caption_ids)
        if not isinstance(logit_scale, Tensor):
            logit_scale = as_number(logit_scale, wide(image_features[:0]))
        bias = 0.0 if logit_bias is None else logit_bias
        log_lambda, kept = self._divide_by(image_features, text_features, logit_scale, bias, caption_ids)
        local = self.gather == "local"
        image, text = log_lambda
        found = contrast(
            image_features, text_features, logit_scale, image, text,
            self._denominators.coefficients(len(image_features)), logit_bias=bias, caption_ids=caption_ids,
            chunk_size=self.config.chunk_size,
            max_log_weight=None if self.config.encoder_lambda == "combined" else self.config.max_log_weight,
            group=None if local else self.group, kept=kept,
        )  # fmt: skip
        loss = found.loss
        if self.config.rho is not None:
            rho = rho_at(self.config.rho, self.amortizer.epoch or 0, self.config.epochs)
            loss = with_temperature(
                loss, logit_scale, rho, self._pressure(image_features, text_features, logit_scale, log_lambda)
            )
        self._seen = (image_features.detach(), text_features.detach(), logit_scale.detach())
        self._leave(found, log_lambda)
        return {"contrastive_loss": loss} if output_dict else loss

    @torch.compiler.disable
    def _divide_by(
        self, u: Tensor, v: Tensor, scale: Tensor, bias: Tensor | float, ids: Tensor | None
    ) -> tuple[Pair, Tensor | None]:
        """Stage I, if it is due, and log λ of the towers."""
        fit = self._learns and self.amortizer.calls == 0 and self._enter()
        log_lambda, kept, self._fitting = self._denominators.of(u, v, scale, bias, ids, fit=fit)
        return log_lambda, kept

    @property
    def _learns(self) -> bool:
        """Validation in training mode, but without gradients, is still validation."""
        return self.training and torch.is_grad_enabled()

    @torch.no_grad()
    def _pressure(self, u: Tensor, v: Tensor, logit_scale: Tensor, log_lambda: Pair) -> Tensor | float:
        if not self.config.adaptive_tau:
            return 0.0
        likelihood = logit_scale.reshape(()) * (wide(u) * wide(v)).sum(1).mean()
        return log_lambda[0].mean() + log_lambda[1].mean() - 2 * likelihood - 2 * math.log(len(u) * self.world_size)

    def _enter(self) -> bool:
        """Begin an optimiser step, and tell whether the networks are fitted in it."""
        if not self._told_epoch:
            if self.steps_per_epoch is not None:
                self._check_average()
                self.amortizer.start_epoch(self.amortizer.steps // self.steps_per_epoch)
            elif self.amortizer.epoch is None:
                self._warn(
                    "set_epoch: it was not called and steps_per_epoch is not known, so no earlier network is "
                    "mixed in, and none begins anew"
                )
        return self.amortizer.steps % self.config.amor_every == 0

    @torch.compiler.disable
    def _leave(self, found: Contrast, log_lambda: Pair) -> None:
        """Count the call; the last one of a step ends it."""
        self._found = (Contrast(found.loss.detach(), *found[1:]), log_lambda)
        if not self._learns:
            self._last_call = None  # the time until the next call is not a step's
            return
        now = time.perf_counter()
        if self._last_call is not None:
            self._seconds, self._seconds_fitting = (
                self._seconds + now - self._last_call, self._seconds_fitting + self._fitting
            )  # fmt: skip
        self._last_call = now
        self.amortizer.calls += 1
        if self.amortizer.calls >= self.accum_freq:
            self.finish_step()

    def finish_step(self) -> None:
        """End an optimiser step, for one that has fewer calls than ``accum_freq``: the last one of an epoch."""
        self.amortizer.calls = 0
        if self.amortizer.steps % self.config.target_every == 0 and self.amortizer.fitted:
            self.amortizer.average()
        self.amortizer.steps += 1
        if self.check_every and self.group is not None and self.amortizer.steps % self.check_every == 0:
            check_ranks(self.amortizer.online, self.group)

    def diagnostics(self, text_bank: Float[Tensor, "m dim"] | None = None) -> dict[str, float]:
        """Return what the last call found, as numbers (reading them waits for the device).

        Args:
            text_bank: Features of the data set's texts, or of many of them: also return how far log λ̄ is from log Z.

        Returns:
            ``beta``; quantiles 0.5, 0.9 and 1 of Σ_j w_ij, ``weight_median``, ``weight_p90``, ``weight_max``;
            ``limited``, weights above the limit; ``log_lambda``, the mean; ``lambda_drift``, the root mean
            square of log λ between online and averaged networks; ``stage_one_share`` of the time between calls. With
            a bank, mean squared errors of log Z of the last images: ``error_lambda``, of what they were divided by,
            ``error_online`` and ``error_target``, of the networks.
        """
        if self._found is None:
            return {}
        batch = len(self._seen[0])
        count = self._denominators.coefficients(batch).count(batch * (1 if self.gather == "local" else self.world_size))
        share = self._seconds_fitting / self._seconds if self._seconds else math.nan
        return diagnose(self.amortizer, self._seen, *self._found, count, text_bank) | {"stage_one_share": share}

    def _check(self, image_features: Tensor, text_features: Tensor, scale: Tensor | float, ids: Tensor | None) -> None:
        ranks, steps = self.world_size, self.amortizer.steps
        reach = ranks if self.gather == "global" else 1
        check_pair(image_features, text_features, self.amortizer.embed_dim, reach)
        check_captions(ids, len(image_features))
        if self.training:
            auto_pos_coef(len(image_features) * ranks, self.amortizer.num_samples)
        # On an accelerator looking at numbers makes the host wait: only in steps that fit the networks.
        looked_at = image_features.device.type == "cpu" or steps % self.config.amor_every == 0
        if looked_at and not torch.compiler.is_compiling():
            for remark in remarks(image_features, text_features, scale, first=steps == 0):
                self._warn(remark)

    def _check_average(self) -> None:
        """Warn of an average that still remembers the networks' random start when the epoch ends."""
        if self.steps_per_epoch is None or not self.config.use_prev:
            return
        decay, updates = self.config.ema_decay, self.steps_per_epoch // self.config.target_every
        if decay**updates > 0.5:
            better = f"ema_decay={0.1 ** (1 / updates):.2g} forgets it" if updates else "lower target_every"
            self._warn(
                f"ema_decay: at {decay} the averaged networks are still {decay**updates:.0%} their random start after "
                f"an epoch of {self.steps_per_epoch} steps; {better}"
            )

    def _warn(self, message: str) -> None:
        """Say something once."""
        name = message.partition(":")[0]
        if name not in self._warned:
            self._warned.add(name)
            _log.warning(message)
