"""A random subset: the baseline that often embarrasses the others."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from thrifty.data.coreset.gradients import GradientSource
from thrifty.data.coreset.subsets import Subset, by_class, check_k


@dataclass(frozen=True)
class RandomSubset:
    """Draw samples without replacement, of weight 1.

    Args:
        stratified: Every class in its share.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset import DenseGradients
        >>> len(RandomSubset().select(DenseGradients(torch.ones(10, 2)), 3))
        3
    """

    stratified: bool = False

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
            gradients: Only their number counts, and their classes if it is stratified.
            k: How many to choose.
            generator: Of the draw.
            validation: Not looked at.

        Raises:
            ValueError: ``k`` is out of range, or there are no classes to stratify by.
        """
        check_k(k, len(gradients))
        groups = by_class(gradients.labels, k) if self.stratified else [(0, torch.arange(len(gradients)), k)]
        indices = [at[torch.randperm(len(at), generator=generator)[:quota]] for _, at, quota in groups]
        return Subset(torch.cat(indices), torch.ones(k))
