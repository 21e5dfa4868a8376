"""Newton's method on a whole sequence: linearise every step at the last iterate, solve the affine recurrence, repeat.

    φ_t = Φ_t(x_{t−1}),  J_t = ∂Φ_t,  c_t = φ_t − J_t x_{t−1},   xⁿᵉʷ_t = J_t xⁿᵉʷ_{t−1} + c_t

(arXiv 2505.21717, section 3; Lim et al., "Parallelizing non-linear sequential models over the sequence length", 2024.)
After k iterations the first k steps are exact whatever the guess was, near the solution convergence is quadratic, and a
step that is affine in the state is solved by the first iteration. What does not converge goes on in order from the
first step that is wrong: an iterate that has not converged is never returned as if it had.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.adjoint import attach_gradient
from thrifty.models.lrcssm.solvers.damped import filtered_means
from thrifty.models.lrcssm.solvers.info import ConvergenceError, SolveInfo
from thrifty.models.lrcssm.solvers.recurrence import Recurrence, apply_linear, linear_scan

Solver = Literal["auto", "newton", "elk", "jacobi", "sequential"]

#: Steps a chunk on a CPU: the iterates of a chunk stay in its cache. On other devices all steps are one chunk.
CHUNK = 1024

#: Where iterates are kept, so that one bad step cannot overflow all that follow.
LARGEST = 1e8

#: Below so many steps it is quicker to take them in order than to linearise them (measured on a CPU).
SHORT = 8


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
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ValueError(f"{name}: expected a number above 0, got {value!r}")
        for name, count in (("max_iter", self.max_iter), ("chunk", self.chunk)):
            if count is not None and not (isinstance(count, int) and count >= 1):
                raise ValueError(f"{name}: expected a whole number of at least 1, got {count!r}")


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

    Raises:
        ConvergenceError: With ``strict``: it did not converge.

    Example:
        >>> from thrifty.models.lrcssm import GRUCell
        >>> x, info = newton_solve(GRUCell(3, 8), torch.randn(2, 100, 3))
        >>> bool(info.converged.all())
        True
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
        if report:
            info = _measured(problem, x0, x, info)
    if torch.is_grad_enabled():
        x = attach_gradient(problem, x0, x)
    return x, info


def _states(problem: Recurrence, x0: Tensor, options: SolveOptions, guess: Tensor | None) -> tuple[Tensor, SolveInfo]:
    solver = _choose(problem, x0, options.solver)
    if solver == "sequential":
        return _in_order(problem, x0)
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
    tol, still = _tolerance(options, x0), 64 * torch.finfo(x0.dtype).eps
    n = len(x0)
    counts = torch.zeros(n, dtype=torch.long, device=x0.device)
    found = _Found(guess.clone(), counts, torch.zeros_like(counts, dtype=torch.bool), [])
    index, part, start, x = torch.arange(n, device=x0.device), problem, x0, found.x
    before: list[Tensor] = []  # the errors of the last iterations, to notice a standstill above tol
    for count in range(1, options.max_iter + 1):
        xp = shifted(x, start)
        phi, J = part.phi_and_jacobian(xp) if solver != "jacobi" else (part.phi(xp), None)
        residual = _largest(phi - x)
        new = _guarded(_update(problem, phi, J, xp, x, start, options, solver))
        size = _largest(new)
        error = (_largest(new - x) / size.clamp(min=1)).amax(1)
        held = (size >= LARGEST).any(1)  # the guard is at work: these are not the recurrence's states
        done = (error <= tol) & ~held
        before.append(error)
        if len(before) > 3:
            done |= (error > 0.5 * before.pop(0)) & (residual <= still * size).all(1) & ~held
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
    _finish_in_order(problem, x0, found, index, tol, options)
    return found


def _in_tiles(problem: Recurrence, x0: Tensor, kernel: int, options: SolveOptions) -> tuple[Tensor, SolveInfo]:
    """Solve by the GPU kernel, which iterates within tiles."""
    tol = _tolerance(options, x0)
    x, n_iter, good = problem.run_tiled(x0, kernel, tol, options.max_iter)
    if not bool(good.all()):
        found = _Found(x, n_iter, good, [float("nan")])
        _finish_in_order(problem, x0, found, (~good).nonzero()[:, 0], tol, options)
    return x, SolveInfo("newton (tiled)", n_iter, torch.zeros(len(x0), device=x0.device), good, ~good)


def _tolerance(options: SolveOptions, x0: Tensor) -> float:
    return options.tol or (1e-7 if x0.real.dtype == torch.float64 else 1e-4)


def _update(
    problem: Recurrence,
    phi: Tensor,
    J: Tensor | None,
    xp: Tensor,
    x: Tensor,
    x0: Tensor,
    options: SolveOptions,
    solver: str,
) -> Tensor:
    if J is None:
        return phi
    if problem.dense and getattr(problem.cell, "quasi", False):
        J = J.diagonal(dim1=-2, dim2=-1)
    c = phi - apply_linear(J, xp)
    if solver == "elk":
        return filtered_means(J, c, x, x0, options.sigma2)
    return linear_scan(J, c, x0)


def _guarded(x: Tensor) -> Tensor:
    """Keep an iterate finite: ±1e8 at most, and 0 in place of NaN."""
    if x.is_complex():
        return torch.view_as_complex(_guarded(torch.view_as_real(x)))
    return torch.nan_to_num(x, nan=0.0, posinf=LARGEST, neginf=-LARGEST).clamp(-LARGEST, LARGEST)


def _largest(x: Tensor) -> Tensor:
    """Return the largest absolute value over time, a channel: a small channel may not hide behind a large one."""
    return x.abs().amax(dim=1)


def _finish_in_order(
    problem: Recurrence, x0: Tensor, found: _Found, index: Tensor, tol: float, options: SolveOptions
) -> None:
    """Compute what did not converge in order, from its first step that is wrong."""
    if options.strict:
        raise ConvergenceError(
            f"solve: {len(index)} of {len(x0)} sequences did not converge within max_iter={options.max_iter} "
            f"(last relative update {found.errors[-1]:.2g}, tol {tol:g}); raise max_iter, use solver='sequential', "
            "or a cell with rho"
        )
    warnings.warn(
        f"{len(index)} of {len(x0)} sequences did not converge within {options.max_iter} iterations and were computed "
        "in order from their first wrong step; a cell with rho converges in a few",
        RuntimeWarning,
        stacklevel=2,
    )
    for i in index.tolist():
        row = torch.tensor([i], device=x0.device)
        alone, x = problem.rows(row), found.x[row]
        phi = alone.phi(shifted(x, x0[row]))
        # At the first wrong step the one before is right, hence so is phi; x may be anything.
        bad = ~((x - phi).abs() <= 64 * torch.finfo(x.dtype).eps * phi.abs().clamp(min=1))[0].all(1)
        if not bool(bad.any()):
            continue
        first = int(bad.nonzero()[0, 0])
        held = x[:, first - 1] if first else x0[row]
        rest, _ = _in_order(alone.window(first, problem.shape[1]), held)
        found.x[i, first:] = rest[0]


def _in_order(problem: Recurrence, x0: Tensor) -> tuple[Tensor, SolveInfo]:
    zeros = torch.zeros(len(x0), dtype=x0.real.dtype, device=x0.device)
    kernel = problem.compiled_for(x0)
    if kernel is not None:
        return problem.run_compiled(x0, kernel), SolveInfo.in_order("sequential (compiled)", zeros)
    states, x = [], x0
    for t in range(problem.shape[1]):
        x = problem.at(t, x)
        states.append(x)
    return torch.stack(states, dim=1), SolveInfo.in_order("sequential", zeros)


def _measured(problem: Recurrence, x0: Tensor, x: Tensor, info: SolveInfo) -> SolveInfo:
    residual = _largest(x - problem.phi(shifted(x, x0))).amax(1)
    finite = torch.isfinite(residual)
    if not bool(finite.all()):
        warnings.warn(
            f"the states of {int((~finite).sum())} sequences are not finite: the recurrence itself diverges",
            RuntimeWarning,
            stacklevel=3,
        )
    return SolveInfo(info.solver, info.n_iter, residual, info.converged & finite, info.fallback, info.errors)


def _choose(problem: Recurrence, x0: Tensor, solver: Solver) -> Solver:
    if problem.dense and solver in {"elk"}:
        raise ValueError("solver: 'elk' needs a diagonal Jacobian; expected 'newton' for a dense cell")
    if solver == "elk" and x0.is_complex():
        raise ValueError("solver: 'elk' filters real states; expected 'newton' for a complex cell")
    if solver != "auto":
        return solver
    if problem.compiled_for(x0) is not None or problem.shape[1] < SHORT:
        return "sequential"
    return "newton"
