"""What selectors give: positions and weights; and the protocol that all of them follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty._common.checks import whole
from thrifty.data.coreset.gradients import GradientSource
from thrifty.data.coreset.quotas import class_quotas


@dataclass(frozen=True)
class Subset:
    """A part of a data set, with weights.

    Args:
        indices: ``(k,)`` positions, none twice.
        weights: ``(k,)``, at least 0.
        residual: ‖Σ γᵢ gᵢ − Σ gⱼ‖ over all data, where the selector knows it; else NaN.
        filled: How many were added at random, because nothing more would help.

    Raises:
        ValueError: Shapes differ, a position comes twice, or a weight is negative or not finite.

    Example:
        >>> import torch
        >>> len(Subset(torch.tensor([4, 2]), torch.ones(2)))
        2
    """

    indices: Int[Tensor, " k"]
    weights: Float[Tensor, " k"]
    residual: float = math.nan
    filled: int = 0

    def __post_init__(self) -> None:
        if self.indices.ndim != 1 or self.indices.shape != self.weights.shape or len(self.indices) == 0:
            came = f"{tuple(self.indices.shape)} and {tuple(self.weights.shape)}"
            raise ValueError(f"subset: expected as many positions as weights, at least one, got shapes {came}")
        if len(set(self.indices.tolist())) != len(self.indices):
            raise ValueError("subset: expected different positions, got one twice")
        if not bool((self.weights.isfinite() & (self.weights >= 0)).all()):
            raise ValueError("subset: expected finite weights of at least 0, got others")

    def __len__(self) -> int:
        return len(self.indices)

    def overlap(self, other: Subset) -> float:
        """Return the share of these positions that the other has too."""
        return float(torch.isin(self.indices.cpu(), other.indices.cpu()).float().mean())


class Selector(Protocol):
    """Anything that chooses k of n samples by their gradients; any goes with any trigger."""

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return k samples.

        Args:
            gradients: Of all n samples.
            k: How many to choose.
            generator: Of whatever is drawn, on the CPU.
            validation: Gradients of held-out samples, for selectors that look at them.
        """


def fill(
    indices: Int[Tensor, " m"],
    weights: Float[Tensor, " m"],
    k: int,
    pool: Int[Tensor, " n"],
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Add samples of a pool at random, with weight 1, until there are k; all of it on the CPU.

    Args:
        indices: What was chosen, of the pool.
        weights: Theirs.
        k: How many there shall be.
        pool: What may be added.
        generator: On the CPU.
    """
    indices, weights = indices.cpu(), weights.float().cpu()
    missing = k - len(indices)
    if missing <= 0:
        return indices, weights
    others = pool[~torch.isin(pool, indices)]
    added = others[torch.randperm(len(others), generator=generator)[:missing]]
    return torch.cat([indices, added]), torch.cat([weights, torch.ones(len(added))])


def check_k(k: int, n: int) -> None:
    """Refuse a number of samples that there are not.

    Raises:
        ValueError: It is none of 1 to n.
    """
    if whole("k", k) > n:
        raise ValueError(f"k: expected at most the {n} samples there are, got {k}")


def by_class(labels: Int[Tensor, " n"] | None, k: int) -> list[tuple[int, Int[Tensor, " m"], int]]:
    """Return each class, the positions of its samples (on the CPU), and how many of k it gets.

    Raises:
        ValueError: There are no classes, or more than k.
    """
    if labels is None:
        raise ValueError("gradients: expected classes with them, for a selection by class, got none")
    labels = labels.cpu()
    return [(label, (labels == label).nonzero()[:, 0], quota) for label, quota in class_quotas(labels, k).items()]
