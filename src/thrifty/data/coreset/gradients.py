"""Per-sample gradients, held as what products with them need.

A last layer's gradient is the outer product of its error and its input, gᵢ = eᵢ ⊗ [hᵢ, 1]; it is never written out:
gᵢ·gⱼ = (eᵢ·eⱼ)(hᵢ·hⱼ + 1). See arXiv 2103.00123 (GradMatch) for the choice of the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

#: Per-sample losses, ``(n,)``, of logits ``(n, c)`` and targets ``(n, ...)``.
Loss = Callable[[Tensor, Tensor], Tensor]


class GradientSource(Protocol):
    """What selectors and signals need of n gradients of d numbers each."""

    @property
    def labels(self) -> Int[Tensor, " n"] | None:
        """The samples' classes, where there are any."""

    def __len__(self) -> int:
        """Return the number of gradients."""

    def take(self, indices: Int[Tensor, " k"]) -> Self:
        """Return the gradients at these positions."""

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return what comes of changing every tensor, whose first dimension is n, alike."""

    def correlate(self, vector: Float[Tensor, " d"]) -> Float[Tensor, " n"]:
        """Return every gradient's product with a vector."""

    def combine(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " d"]:
        """Return the weighted sum of the gradients."""

    def gram(self, columns: Int[Tensor, " k"]) -> Float[Tensor, "n k"]:
        """Return every gradient's products with those at these positions."""

    def square_norms(self) -> Float[Tensor, " n"]:
        """Return the gradients' squared lengths."""

    def means(self, groups: Sequence[Int[Tensor, " _"]]) -> DenseGradients:
        """Return the mean gradient of each group of positions."""

    def double(self) -> Self:
        """Return the same in float64."""


