"""Solving a recurrence step by step, and finishing so what did not converge; what a person is told of it."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.info import ConvergenceError, SolveInfo
from thrifty.models.lrcssm.solvers.options import SolveOptions
from thrifty.models.lrcssm.solvers.recurrence import Recurrence


def in_order(problem: Recurrence, x0: Tensor) -> tuple[Tensor, SolveInfo]:
    """Return all states, by the compiled recurrence if there is one for the cell, and what there is to report."""
    zeros = torch.zeros(len(x0), dtype=x0.real.dtype, device=x0.device)
    kernel = problem.compiled_for(x0)
    if kernel is not None:
        return problem.run_compiled(x0, kernel), SolveInfo.in_order("sequential (compiled)", zeros)
    states, x = [], x0
    for t in range(problem.shape[1]):
        x = problem.at(t, x)
        states.append(x)
    return torch.stack(states, dim=1), SolveInfo.in_order("sequential", zeros)


def finish_in_order(
    problem: Recurrence, x0: Tensor, x: Tensor, index: Tensor, options: SolveOptions, last: float
) -> None:
    """Compute some sequences in order, in place, each from its first step that is wrong.

    Args:
        problem: The recurrence.
        x0: States before the first step.
        x: What an iteration left.
        index: The sequences that did not converge.
        options: Whether that is allowed.
        last: Their last relative update, for the message.

    Raises:
        ConvergenceError: With ``strict``.
    """
    if options.strict:
        raise ConvergenceError(
            f"solve: {len(index)} of {len(x0)} sequences did not converge within max_iter={options.max_iter} "
            f"(last relative update {last:.2g}, tol {options.tolerance(x0):g}); raise max_iter, use "
            "solver='sequential', or a cell with rho"
        )
    for i in index.tolist():
        row = torch.tensor([i], device=x0.device)
        alone, now = problem.rows(row), x[row]
        phi = alone.phi(shifted(now, x0[row]))
        # At the first wrong step the one before is right, hence so is phi; x may be anything.
        wrong = ~((now - phi).abs() <= 64 * torch.finfo(x.dtype).eps * phi.abs().clamp(min=1))[0].all(1)
        if not bool(wrong.any()):
            continue
        first = int(wrong.nonzero()[0, 0])
        held = now[:, first - 1] if first else x0[row]
        x[i, first:] = in_order(alone.window(first, problem.shape[1]), held)[0][0]


def warn_of_fallback(info: SolveInfo, options: SolveOptions) -> None:
    """Say, once a solve, that sequences had to be computed in order."""
    if bool(info.fallback.any()):
        warnings.warn(
            f"{int(info.fallback.sum())} of {len(info.fallback)} sequences did not converge within "
            f"{options.max_iter} iterations and were computed in order from their first wrong step; a cell with rho "
            "converges in a few",
            RuntimeWarning,
            stacklevel=4,
        )


def warn_of_divergence(residual: Tensor) -> None:
    """Say that states are not finite, which is the recurrence's doing."""
    finite = torch.isfinite(residual)
    if not bool(finite.all()):
        warnings.warn(
            f"the states of {int((~finite).sum())} sequences are not finite: the recurrence itself diverges",
            RuntimeWarning,
            stacklevel=4,
        )
