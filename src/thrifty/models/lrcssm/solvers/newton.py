"""Newton's method on a whole sequence: linearise every step at the last iterate, solve the affine recurrence, repeat.

    φ_t = Φ_t(x_{t−1}),  J_t = ∂Φ_t,  c_t = φ_t − J_t x_{t−1},   xⁿᵉʷ_t = J_t xⁿᵉʷ_{t−1} + c_t

(arXiv 2505.21717, section 3; Lim et al., "Parallelizing non-linear sequential models over the sequence length", 2024.)
After k iterations the first k steps are exact whatever the guess was, near the solution convergence is quadratic, and a
step that is affine in the state is solved by the first iteration. What does not converge goes on in order from the
first step that is wrong: an iterate that has not converged is never returned as if it had.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.adjoint import attach_gradient
from thrifty.models.lrcssm.solvers.damped import filtered_means
from thrifty.models.lrcssm.solvers.in_order import finish_in_order, in_order, warn_of_divergence, warn_of_fallback
from thrifty.models.lrcssm.solvers.info import SolveInfo
from thrifty.models.lrcssm.solvers.options import SolveOptions, Solver
from thrifty.models.lrcssm.solvers.recurrence import Recurrence, apply_linear, linear_scan

#: Steps a chunk on a CPU: the iterates of a chunk stay in its cache. On other devices all steps are one chunk.
CHUNK = 1024

#: Where iterates are kept, so that one bad step cannot overflow all that follow.
LARGEST = 1e8

#: Below so many steps it is quicker to take them in order than to linearise them (measured on a CPU).
SHORT = 8


def newton_solve(
    cell: nn.Module,
    u: Float[Tensor, "batch time n"],
    x0: Num[Tensor, "batch D"] | None = None,
    *,
    guess: Num[Tensor, "batch time D"] | None = None,
    solver: Solver = "newton",
    tol: float | None = None,
    max_iter: int = 100,
    chunk: int | None = None,
    sigma2: float = 1e8,
    strict: bool = False,
) -> tuple[Num[Tensor, "batch time D"], SolveInfo]:
    """Return all states of a cell over a batch of sequences, differentiable, and what the solve did.

    The bare recurrence: ``dt``, ``rho`` and masks are the business of :class:`~thrifty.models.lrcssm.DiagonalRNN`.

    Args:
        cell: The cell.
        u: Inputs.
        x0: States before the first step; zeros if ``None``.
        guess: First iterate; ``x0`` at every step if ``None``.
        solver: See :class:`SolveOptions`, as all that follows.
        tol: Relative update at which a sequence stands still.
        max_iter: Iterations at most.
        chunk: Steps solved at once.
        sigma2: Damping of ``"elk"``.
        strict: Raise where the solve would go on in order.

    Returns:
        The states, and what the solve did.

    Raises:
        ConvergenceError: With ``strict``: it did not converge.

    Example:
        >>> from thrifty.models.lrcssm import GRUCell
        >>> x, info = newton_solve(GRUCell(3, 8), torch.randn(2, 100, 3))
        >>> bool(info.converged.all())
        True

    Source:
        Lim et al., "Parallelizing non-linear sequential models over the sequence length" (DEER, arXiv 2309.12252);
        Gonzalez et al. (arXiv 2407.19115) for ``"elk"``.
    """
    pre = cell.precompute(u)  # type: ignore[operator]
    problem = Recurrence(cell, pre, (u.shape[0], u.shape[1]))
    if x0 is None:
        dtype = getattr(cell, "state_dtype", u.dtype)
        width: Any = cell.hidden_size
        x0 = torch.zeros((u.shape[0], width), dtype=dtype, device=u.device)
    options = SolveOptions(solver, tol, max_iter, chunk, sigma2, strict)
    found: tuple[Tensor, SolveInfo] = solve(problem, x0, options, guess=guess)
    return found


@torch.compiler.disable
def solve(
    problem: Recurrence, x0: Tensor, options: SolveOptions, *, guess: Tensor | None = None, report: bool = True
) -> tuple[Tensor, SolveInfo]:
    """Solve a recurrence and make the solution differentiable; without ``report`` the residual is not measured."""
    with torch.no_grad():
        x, info = _states(problem, x0.detach(), options, guess)
        warn_of_fallback(info, options)
        if report:
            info = _measured(problem, x0, x, info)
    if torch.is_grad_enabled():
        x = attach_gradient(problem, x0, x)
    return x, info


def _states(problem: Recurrence, x0: Tensor, options: SolveOptions, guess: Tensor | None) -> tuple[Tensor, SolveInfo]:
    solver = _choose(problem, x0, options.solver)
    if solver == "sequential":
        return in_order(problem, x0)
    if solver == "newton" and guess is None and (kernel := problem.tiled_for(x0)) is not None:
        return _in_tiles(problem, x0, kernel, options)
    T = problem.shape[1]
    chunk = options.chunk or (CHUNK if x0.device.type == "cpu" else T)
    x = x0.new_empty(*problem.shape, x0.shape[-1])
    n_iter = torch.zeros(problem.shape[0], dtype=torch.long, device=x0.device)
    good = torch.ones(problem.shape[0], dtype=torch.bool, device=x0.device)
    errors: list[float] = []
    carry = x0
    for start in range(0, T, chunk):
        stop = min(start + chunk, T)
        first = carry.unsqueeze(1).expand(-1, stop - start, -1) if guess is None else guess[:, start:stop].to(x.dtype)
        part = problem if chunk >= T else problem.window(start, stop)
        found = _iterate(part, carry, first, options, solver)
        x[:, start:stop] = found.x
        n_iter = torch.maximum(n_iter, found.n_iter)
        good &= found.converged
        errors += found.errors
        carry = found.x[:, -1]
    zeros = torch.zeros_like(n_iter, dtype=carry.real.dtype)
    return x, SolveInfo(solver, n_iter, zeros, good, ~good, tuple(errors))


@dataclass
class _Found:
    x: Tensor
    n_iter: Tensor
    converged: Tensor
    errors: list[float]


def _iterate(problem: Recurrence, x0: Tensor, guess: Tensor, options: SolveOptions, solver: str) -> _Found:
    """Iterate until every sequence stands still; one that does is left alone while others go on."""
    tol, still = options.tolerance(x0), 64 * torch.finfo(x0.dtype).eps
    n = len(x0)
    counts = torch.zeros(n, dtype=torch.long, device=x0.device)
    found = _Found(guess.clone(), counts, torch.zeros_like(counts, dtype=torch.bool), [])
    index, part, start, x = torch.arange(n, device=x0.device), problem, x0, found.x
    before: list[Tensor] = []  # the errors of the last iterations, to notice a standstill above tol
    for count in range(1, options.max_iter + 1):
        xp = shifted(x, start)
        phi, J = part.phi_and_jacobian(xp) if solver != "jacobi" else (part.phi(xp), None)
        residual = _largest(phi - x)
        raw = _next(J, phi, xp, x, start, options.sigma2, solver)
        new, size = _guarded(raw), _largest(raw)
        error = (_largest(new - x) / _largest(new).clamp(min=1)).amax(1)
        if solver != "newton" and bool((error <= tol).any()):
            # A damped update is small because it is damped; how far the solution is, Newton's own update says.
            exact = _guarded(_newton_update(*part.phi_and_jacobian(xp), xp, start))
            error = torch.maximum(error, (_largest(exact - new) / _largest(new).clamp(min=1)).amax(1))
        held = ~(size < LARGEST).all(1)  # the guard is at work (or NaN): these are not the recurrence's states
        done = (error <= tol) & ~held
        before.append(error)
        if len(before) > 3 and solver == "newton":
            done |= (error > 0.5 * before.pop(0)) & (residual <= still * size).all(1) & ~held
        if x0.is_complex() and bool(done.any()):
            # Beside a pole one step may be so large that all others are small against it: each must fit its own.
            gap = (part.phi(shifted(new, start)) - new).abs()
            done &= (gap <= max(10 * tol, still) * new.abs().clamp(min=1)).flatten(1).all(1)
        found.errors.append(float(error.max()))
        found.n_iter[index] = count
        found.converged[index] = done
        if bool(done.any()):
            found.x[index] = new
            index = index[~done]
            if not len(index):
                return found
            part, start, x = problem.rows(index), x0[index], new[~done]
            before = [error[~done] for error in before]
        else:
            x = new
    found.x[index] = x
    finish_in_order(problem, x0, found.x, index, options, found.errors[-1])
    return found


def _in_tiles(problem: Recurrence, x0: Tensor, kernel: int, options: SolveOptions) -> tuple[Tensor, SolveInfo]:
    """Solve by the GPU kernel, which iterates within tiles."""
    tol = options.tolerance(x0)
    x, n_iter, good = problem.run_tiled(x0, kernel, tol, options.max_iter)
    if not bool(good.all()):
        finish_in_order(problem, x0, x, (~good).nonzero()[:, 0], options, float("nan"))
    return x, SolveInfo("newton (tiled)", n_iter, torch.zeros(len(x0), device=x0.device), good, ~good)


def _next(J: Tensor | None, phi: Tensor, xp: Tensor, x: Tensor, x0: Tensor, sigma2: float, solver: str) -> Tensor:
    """Return the next iterate."""
    if J is None:
        return phi
    if solver == "elk":
        return filtered_means(J, phi - J * xp, x, x0, sigma2)
    return _newton_update(phi, J.diagonal(dim1=-2, dim2=-1) if solver == "quasi" else J, xp, x0)


def _newton_update(phi: Tensor, J: Tensor, xp: Tensor, x0: Tensor) -> Tensor:
    """Return the solution of the recurrence that is linearised at ``xp``."""
    return linear_scan(J, phi - apply_linear(J, xp), x0)


def _guarded(x: Tensor) -> Tensor:
    """Keep an iterate finite: ±1e8 at most, and 0 in place of NaN."""
    if x.is_complex():
        return torch.view_as_complex(_guarded(torch.view_as_real(x)))
    return torch.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST).clamp(-LARGEST, LARGEST)


def _largest(x: Tensor) -> Tensor:
    """Return the largest absolute value over time, a channel: a small channel may not hide behind a large one."""
    return x.abs().amax(dim=1)


def _measured(problem: Recurrence, x0: Tensor, x: Tensor, info: SolveInfo) -> SolveInfo:
    residual = _largest(x - problem.phi(shifted(x, x0))).amax(1)
    warn_of_divergence(residual)
    return replace(info, residual=residual, converged=info.converged & torch.isfinite(residual))


def _choose(problem: Recurrence, x0: Tensor, solver: Solver) -> str:
    if problem.dense and solver == "elk":
        raise ValueError("solver: 'elk' needs a diagonal Jacobian; expected 'newton' for a dense cell")
    if solver == "elk" and x0.is_complex():
        raise ValueError("solver: 'elk' filters real states; expected 'newton' for a complex cell")
    if solver == "newton" and problem.dense and getattr(problem.cell, "quasi", False):
        return "quasi"
    if solver != "auto":
        return solver
    if problem.compiled_for(x0) is not None or problem.shape[1] < SHORT:
        return "sequential"
    return "newton"
