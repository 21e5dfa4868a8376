"""How a recurrence is to be solved: which solver, how exactly, and what happens if it does not converge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Solver = Literal["auto", "newton", "elk", "jacobi", "sequential"]


@dataclass(frozen=True)
class SolveOptions:
    """How to solve.

    Args:
        solver: ``"newton"``; ``"elk"``, damped; ``"jacobi"``, without Jacobians; ``"sequential"``, in order;
            ``"auto"``, the quickest of them for the cell and the device.
        tol: Update, relative to max(1, max |x|) over time in every channel, at which a sequence stands still;
            ``None``: 1e-4 in single and 1e-7 in double precision.
        max_iter: Iterations at most; then it goes on in order.
        chunk: Steps that are solved at once, each chunk from the exact end of the one before; ``None``: 1024 on a CPU,
            else all.
        sigma2: Of ``"elk"``: the smaller, the more damping.
        strict: Raise where the solve would go on in order.

    Raises:
        ValueError: A setting is out of its range.

    Example:
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> rnn = DiagonalRNN("gru", 3, 16)
        >>> rnn.options = SolveOptions("elk", sigma2=100.0)  # another solver, the same layer
        >>> rnn(torch.randn(2, 100, 3), return_info=True)[2].solver
        'elk'
    """

    solver: Solver = "auto"
    tol: float | None = None
    max_iter: int = 100
    chunk: int | None = None
    sigma2: float = 1e8
    strict: bool = False

    def __post_init__(self) -> None:
        if self.solver not in get_args(Solver):
            raise ValueError(f"solver: expected one of {', '.join(get_args(Solver))}, got {self.solver!r}")
        for name, value in (("tol", self.tol), ("sigma2", self.sigma2)):
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name}: expected a finite number above 0, got {value!r}")
        for name, count in (("max_iter", self.max_iter), ("chunk", self.chunk)):
            if count is not None and not (isinstance(count, int) and count >= 1):
                raise ValueError(f"{name}: expected a whole number of at least 1, got {count!r}")

    def tolerance(self, x0: Tensor) -> float:
        """Return ``tol``, or what suits the precision of the states."""
        return self.tol or (1e-7 if x0.real.dtype == torch.float64 else 1e-4)
