"""What becomes of the gradient outside the subspace, G_⊥ = G − Q Qᵀ G (arXiv 2505.24749, Block 4).

``"raw"`` adds it as it is (the camera-ready paper), ``"none"`` drops it (how the first version is often quoted),
``"fira"`` scales each column by how much the update changed the part inside (Chen et al., "Fira", arXiv 2410.01623).
G_⊥ is never
formed: its norms follow from ‖G‖² − ‖Ĝ‖², and it enters the weight as c·G minus a product in the basis.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from thrifty.training.sumo.scaling import limit_growth
from thrifty.training.sumo.sharded import squared_norms, sum_over

if TYPE_CHECKING:
    from thrifty.training.sumo.matrix import Matrix

RESIDUALS = ("raw", "none", "fira")

#: Growth that Fira allows the scaled residual from one step to the next.
FIRA_LIMIT = 1.01

#: The raw residual counts as too large beyond this multiple of the step inside the subspace ...
TOO_LARGE = 10.0
#: ... in as many steps in a row.
PATIENCE = 10


@dataclass(frozen=True)
class Residual:
    """c·G_⊥, not formed.

    Args:
        coefficient: c: a number, or a tensor of one number or of one a column.
        squared_norm: ‖c G_⊥‖², where the limiter needs it.
    """

    coefficient: float | Tensor
    squared_norm: Tensor | float = 0.0

    @property
    def is_none(self) -> bool:
        """Nothing outside the subspace is used."""
        return isinstance(self.coefficient, float) and self.coefficient == 0.0

    def times(self, factor: Tensor) -> Residual:
        """Shorten it."""
        return self if self.is_none else replace(self, coefficient=self.coefficient * factor)


def outside(
    matrices: Sequence[Matrix], projected: Sequence[Tensor], steps: Sequence[Tensor], group: dict[str, Any]
) -> list[Residual]:
    """Return the residual of each matrix.

    Args:
        matrices: In the same order on every rank.
        projected: Ĝ of each.
        steps: α s O of each.
        group: The options ``residual``, ``residual_scale`` and ``limit_target``.
    """
    scale = float(group["residual_scale"])
    if group["residual"] == "none" or scale == 0.0:
        return [Residual(0.0)] * len(matrices)
    if group["residual"] == "fira":
        return _fira(matrices, projected, steps, scale)
    if group["limit_target"] not in ("update", "residual"):
        return [Residual(scale)] * len(matrices)
    return [Residual(scale, scale**2 * square) for square in squared_outside(matrices, projected).unbind()]


def squared_outside(matrices: Sequence[Matrix], projected: Sequence[Tensor]) -> Tensor:
    """Return ‖G_⊥‖² = ‖G‖² − ‖Ĝ‖² of each matrix, as a vector."""
    # With spread rows Ĝ is whole on every rank already; with spread columns both are pieces.
    whole = squared_norms(matrices, [matrix.gradient for matrix in matrices], None)
    return (whole - squared_norms(matrices, projected, "columns")).clamp_min(0)


def _fira(
    matrices: Sequence[Matrix], projected: Sequence[Tensor], steps: Sequence[Tensor], scale: float
) -> list[Residual]:
    columns = [
        torch.linalg.vector_norm(matrix.gradient, dim=-2, keepdim=True, dtype=hat.dtype).square()
        for matrix, hat in zip(matrices, projected, strict=True)
    ]
    factors, squares = [], []
    whole = sum_over("rows", matrices, columns)
    for column, hat, step in zip(whole, projected, steps, strict=True):
        inside = hat.norm(dim=-2, keepdim=True)
        factor = scale * step.norm(dim=-2, keepdim=True) / (inside + 1e-8)
        factors.append(factor)
        squares.append((factor.square() * (column - inside.square()).clamp_min(0)).sum())
    found = []
    for matrix, factor, square in zip(matrices, factors, sum_over("columns", matrices, squares), strict=True):
        remembered = matrix.state["prev_residual_norm"]
        limit, norm = limit_growth(square.sqrt(), remembered, FIRA_LIMIT)
        remembered.copy_(norm)
        found.append(Residual(factor * limit, square * limit.square()))
    return found


class ResidualWatch:
    """Says, once, that plain gradient descent outside the subspace is most of the update.

    It looks at the first steps after each refresh only: that is where G_⊥ is known to be small if ever, and looking
    costs one more reading of the gradient.
    """

    def __init__(self) -> None:
        self._loud: dict[int, int] = {}
        self._told = False

    def look(
        self, matrices: Sequence[Matrix], hats: Sequence[Tensor], steps: Sequence[Tensor], group: dict[str, Any]
    ) -> None:
        """Count, for each matrix, the steps in a row in which ‖c G_⊥‖ > 10 ‖α s O‖."""
        if self._told or group["residual"] != "raw" or group["residual_scale"] == 0:
            return
        young = [
            place
            for place, matrix in enumerate(matrices)
            if int(matrix.state["step"]) - int(matrix.state["refreshed_at"]) < PATIENCE
        ]
        if not young:
            return
        chosen = [matrices[place] for place in young]
        outside_ = squared_outside(chosen, [hats[place] for place in young])
        inside = squared_norms(chosen, [steps[place] for place in young], "columns")
        limit = TOO_LARGE / abs(group["residual_scale"])
        for matrix, (rest, step) in zip(chosen, torch.stack([outside_, inside], dim=1).sqrt().tolist(), strict=True):
            self._loud[matrix.index] = self._loud.get(matrix.index, 0) + 1 if rest > limit * step else 0
            if self._loud[matrix.index] >= PATIENCE and not self._told:
                self._told = True
                warnings.warn(
                    f"{matrix.name}: for {PATIENCE} steps the raw gradient outside the subspace was more than "
                    f"{TOO_LARGE:g} times as large as the orthogonalised step inside it; lower residual_scale, use "
                    'residual="fira" or "none", or limit_target="update"',
                    stacklevel=5,
                )
