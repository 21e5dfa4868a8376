"""The plain rival: walk along the weights of a linear model until its logit is well past the threshold."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.logistic import with_constant

Rows = Float[np.ndarray, "n d"]


def margin(rows: Rows, theta: Float[np.ndarray, " m"], tau: float) -> Rows:
    """Return the nearest rows whose nominal logit is at least ``tau``."""
    weights = theta[:-1]
    short = np.maximum(0.0, tau - (rows @ weights + theta[-1]))
    moved: NDArray[np.float64] = rows + np.outer(short / (weights @ weights), weights)
    return moved


def margin_until_certified(rows: Rows, ellipsoid: Ellipsoid, ceiling: float = 1e4) -> Rows:
    """Walk every row along the weights until the ellipsoid certifies it for class 1 (NaN where it never does)."""
    way = ellipsoid.theta[:-1] / np.linalg.norm(ellipsoid.theta[:-1])
    low, high = np.zeros(len(rows)), np.full(len(rows), ceiling)

    def fine(at: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.asarray(ellipsoid.robust(with_constant(rows + at[:, None] * way), 1) >= 0)

    never = ~fine(high)
    for _ in range(100):  # g₁ is concave along a line, so from the person on it passes 0 once
        middle = 0.5 * (low + high)
        good = fine(middle)
        low, high = np.where(good, low, middle), np.where(good, middle, high)
    found: NDArray[np.float64] = rows + high[:, None] * way
    found[never] = np.nan
    return found
