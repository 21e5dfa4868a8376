"""The nearest certified row within bounds, one-way changes and linear limits: a second-order cone programme.

Variables are the columns that can move. ‖√(2ε)L⁻¹x̃‖ ≤ ±(θ̂ᵀx̃ − t) − margin is one cone; a QR factorisation first
brings its rows down to the number of free columns. ``clarabel`` (an interior-point solver) is used where it is
installed. Without it, :func:`by_bisection` bisects the multiplier μ of the concave g₁ over bounded quasi-Newton solves
(slower; bounds only).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize
from scipy.sparse import csc_array

from thrifty._common.extras import require

Solver = Literal["auto", "clarabel", "bisection"]
Vector = Float[np.ndarray, " d"]

#: (tolerance, whether to equilibrate) of the interior-point solver's tries; badly conditioned cones need the later.
TRIES = ((1e-10, True), (1e-10, False), (1e-9, True), (1e-8, True), (1e-8, False))


class InconclusiveError(RuntimeError):
    """The solver neither found the optimum nor proved that there is none."""


@dataclass(frozen=True, eq=False)
class ConeProblem:
    """min Σ u|Δ|^p + cᵀx over lower ≤ x ≤ upper, A x ≤ b, and the cone.

    Attributes:
        origin: x₀; ``[d]``.
        lower: ``[d]``.
        upper: ``[d]``; a column with ``lower == upper`` is fixed.
        slope: ±θ on columns, then ±(θ_b − t) − margin; ``[m]``.
        shape: √(2ε)L⁻¹; ``[m, m]``.
        weights: u ≥ 0; ``[d]``.
        cost: c, a linear cost; ``[d]``.
        A: ``[c, d]``.
        b: ``[c]``.
        absolute: p = 1 (else 2).
    """

    origin: Vector
    lower: Vector
    upper: Vector
    slope: Float[np.ndarray, " m"]
    shape: Float[np.ndarray, "m m"]
    weights: Vector
    cost: Vector
    A: Float[np.ndarray, "c d"]
    b: Float[np.ndarray, " c"]
    absolute: bool = False

    def free(self) -> NDArray[np.bool_]:
        """Columns that can move."""
        return self.upper > self.lower

    def full(self, x: Float[np.ndarray, " k"]) -> Vector:
        """Put free values back among the fixed ones, inside the bounds."""
        row = self.lower.copy()
        row[self.free()] = x
        return np.asarray(np.clip(row, self.lower, self.upper))

    def value(self, row: Vector) -> float:
        """Return the objective at a row."""
        moved = np.abs(row - self.origin)
        return float((moved if self.absolute else moved**2) @ self.weights + self.cost @ row)

    def slack(self, row: Vector) -> float:
        """Return by how much a row is inside the cone."""
        rows = np.append(row, 1.0)
        return float(self.slope @ rows - np.linalg.norm(self.shape @ rows))

    def reduced(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float]:
        """Return (R, r, g, h): the cone is ‖R x + r‖ ≤ gᵀx + h on free columns."""
        free = self.free()
        rest = np.where(free, 0.0, self.lower)
        tail = self.shape[:, :-1] @ rest + self.shape[:, -1]
        q, r = np.linalg.qr(self.shape[:, :-1][:, free])
        inside = q.T @ tail
        beyond = np.linalg.norm(tail - q @ inside)
        matrix = np.vstack([r, np.zeros((1, r.shape[1]))])
        return matrix, np.append(inside, beyond), self.slope[:-1][free], float(self.slope[:-1] @ rest + self.slope[-1])


def nearest(problem: ConeProblem, solver: Solver = "auto") -> Vector | None:
    """Return the optimal row; ``None`` if there is none.

    Raises:
        ImportError: ``clarabel`` is needed (linear limits, or asked for) and not installed.
        InconclusiveError: The solver came to no conclusion.
    """
    if not problem.free().any():
        fine = problem.slack(problem.lower) >= 0 and bool((problem.A @ problem.lower <= problem.b + 1e-9).all())
        return problem.lower.copy() if fine else None
    if solver == "auto":
        solver = "clarabel" if len(problem.b) or find_spec("clarabel") else "bisection"
    if solver == "bisection":
        return by_bisection(problem)
    return by_interior_point(problem)


def by_interior_point(problem: ConeProblem) -> Vector | None:
    """Solve with ``clarabel``.

    Raises:
        ImportError: It is not installed.
        InconclusiveError: It came to no conclusion.
    """
    clarabel = require("clarabel", extra="tabular")
    free = problem.free()
    k = int(free.sum())
    matrix, offset, slope, level = problem.reduced()
    lower, upper, origin = problem.lower[free], problem.upper[free], problem.origin[free]
    weights, cost = problem.weights[free], problem.cost[free]
    has_upper, has_lower = np.isfinite(upper), np.isfinite(lower)
    identity = np.eye(k)
    linear = [identity[has_upper], -identity[has_lower], problem.A[:, free]]
    fixed = problem.A[:, ~free] @ problem.lower[~free]
    rights = [upper[has_upper], -lower[has_lower], problem.b - fixed]
    P, q = np.diag(2 * weights), cost - 2 * weights * origin
    second = np.vstack([-slope, -matrix])
    if problem.absolute:  # further variables e ≥ |x − x₀|
        nothing = np.zeros((sum(len(part) for part in linear), k))
        linear = [np.hstack([np.vstack(linear), nothing]), np.hstack([identity, -identity]), -np.hstack([identity] * 2)]
        rights += [origin, -origin]
        second = np.hstack([second, np.zeros_like(second)])
        P, q = np.zeros((2 * k, 2 * k)), np.concatenate([cost, weights])
    bounded = np.vstack(linear)
    cones = [clarabel.NonnegativeConeT(len(bounded))] if len(bounded) else []
    cones.append(clarabel.SecondOrderConeT(len(second)))
    solution = _run(clarabel, P, q, np.vstack([bounded, second]), np.concatenate([*rights, [level], offset]), cones)
    return None if solution is None else problem.full(solution[:k])


def largest_radius(problem: ConeProblem, spread: Float[np.ndarray, "m m"]) -> float:
    """Return the largest ε at which any row within the limits is certified (an upper bound if parts are discrete).

    It is ½ max(0, v)², v = max ±(θ̂ᵀx̃−t) / ‖L⁻¹x̃‖: with y = τx, the largest slopeᵀ[y; τ] over ‖L⁻¹[y; τ]‖ ≤ 1, and
    limits multiplied by τ (Charnes and Cooper).

    Args:
        problem: Its limits and ``slope`` (without margin) are used.
        spread: L⁻¹.
    """
    clarabel = require("clarabel", extra="tabular")
    free = problem.free()
    k = int(free.sum())
    rest = np.append(np.where(free, 0.0, problem.lower), 1.0)
    slope = np.append(problem.slope[:-1][free], problem.slope @ rest)
    ball = np.column_stack([spread[:, :-1][:, free], spread @ rest])
    lower, upper = problem.lower[free], problem.upper[free]
    identity = np.eye(k)
    has_upper, has_lower = np.isfinite(upper), np.isfinite(lower)
    limits = [
        np.column_stack([identity[has_upper], -upper[has_upper]]),
        np.column_stack([-identity[has_lower], lower[has_lower]]),
        np.append(np.zeros(k), -1.0)[None],
    ]
    if len(problem.b):
        right = problem.b - problem.A[:, ~free] @ problem.lower[~free]
        limits.append(np.column_stack([problem.A[:, free], -right]))
    bounded = np.vstack(limits)
    matrix = np.vstack([bounded, np.zeros((1, k + 1)), -ball])
    right = np.concatenate([np.zeros(len(bounded)), [1.0], np.zeros(len(ball))])
    cones = [clarabel.NonnegativeConeT(len(bounded)), clarabel.SecondOrderConeT(1 + len(ball))]
    solution = _run(clarabel, np.zeros((k + 1, k + 1)), -slope, matrix, right, cones)
    return 0.0 if solution is None else 0.5 * max(0.0, float(slope @ solution)) ** 2


def contradict(problem: ConeProblem) -> bool:
    """Tell whether no row keeps to bounds and linear limits, certified or not."""
    if not len(problem.b):
        return False
    bounds = np.column_stack([problem.lower, problem.upper])
    return bool(linprog(np.zeros(len(problem.origin)), problem.A, problem.b, bounds=bounds, method="highs").status == 2)


def by_bisection(problem: ConeProblem) -> Vector | None:
    """Bisect μ: x(μ) maximises μ g₁(x) − ½ objective within the bounds, and g₁(x(μ)) never falls.

    Raises:
        ImportError: There are linear limits, for which ``clarabel`` is needed.
    """
    if len(problem.b):
        require("clarabel", extra="tabular")
        raise ValueError(
            "solver: expected 'clarabel' for linear limits and categories, got 'bisection', which takes bounds only"
        )
    free = problem.free()
    matrix, offset, slope, level = problem.reduced()
    lower, upper, origin = problem.lower[free], problem.upper[free], problem.origin[free]
    weights, cost = problem.weights[free], problem.cost[free]
    start = np.clip(origin, lower, upper)
    k = len(start)

    def cone(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        inner = matrix @ x + offset
        norm = float(np.linalg.norm(inner))
        return float(slope @ x + level - norm), slope - matrix.T @ inner / max(norm, 1e-300)

    def solve(mu: float, x: NDArray[np.float64]) -> NDArray[np.float64]:
        # |Δ| is the sum of a growing and a shrinking part, both at least 0; Δ² needs no such split.
        if problem.absolute:

            def split(v: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
                value, gradient = cone(start + v[:k] - v[k:])
                moving = cost - mu * gradient
                total = weights @ (v[:k] + v[k:]) + cost @ (v[:k] - v[k:]) - mu * value
                return float(total), np.concatenate([weights + moving, weights - moving])

            v0 = np.concatenate([np.maximum(x - start, 0), np.maximum(start - x, 0)])
            limits = list(zip(np.zeros(2 * k), np.concatenate([upper - start, start - lower]), strict=True))
            v = minimize(split, v0, jac=True, method="L-BFGS-B", bounds=limits, options=_TIGHT).x
            return np.asarray(start + v[:k] - v[k:])

        def whole(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, gradient = cone(x)
            moved = x - origin
            return (
                float(weights @ moved**2 + cost @ x - mu * value),
                2 * weights * moved + cost - mu * gradient,
            )

        found = minimize(
            whole, x, jac=True, method="L-BFGS-B", bounds=list(zip(lower, upper, strict=True)), options=_TIGHT
        )
        return np.asarray(found.x)

    x = solve(0.0, start)
    if cone(x)[0] >= 0:
        return problem.full(x)
    low, high, best = 0.0, 1e-3, None
    while best is None and high < 1e12:
        x = solve(high, x)
        if cone(x)[0] >= 0:
            best = x
        else:
            low, high = high, 4 * high
    if best is None:
        return None
    for _ in range(80):
        middle = 0.5 * (low + high)
        x = solve(middle, best)
        if cone(x)[0] >= 0:
            high, best = middle, x
        else:
            low = middle
        if high - low <= 1e-12 * high:
            break
    return problem.full(best)


_TIGHT = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 2000, "maxfun": 20_000}


def _run(clarabel: Any, P: Any, q: Any, A: Any, b: Any, cones: Any) -> NDArray[np.float64] | None:
    """Solve; ``None`` if proven infeasible.

    Raises:
        InconclusiveError: No try came to a conclusion.
    """
    status = "numbers that are not finite"
    if not all(np.isfinite(part).all() for part in (P, q, A, b)):
        raise InconclusiveError(f"the cone solver was given {status}; scale the features")
    for tolerance, equilibrate in TRIES:
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        settings.equilibrate_enable = equilibrate
        settings.max_threads = 1  # these are small; threads are for the caller's loop
        solution = clarabel.DefaultSolver(csc_array(P), q, csc_array(A), b, cones, settings).solve()
        status = str(solution.status)
        if status in ("PrimalInfeasible", "DualInfeasible"):
            return None
        almost = status in ("AlmostSolved", "InsufficientProgress") and max(solution.r_prim, solution.r_dual) < 1e-7
        if status == "Solved" or almost:
            return np.array(solution.x)
    raise InconclusiveError(f"the cone solver came to no conclusion ({status}); scale the features")
