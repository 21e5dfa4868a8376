"""The nearest certified row without bounds, exactly: two nested one-dimensional roots, O(d) an evaluation.

For a linear model, min ½‖x−x₀‖² subject to θᵀx + θ_b − s(x) ≥ 0, s(x)² = xᵀAx + 2aᵀx + a_b, is a projection onto a
convex set. With A = UΛUᵀ, stationary points in the coordinates of U are

    z(μ, ν) = (z₀ − ν a + μ θ) / (1 + ν Λ),    ν = μ / s(z).

For a fixed multiplier μ, z(μ) maximises the strongly concave μ·g₁(z) − ½‖z−z₀‖², so ν is unique; and g₁(z(μ)) never
falls as μ grows. Both roots are found by Newton steps kept inside a bracket. (Solving for μ at fixed ν instead looks
simpler and fails: that curve has a turning point.) The derivative of g₁(z(μ)) is ∇g₁ᵀ(I − μ∇²g₁)⁻¹∇g₁, where
−μ∇²g₁ = ν(Λ − qqᵀ/s²), q = Λz + a: diagonal plus rank one, so it costs O(d) too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from thrifty.solvers.ellice.geometry import Ellipsoid


@dataclass(frozen=True, eq=False)
class Projector:
    """What all persons with the same fixed features share: the eigendecomposition of A among the free ones.

    Attributes:
        free: Columns that may change; ``[d]``.
        root: √u of the free columns; ``[k]``.
        basis: U; ``[k, k]``.
        scales: Λ; ``[k]``.
        slope: θ of the wanted sign, in U's coordinates; ``[k]``.
        weights: The same on all columns, then the bias; ``[m]``.
        matrix: A = 2ε H⁻¹; ``[m, m]``.
        reach: θᵀA⁻¹θ of the free columns: above 1 some direction certifies any row in the end.
    """

    free: Bool[np.ndarray, " d"]
    root: Float[np.ndarray, " k"]
    basis: Float[np.ndarray, "k k"]
    scales: Float[np.ndarray, " k"]
    slope: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " m"]
    matrix: Float[np.ndarray, "m m"]
    reach: float

    @classmethod
    def build(
        cls, ellipsoid: Ellipsoid, sign: int, weights: Float[np.ndarray, " d"], frozen: Bool[np.ndarray, " d"]
    ) -> Projector:
        """Decompose once.

        Args:
            ellipsoid: Of a linear model, so that its rows are encoded rows.
            sign: +1 where class 1 is wanted, else −1.
            weights: u in the distance √Σ u(x−x₀)².
            frozen: Columns that keep their value.
        """
        shape = ellipsoid.shape()
        matrix = shape.T @ shape
        free = ~frozen
        root = np.sqrt(weights[free])
        scales, basis = np.linalg.eigh(matrix[:-1, :-1][np.ix_(free, free)] / np.outer(root, root))
        theta = sign * ellipsoid.theta
        slope = basis.T @ (theta[:-1][free] / root)
        with np.errstate(divide="ignore"):
            reach = float(np.sum(slope**2 / scales)) if ellipsoid.epsilon > 0 else np.inf
        return cls(free, root, basis, np.maximum(scales, 0.0), slope, theta, matrix, reach)

    def project(
        self, rows: Float[np.ndarray, "n d"], sign: int, threshold: float, margin: float
    ) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, " n"]]:
        """Return the nearest row certified with ``margin`` for each row, and whether there is one.

        Args:
            rows: Encoded rows.
            sign: As the projector was built for.
            threshold: Decision threshold, as a logit.
            margin: By how much the worst logit shall pass it.
        """
        free, fixed = self.free, ~self.free
        rest = np.column_stack([rows[:, fixed], np.ones(len(rows))])
        beside = np.append(fixed, True)
        lines = rest @ self.matrix[beside][:, :-1][:, free]
        a = (lines / self.root) @ self.basis
        constant = np.einsum("ni,ij,nj->n", rest, self.matrix[np.ix_(beside, beside)], rest)
        level = rest @ self.weights[beside] - sign * threshold - margin
        start = (rows[:, free] * self.root) @ self.basis
        feasible = self._attainable(a, constant, level)
        found = np.empty_like(start)
        _project_all(start, self.slope, a, self.scales, np.maximum(constant, 0.0), level, feasible, found)
        answer = rows.copy()
        answer[:, free] = np.where(feasible[:, None], (found @ self.basis.T) / self.root, np.nan)
        return answer, feasible

    def _attainable(
        self, a: NDArray[np.float64], constant: NDArray[np.float64], level: NDArray[np.float64]
    ) -> Bool[np.ndarray, " n"]:
        """Tell for which rows some z has g₁ ≥ 0: the supremum of g₁ is ∞, or θᵀc + level − √(κ(1−reach))."""
        if self.reach > 1 + 1e-12:
            return np.ones(len(a), bool)
        if not len(self.slope):
            return level - np.sqrt(np.maximum(constant, 0.0)) >= 0
        centre = -a / self.scales
        kappa = np.maximum(constant - np.sum(a**2 / self.scales, axis=1), 0.0)
        highest = centre @ self.slope + level - np.sqrt(kappa * max(0.0, 1 - self.reach))
        return np.asarray(highest > 1e-9)


@numba.njit(cache=True)
def _project_all(start, slope, a, scales, constant, level, feasible, found):  # type: ignore[no-untyped-def]
    for i in range(len(start)):
        if feasible[i]:
            _project(start[i], slope, a[i], scales, constant[i], level[i], found[i])


@numba.njit(cache=True)
def _project(z0, slope, a, scales, constant, level, z):  # type: ignore[no-untyped-def]
    """Write into ``z`` the projection of ``z0``."""
    z[:] = z0
    value, s = _value(z, slope, a, scales, constant, level)
    if value >= 0.0:
        return
    steepness = 0.0
    for j in range(len(z)):
        steepness += (slope[j] - (scales[j] * z[j] + a[j]) / max(s, 1e-300)) ** 2
    mu = -value / max(steepness, 1e-12)
    nu = mu / max(s, 1e-300)
    low, high = 0.0, np.inf
    for _ in range(200):
        nu, s = _inner(mu, nu, z0, slope, a, scales, constant, z)
        value, s = _value(z, slope, a, scales, constant, level)
        if value >= 0.0:
            high = mu
            if value <= 1e-13 * (1.0 + s):
                return
        else:
            low = mu
        step = mu - value / max(_rise(z, nu, s, slope, a, scales), 1e-300)
        # Aim a hair inside, so that the step that converges ends on the certified side.
        step *= 1.0 + 1e-15
        if high == np.inf:
            mu = min(max(step, 1.2 * mu), 100.0 * mu)
        elif low < step < high:
            mu = step
        else:
            mu = np.sqrt(low * high) if low > 0.0 and high > 4.0 * low else 0.5 * (low + high)
        if high < np.inf and high - low <= 1e-15 * high:
            break
    if high < np.inf:
        nu, s = _inner(high, nu, z0, slope, a, scales, constant, z)


@numba.njit(cache=True)
def _value(z, slope, a, scales, constant, level):  # type: ignore[no-untyped-def]
    """Return g₁ less the threshold, and s."""
    line, square = level, constant
    for j in range(len(z)):
        line += slope[j] * z[j]
        square += (scales[j] * z[j] + 2.0 * a[j]) * z[j]
    s = np.sqrt(max(square, 0.0))
    return line - s, s


@numba.njit(cache=True)
def _inner(mu, nu, z0, slope, a, scales, constant, z):  # type: ignore[no-untyped-def]
    """Solve ν s(z(μ, ν)) = μ for ν; leave z(μ, ν) in ``z``."""
    low, high = 0.0, np.inf
    s = 0.0
    for _ in range(200):
        square, fall = constant, 0.0
        for j in range(len(z)):
            shrink = 1.0 / (1.0 + nu * scales[j])
            z[j] = (z0[j] - nu * a[j] + mu * slope[j]) * shrink
            square += (scales[j] * z[j] + 2.0 * a[j]) * z[j]
            fall -= (scales[j] * z[j] + a[j]) ** 2 * shrink
        s = np.sqrt(max(square, 0.0))
        gap = nu * s - mu
        if abs(gap) <= 1e-15 * mu:
            break
        if gap > 0.0:
            high = nu
        else:
            low = nu
        tilt = s + nu * fall / max(s, 1e-300)
        step = nu - gap / tilt if tilt > 0.0 else -1.0
        if low < step < high:
            nu = step
        elif high == np.inf:
            nu = 2.0 * nu
        else:
            nu = 0.5 * (low + high)
        if high < np.inf and high - low <= 1e-16 * high:
            break
        if s == 0.0 and high == np.inf and nu > 1e300:
            break
    return nu, s


@numba.njit(cache=True)
def _rise(z, nu, s, slope, a, scales):  # type: ignore[no-untyped-def]
    """Return d g₁(z(μ)) / dμ by the Sherman-Morrison formula."""
    gg = gq = qq = 0.0
    for j in range(len(z)):
        q = scales[j] * z[j] + a[j]
        gradient = slope[j] - q / max(s, 1e-300)
        shrink = 1.0 / (1.0 + nu * scales[j])
        gg += gradient * gradient * shrink
        gq += gradient * q * shrink
        qq += q * q * shrink
    c = nu / max(s * s, 1e-300)
    return gg + c * gq * gq / max(1.0 - c * qq, 1e-12)