@dataclass(frozen=True)
class DenseGradients:
    """Gradients as rows.

    Args:
        values: ``(n, d)``.
        labels: ``(n,)`` classes, for selection by class.

    Raises:
        ValueError: A shape will not do, or a gradient is not finite; its position is named.

    Example:
        >>> import torch
        >>> DenseGradients(torch.tensor([[2.0, 0.0], [0.0, 1.0]])).combine(torch.tensor([1.0, 3.0])).tolist()
        [2.0, 3.0]
    """

    values: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"] | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not self.values.is_floating_point():
            raise ValueError(
                f"values: expected floats of shape (n, d), got {self.values.dtype} of {tuple(self.values.shape)}"
            )
        _check(len(self.values), self.labels, self.values)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indices: Tensor) -> DenseGradients:
        """Return the gradients at these positions."""
        return self.mapped(lambda part: part[indices])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> DenseGradients:
        """Return what comes of changing every tensor alike."""
        return DenseGradients(change(self.values), None if self.labels is None else change(self.labels))

    def correlate(self, vector: Tensor) -> Tensor:
        """Return every gradient's product with a vector."""
        return self.values @ vector

    def combine(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the gradients."""
        return weights @ self.values

    def gram(self, columns: Tensor) -> Tensor:
        """Return every gradient's products with those at these positions."""
        return self.values @ self.values[columns].T

    def square_norms(self) -> Tensor:
        """Return the gradients' squared lengths."""
        return self.values.square().sum(1)

    def means(self, groups: Sequence[Tensor]) -> DenseGradients:
        """Return the mean gradient of each group of positions."""
        return DenseGradients(torch.stack([self.values[group].mean(0) for group in groups]))

    def double(self) -> DenseGradients:
        """Return the same in float64."""
        return DenseGradients(self.values.double(), self.labels)


@dataclass(frozen=True)
class LastLayerGradients:
    """Gradients of a linear last layer, as its errors and inputs.

    Args:
        errors: ∂loss/∂logits of each sample, ``(n, c)``; for softmax cross-entropy, probabilities − one-hot.
        inputs: What the layer is given, ``(n, h)``; None: gradients with regard to the logits alone.
        bias: The layer has a bias.
        labels: ``(n,)`` classes, for selection by class.
        logits: ``(n, c)``, for :meth:`after_step`.
        targets: What the loss is given beside the logits, likewise.
        loss: Per-sample losses, likewise.

    Raises:
        ValueError: Shapes do not agree, or a value is not finite; its position is named.

    Example:
        >>> import torch
        >>> gradients = LastLayerGradients(torch.tensor([[-0.5, 0.5]]), torch.tensor([[2.0]]))
        >>> gradients.combine(torch.ones(1)).tolist()  # rows of [weight, bias], one a class
        [-1.0, -0.5, 1.0, 0.5]

    Source:
        arXiv 2103.00123, section 4.
    """

    errors: Float[Tensor, "n c"]
    inputs: Float[Tensor, "n h"] | None = None
    bias: bool = True
    labels: Int[Tensor, " n"] | None = None
    logits: Float[Tensor, "n c"] | None = None
    targets: Tensor | None = None
    loss: Loss | None = None

    def __post_init__(self) -> None:
        n = len(self.errors)
        if self.errors.ndim != 2 or not self.errors.is_floating_point():
            raise ValueError(
                f"errors: expected floats of shape (n, c), got {self.errors.dtype} of {tuple(self.errors.shape)}"
            )
        if self.inputs is not None and (self.inputs.ndim != 2 or len(self.inputs) != n):
            raise ValueError(f"inputs: expected shape ({n}, h), got {tuple(self.inputs.shape)}")
        _check(n, self.labels, self.errors, *(() if self.inputs is None else (self.inputs,)))

    def __len__(self) -> int:
        return len(self.errors)

    def _extended(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return [h, 1]; where the logits alone count, [1]."""
        one = self.errors.new_ones(len(self.errors[rows]), 1)
        if self.inputs is None:
            return one
        return torch.cat([self.inputs[rows], one], 1) if self.bias else self.inputs[rows]

    def take(self, indices: Tensor) -> LastLayerGradients:
        """Return the gradients at these positions."""
        return self.mapped(lambda part: part[indices])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> LastLayerGradients:
        """Return what comes of changing every tensor alike."""
        held = {name: getattr(self, name) for name in ("errors", "inputs", "labels", "logits", "targets")}
        changed: dict[str, Any] = {name: change(part) for name, part in held.items() if part is not None}
        return replace(self, **changed)

    def correlate(self, vector: Tensor) -> Tensor:
        """Return every gradient's product with a vector, ``(c · (h + 1),)``."""
        return ((self.errors @ vector.view(self.errors.shape[1], -1)) * self._extended()).sum(1)

    def combine(self, weights: Tensor) -> Tensor:
        """Return the weighted sum of the gradients, ``(c · (h + 1),)``."""
        return (self.errors.T @ (weights[:, None] * self._extended())).flatten()

    def gram(self, columns: Tensor) -> Tensor:
        """Return every gradient's products with those at these positions."""
        products = self.errors @ self.errors[columns].T
        if self.inputs is None:
            return products
        return products * (self.inputs @ self.inputs[columns].T + self.bias)

    def square_norms(self) -> Tensor:
        """Return the gradients' squared lengths."""
        return self.errors.square().sum(1) * self._extended().square().sum(1)

    def means(self, groups: Sequence[Tensor]) -> DenseGradients:
        """Return the mean gradient of each group of positions."""
        return DenseGradients(
            torch.stack([(self.errors[at].T @ self._extended(at) / len(at)).flatten() for at in groups])
        )

    def double(self) -> LastLayerGradients:
        """Return the same in float64."""
        return self.mapped(lambda part: part.double() if part.is_floating_point() else part)

    def own_rows(self) -> DenseGradients:
        """Return the gradients of each sample's own class's row alone, ``(n, h + 1)``.

        Raises:
            ValueError: The samples have no classes.

        Source:
            arXiv 2103.00123, section 4: the approximation by class and gradient.
        """
        if self.labels is None:
            raise ValueError("gradients: expected classes with them, got none; choose another selection")
        own = self.errors.gather(1, self.labels[:, None])
        return DenseGradients(own * self._extended(), self.labels)

    def after_step(self, step: Float[Tensor, " d"]) -> LastLayerGradients:
        """Return the gradients after the last layer's weights were moved by a step, ``(c · (h + 1),)``.

        Raises:
            ValueError: The gradients came without logits, targets and loss.
        """
        if self.logits is None or self.targets is None or self.loss is None:
            raise ValueError("gradients: expected logits, targets and loss with them, got none")
        moved = self.logits + self._extended() @ step.view(self.errors.shape[1], -1).T
        return replace(self, errors=errors_of(self.loss, moved, self.targets), logits=moved)


def errors_of(loss: Loss, logits: Float[Tensor, "n c"], targets: Tensor) -> Float[Tensor, "n c"]:
    """Return ∂loss/∂logits of each sample: automatically, so that any per-sample loss will do.

    Args:
        loss: Per-sample losses.
        logits: As the model gives them.
        targets: As the loss takes them.
    """
    with torch.enable_grad():
        leaf = logits.detach().requires_grad_()
        (errors,) = torch.autograd.grad(loss(leaf, targets).sum(), leaf)
    return errors


def _check(n: int, labels: Tensor | None, *values: Tensor) -> None:
    if labels is not None and (labels.shape != (n,) or labels.is_floating_point()):
        raise ValueError(f"labels: expected {n} classes, got {labels.dtype} of shape {tuple(labels.shape)}")
    for value in values:
        finite = value.isfinite().all(1)
        if not finite.all():
            raise ValueError(
                f"gradients: expected finite numbers, got others for sample {int((~finite).nonzero()[0, 0])}"
            )
