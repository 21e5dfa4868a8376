"""The true Rashomon set of a linear model, with no ellipsoid and no sampling at all.

min θᵀx̃ subject to L̂(θ) ≤ bound is convex. θ(τ) = argmin L̂(θ) + τ θᵀx̃ is found by Newton steps; its objective rises
with τ at the rate τ x̃ᵀH(θ)⁻¹x̃, so the τ at which it meets the bound is found by Newton steps too, within a bracket.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from thrifty.solvers.ellice.logistic import Rows, Theta, curvature, objective


def true_worst_logit(
    rows: Rows, sign: int, training: Rows, y: NDArray, l2: float, bound: float, start: Theta
) -> Float[np.ndarray, " n"]:
    """Return, for every row x̃, the logit under the worst linear model whose objective is at most ``bound``.

    Args:
        rows: The rows to check; ``[n, m]``.
        sign: +1: the lowest logit (class 1 is wanted); −1: the highest.
        training: Training rows x̃.
        y: Their labels in {0, 1}.
        l2: λ > 0.
        bound: Largest objective of a model in the set.
        start: A model in the set, for instance the fitted one.

    Raises:
        ValueError: ``start`` is not in the set.
    """
    if objective(start, training, y, l2) > bound + 1e-12:
        raise ValueError(f"start: expected weights of an objective up to bound={bound:.6g}, got a larger one")
    return np.array([worst_true_model(row, sign, training, y, l2, bound, start) @ row for row in rows])


def worst_true_model(row: Theta, sign: int, training: Rows, y: NDArray, l2: float, bound: float, start: Theta) -> Theta:
    """Return the model of the true Rashomon set that is worst for a row x̃ (arguments as above)."""
    return _worst(sign * row, training, y, l2, bound, start)


def _worst(row: Theta, training: Rows, y: NDArray, l2: float, bound: float, start: Theta) -> Theta:
    theta, factor = _tilted(0.0, row, training, y, l2, start)
    gap = bound - objective(theta, training, y, l2)
    if gap <= 1e-14:
        return start
    low, high = 0.0, np.inf
    tau = float(np.sqrt(2 * gap / (row @ cho_solve(factor, row))))  # exact if the objective were quadratic
    theta = theta - tau * cho_solve(factor, row)
    best = start
    for _ in range(60):
        theta, factor = _tilted(tau, row, training, y, l2, theta)
        excess = objective(theta, training, y, l2) - bound
        if excess <= 0:
            low, best = tau, theta
        else:
            high = tau
        if abs(excess) <= 1e-12 * (1 + bound) or (high < np.inf and high - low <= 1e-12 * high):
            break
        turned = cho_solve(factor, row)
        step = tau - excess / (tau * float(row @ turned))
        if not low < step < high:
            step = 2 * tau if high == np.inf else 0.5 * (low + high)
        theta = theta - (step - tau) * turned
        tau = step
    return theta if abs(objective(theta, training, y, l2) - bound) <= 1e-11 * (1 + bound) else best


def _tilted(tau: float, row: Theta, training: Rows, y: NDArray, l2: float, theta: Theta) -> tuple[Theta, tuple]:
    """Minimise L̂(θ) + τ θᵀx̃ by damped Newton steps; return the Hessian's factor with it."""
    n = len(training)
    signs = np.where(y == 1, -1.0, 1.0)

    def value(at: Theta) -> float:
        return float(np.logaddexp(0.0, signs * (training @ at)).mean() + 0.5 * l2 * at @ at + tau * at @ row)

    for _ in range(100):
        logits = training @ theta
        gradient = training.T @ (expit(logits) - (y == 1)) / n + l2 * theta + tau * row
        bend = (training.T * (curvature(logits) / n)) @ training + l2 * np.eye(len(theta))
        factor = cho_factor(bend)
        step = cho_solve(factor, gradient)
        fall = float(gradient @ step)
        if fall < 1e-20:
            break
        length, now = 1.0, value(theta)
        while value(theta - length * step) > now - 1e-4 * length * fall + 1e-15 and length > 1e-8:
            length /= 2
        theta = theta - length * step
    return theta, factor
