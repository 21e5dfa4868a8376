"""The objective whose near-optimal models are meant, its Hessian and its minimiser.

With rows x̃ = [h(x); 1] (the bias is a parameter like the others, and last) and labels in {0, 1}:

    L̂(θ) = (1/n) Σ log(1 + exp(−y± θᵀx̃)) + (λ/2) ‖θ‖²,        H = (1/n) Σ w x̃ x̃ᵀ + λ I,   w = σ(1 − σ).

The paper (arXiv 2602.07674, section 3) prints XᵀWX + λI without 1/n although its loss is a mean. With 1/n, as here and
in the authors' code, the tolerance ε is in units of the mean loss.

Every sum over rows goes through a ``total``, which adds it up over the processes that hold a part of the table each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

Theta = Float[np.ndarray, " m"]
Rows = Float[np.ndarray, "n m"]

#: Adds an array up over all processes; see :func:`thrifty.solvers.ellice.processes.over_processes`.
Total = Callable[[NDArray[np.float64]], NDArray[np.float64]]

#: Rows whose curvature is summed up in one go, so that the memory needed does not grow with the table.
CHUNK = 65_536


def with_constant(features: Float[np.ndarray, "n p"]) -> Rows:
    """Append the constant 1 to every row: x̃ = [h(x); 1]."""
    return np.column_stack([features, np.ones(len(features))])


def alone(part: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a sum as it is: one process holds all rows."""
    return part


def mean_log_loss(theta: Theta, rows: Rows, y: NDArray, total: Total = alone) -> float:
    """Mean logistic loss of ``theta`` on rows x̃ with labels in {0, 1}, in nats."""
    losses = np.logaddexp(0.0, np.where(y == 1, -1.0, 1.0) * (rows @ theta))
    loss, n = total(np.array([losses.sum(), float(len(rows))]))
    return float(loss / n)


def objective(theta: Theta, rows: Rows, y: NDArray, l2: float, total: Total = alone) -> float:
    """Return L̂(θ): mean logistic loss plus (λ/2)‖θ‖², the bias included."""
    return mean_log_loss(theta, rows, y, total) + 0.5 * l2 * float(theta @ theta)


def slope(theta: Theta, rows: Rows, y: NDArray, l2: float, total: Total = alone) -> Theta:
    """Return the gradient of L̂, ``[m]``."""
    part = total(np.append(rows.T @ (expit(rows @ theta) - (y == 1)), float(len(rows))))
    gradient: Theta = part[:-1] / part[-1] + l2 * theta
    return gradient


def curvature(logits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return σ(1 − σ) of every row."""
    weights: NDArray[np.float64] = expit(logits) * expit(-logits)
    return weights


def hessian(theta: Theta, rows: Rows, l2: float, total: Total = alone) -> Float[np.ndarray, "m m"]:
    """Return H = (1/n) Σ w x̃ x̃ᵀ + λ I, float64, summed chunk by chunk."""
    m = rows.shape[1]
    part = np.zeros((m, m))
    for start in range(0, len(rows), CHUNK):
        piece = rows[start : start + CHUNK]
        half = piece * np.sqrt(curvature(piece @ theta))[:, None]
        part += half.T @ half
    n = float(total(np.array([float(len(rows))]))[0])
    found: NDArray[np.float64] = total(part) / n + l2 * np.eye(m)
    return found


def minimise(rows: Rows, y: NDArray, l2: float, *, start: Theta | None = None, total: Total = alone) -> Theta:
    """Minimise L̂ by damped Newton steps.

    scikit-learn's ``LogisticRegression`` cannot do this, since it leaves the intercept out of the penalty.

    Args:
        rows: x̃, ``[n, m]``.
        y: Labels in {0, 1}, ``[n]``.
        l2: λ > 0.
        start: Where to begin; zeros by default.
        total: Adds sums up over processes.

    Returns:
        θ̂, ``[m]``, with a gradient below 1e-10.
    """
    theta = np.zeros(rows.shape[1]) if start is None else np.array(start, dtype=float)
    now = objective(theta, rows, y, l2, total)
    for _ in range(200):
        gradient = slope(theta, rows, y, l2, total)
        if np.abs(gradient).max() < 1e-10:
            break
        step = cho_solve(cho_factor(hessian(theta, rows, l2, total)), gradient)
        fall, length = float(gradient @ step), 1.0
        while (there := objective(theta - length * step, rows, y, l2, total)) > now - 1e-4 * length * fall:
            if length < 1e-10:
                break
            length /= 2
        theta, now = theta - length * step, there
    return theta
