"""CREST: mini-batches that each stand for a random part of the data (Yang et al., arXiv 2306.01244)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.data.coreset.gradients import GradientSource, LastLayerGradients
from thrifty.data.coreset.scoring import losses_of
from thrifty.data.coreset.selectors.craig import Craig
from thrifty.data.coreset.subsets import Subset, check_k, fill


@dataclass
class Crest:
    """Choose from several random parts of the data the medoids of each, by gradients of the logits.

    Its trigger is :class:`~thrifty.data.coreset.QuadraticTrigger`.

    Args:
        batch_size: Medoids of a part.
        part: Share of the data in a part; at least ``batch_size`` samples.
        drop_below: Samples whose loss stayed below it are left out; 0: none are.
        looks: At that many selections running.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset import LastLayerGradients
        >>> errors = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> subset = Crest(batch_size=10).select(LastLayerGradients(errors, labels=torch.arange(200) % 3), 20)
        >>> len(subset), float(subset.weights.sum())
        (20, 40.0)

    Source:
        arXiv 2306.01244, algorithm 1 (``drop_below``: its section 4.3).
    """

    batch_size: int = 32
    part: float = 0.01
    drop_below: float = 0.0
    looks: int = 5
    _low: Tensor | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        whole("batch_size", self.batch_size)
        whole("looks", self.looks)
        number("part", self.part, "a share in (0, 1)", least=1e-12, below=1.0)
        number("drop_below", self.drop_below, "a number of at least 0", least=0.0)

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return k samples; a weight is how many of its part a sample stands for, over the parts it came up in.

        Args:
            gradients: Of all n samples, of a last layer; of them the logits' count.
            k: How many to choose.
            generator: Of the parts.
            validation: Not looked at.

        Raises:
            ValueError: ``k`` is out of range.
            TypeError: The gradients are not those of a last layer.
        """
        check_k(k, len(gradients))
        if not isinstance(gradients, LastLayerGradients):
            raise TypeError(f"gradients: expected those of a last layer, got {type(gradients).__name__}")
        free = self._worth_a_look(gradients)
        errors = LastLayerGradients(gradients.errors, labels=gradients.labels)
        weights = torch.zeros(len(gradients))
        order: list[int] = []
        size = min(self.batch_size, k)
        while len(order) < k and len(free) > 0:
            wanted = min(len(free), max(math.ceil(self.part * len(gradients)), 2 * size))
            drawn = free[torch.randperm(len(free), generator=generator)[:wanted]]
            part = errors.take(drawn.to(errors.errors.device))
            found = Craig(per_class=False).select(part, min(size, k - len(order), len(drawn)))
            order += drawn[found.indices].tolist()
            weights[drawn[found.indices]] = found.weights
            free = free[~torch.isin(free, torch.tensor(order))]
        chosen = torch.tensor(order, dtype=torch.int64)
        pool = torch.arange(len(gradients))
        return Subset(*fill(chosen, weights[chosen], k, pool, generator), filled=k - len(chosen))

    def _worth_a_look(self, gradients: LastLayerGradients) -> Tensor:
        """Return the samples that are not learnt yet."""
        everybody = torch.arange(len(gradients))
        if not self.drop_below:
            return everybody
        low = losses_of(gradients).cpu() < self.drop_below
        before = torch.zeros(len(low), dtype=torch.int64) if self._low is None else self._low
        self._low = torch.where(low, before + 1, 0)
        return everybody[self._low < self.looks]

    def state_dict(self) -> dict[str, Tensor | None]:
        """Return at how many selections running each sample's loss was low."""
        return {"low": self._low}

    def load_state_dict(self, state: dict[str, Tensor | None]) -> None:
        """Go on from a state."""
        self._low = state["low"]
