"""What a solve did: how many iterations, how exactly, and whether it had to go on in order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class ConvergenceError(RuntimeError):
    """A solve did not converge, and ``strict=True`` forbids to go on in order.

    Example:
        >>> from thrifty.models.lrcssm import LRCCell, newton_solve
        >>> try:
        ...     newton_solve(LRCCell(3, 16), torch.randn(2, 100, 3), max_iter=1, strict=True)
        ... except ConvergenceError as error:
        ...     print(str(error)[:47])
        solve: 2 of 2 sequences did not converge within
    """


@dataclass(frozen=True)
class SolveInfo:
    """What a solve did, a number a sequence.

    Args:
        solver: Which one ran, for instance ``"newton"`` or ``"sequential (compiled)"``.
        n_iter: Iterations until the sequence stood still (the most of any chunk); 0 in order.
        residual: max |x_t − Φ_t(x_{t−1})| of what is returned.
        converged: Whether the iteration converged by itself.
        fallback: Whether the rest was computed in order.
        errors: The update of every iteration, largest over the batch: the Newton trace.

    Example:
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> y, h, info = DiagonalRNN("gru", 3, 16)(torch.randn(2, 100, 3), return_info=True)
        >>> info.solver, info.converged.tolist()
        ('newton', [True, True])
    """

    solver: str
    n_iter: Int[Tensor, " batch"]
    residual: Float[Tensor, " batch"]
    converged: Bool[Tensor, " batch"]
    fallback: Bool[Tensor, " batch"]
    errors: tuple[float, ...] = ()

    @classmethod
    def in_order(cls, solver: str, residual: Tensor) -> SolveInfo:
        """Return what a solve in order has to report."""
        n = len(residual)
        device = residual.device
        yes, no = (torch.full((n,), value, dtype=torch.bool, device=device) for value in (True, False))
        return cls(solver, torch.zeros(n, dtype=torch.long, device=device), residual, yes, no)
