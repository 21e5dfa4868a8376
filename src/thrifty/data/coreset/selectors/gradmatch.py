"""GradMatch: a weighted subset whose gradient comes near that of all data (Killamsetty et al., arXiv 2103.00123)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thrifty._common.checks import number, one_of, whole
from thrifty.data.coreset.gradients import DenseGradients, GradientSource, LastLayerGradients
from thrifty.data.coreset.pursuit import matching_pursuit
from thrifty.data.coreset.subsets import Subset, by_class, check_k, fill

SELECTIONS = ("per_class", "per_class_per_gradient", "per_batch", "global")


@dataclass(frozen=True)
class GradMatch:
    """Choose samples and weights by orthogonal matching pursuit.

    Args:
        selection: ``"per_class"``: within each class, towards that class's sum; ``"per_class_per_gradient"``:
            likewise, of each gradient only the row of the sample's own class (cheaper); ``"per_batch"``: whole random
            mini-batches, by their mean gradients; ``"global"``: among all samples.
        lam: λ of ‖Σ γᵢ gᵢ − b‖² + λ‖γ‖².
        eps: Stop at a residual of ε‖b‖; what is missing is drawn at random, with weight 1.
        nonneg: Weights of at least 0.
        batch_size: Of ``"per_batch"``.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset import LastLayerGradients
        >>> labels = torch.arange(40) % 4
        >>> logits = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> errors = logits.softmax(1) - torch.nn.functional.one_hot(labels)
        >>> subset = GradMatch().select(LastLayerGradients(errors, logits, labels=labels), 8)
        >>> labels[subset.indices].bincount().tolist()
        [2, 2, 2, 2]

    Source:
        arXiv 2103.00123, sections 3 and 4.
    """

    selection: str = "per_class"
    lam: float = 0.5
    eps: float = 1e-4
    nonneg: bool = True
    batch_size: int = 32

    def __post_init__(self) -> None:
        one_of("selection", self.selection, SELECTIONS)
        number("lam", self.lam, "a number of at least 0", least=0.0)
        number("eps", self.eps, "a number of at least 0", least=0.0)
        whole("batch_size", self.batch_size)

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return k samples and their weights.

        Args:
            gradients: Of all n samples; with classes, for a selection by class.
            k: How many to choose.
            generator: Of mini-batches, and of what is added at random.
            validation: Match the sum of these, scaled to the number of samples, in place of the samples' own.

        Raises:
            ValueError: ``k`` is out of range, or a selection by class lacks classes.
        """
        check_k(k, len(gradients))
        if self.selection == "per_class_per_gradient":
            gradients, validation = _own_rows(gradients), None if validation is None else _own_rows(validation)
        if self.selection == "per_batch":
            return self._batches(gradients, k, generator, validation)
        if self.selection == "global":
            parts = [self._part(gradients, torch.arange(len(gradients)), k, generator, validation)]
        else:
            parts = [
                self._part(gradients, positions, quota, generator, _of_class(validation, label))
                for label, positions, quota in by_class(gradients.labels, k)
            ]
        return Subset(
            torch.cat([part.indices for part in parts]),
            torch.cat([part.weights for part in parts]),
            math.sqrt(sum(part.residual**2 for part in parts)),  # of classes: of each one's own
            sum(part.filled for part in parts),
        )

    def _part(
        self,
        gradients: GradientSource,
        positions: Tensor,
        k: int,
        generator: torch.Generator | None,
        towards: GradientSource | None,
    ) -> Subset:
        """Choose k of these positions."""
        atoms = gradients.take(positions.to(gradients.square_norms().device))
        found = matching_pursuit(
            atoms, _sum(atoms if towards is None else towards, len(atoms)), k, self.lam, self.eps, self.nonneg
        )
        at = found.indices.cpu()
        return Subset(*fill(positions[at], found.weights, k, positions, generator), found.residual, k - len(at))

    def _batches(
        self,
        gradients: GradientSource,
        k: int,
        generator: torch.Generator | None,
        validation: GradientSource | None,
    ) -> Subset:
        """Choose ⌊k/B⌋ mini-batches, and at random what is then missing; a batch's weight is that of its samples."""
        n, size = len(gradients), min(self.batch_size, k)
        device = gradients.square_norms().device
        groups = list(torch.split(torch.randperm(n, generator=generator), size))
        groups = [group for group in groups if len(group) == size]
        means = gradients.means([group.to(device) for group in groups])
        target = _sum(gradients if validation is None else validation, n)
        found = matching_pursuit(means, target, k // size, self.lam, self.eps, self.nonneg)
        chosen = [groups[at] for at in found.indices.tolist()]
        indices = torch.cat(chosen) if chosen else torch.empty(0, dtype=torch.int64)
        weights = (found.weights.cpu() / size).repeat_interleave(size)
        at_random = k - len(indices)
        return Subset(*fill(indices, weights, k, torch.arange(n), generator), found.residual, at_random)


def _sum(gradients: GradientSource, n: int) -> Tensor:
    """Return the gradients' sum, scaled to n of them."""
    ones = torch.ones_like(gradients.square_norms())
    return gradients.combine(ones) * (n / len(gradients))


def _own_rows(gradients: GradientSource) -> DenseGradients:
    if not isinstance(gradients, LastLayerGradients):
        raise ValueError(
            'gradients: expected those of a last layer for selection="per_class_per_gradient", got '
            f"{type(gradients).__name__}"
        )
    return gradients.own_rows()


def _of_class(gradients: GradientSource | None, label: int) -> GradientSource | None:
    """Return the gradients of one class; None where there are none."""
    if gradients is None or gradients.labels is None:
        return None
    at = (gradients.labels == label).nonzero()[:, 0]
    return gradients.take(at) if len(at) else None
