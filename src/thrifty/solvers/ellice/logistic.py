"""The objective whose near-optimal models are meant, its Hessian and its minimiser.

With rows x̃ = [h(x); 1] (the bias is a parameter like the others, and last) and labels in {0, 1}:

    L̂(θ) = (1/n) Σ log(1 + exp(−y± θᵀx̃)) + (λ/2) ‖θ‖²,        H = (1/n) Σ w x̃ x̃ᵀ + λ I,   w = σ(1 − σ).

The paper (arXiv 2602.07674, section 3) prints XᵀWX + λI without 1/n although its loss is a mean. With 1/n, as here and
in the authors' code, the tolerance ε is in units of the mean loss.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

Theta = Float[np.ndarray, " m"]
Rows = Float[np.ndarray, "n m"]

#: Rows whose curvature is summed up in one go, so that the memory needed does not grow with the table.
CHUNK = 65_536


def with_constant(features: Float[np.ndarray, "n p"]) -> Rows:
    """Append the constant 1 to every row: x̃ = [h(x); 1]."""
    return np.column_stack([features, np.ones(len(features))])


def mean_log_loss(theta: Theta, rows: Rows, y: NDArray) -> float:
    """Mean logistic loss of ``theta`` on rows x̃ with labels in {0, 1}, in nats."""
    logits = rows @ theta
    return float(np.logaddexp(0.0, np.where(y == 1, -logits, logits)).mean())


def objective(theta: Theta, rows: Rows, y: NDArray, l2: float) -> float:
    """Return L̂(θ): mean logistic loss plus (λ/2)‖θ‖², the bias included."""
    return mean_log_loss(theta, rows, y) + 0.5 * l2 * float(theta @ theta)


def curvature(logits: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return σ(1 − σ) of every row."""
    weights: NDArray[np.float64] = expit(logits) * expit(-logits)
    return weights


def hessian(theta: Theta, rows: Rows, l2: float) -> Float[np.ndarray, "m m"]:
    """Return H = (1/n) Σ w x̃ x̃ᵀ + λ I, float64, summed chunk by chunk."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), CHUNK):
        piece = rows[start : start + CHUNK]
        half = piece * np.sqrt(curvature(piece @ theta))[:, None]
        total += half.T @ half
    return total / len(rows) + l2 * np.eye(rows.shape[1])


def minimise(
    rows: Rows, y: NDArray, l2: float, *, start: Theta | None = None, sample_weight: NDArray | None = None
) -> Theta:
    """Minimise L̂ by damped Newton steps.

    scikit-learn's ``LogisticRegression`` cannot do this, since it leaves the intercept out of the penalty.

    Args:
        rows: x̃, ``[n, m]``.
        y: Labels in {0, 1}, ``[n]``.
        l2: λ > 0.
        start: Where to begin; zeros by default.
        sample_weight: Weights of the rows' losses, scaled to mean 1; all equal by default.

    Returns:
        θ̂, ``[m]``, with a gradient below 1e-10.
    """
    theta = np.zeros(rows.shape[1]) if start is None else np.array(start, dtype=float)
    share = np.full(len(rows), 1.0 / len(rows)) if sample_weight is None else sample_weight / sample_weight.sum()
    signs = np.where(y == 1, -1.0, 1.0)

    def value(at: Theta) -> float:
        return float(share @ np.logaddexp(0.0, signs * (rows @ at)) + 0.5 * l2 * at @ at)

    now = value(theta)
    for _ in range(200):
        logits = rows @ theta
        gradient = rows.T @ (share * (expit(logits) - (y == 1))) + l2 * theta
        if np.abs(gradient).max() < 1e-10:
            break
        bend = rows.T @ (rows * (share * curvature(logits))[:, None]) + l2 * np.eye(rows.shape[1])
        step = cho_solve(cho_factor(bend), gradient)
        length = 1.0
        while value(theta - length * step) > now - 1e-4 * length * float(gradient @ step) and length > 1e-10:
            length /= 2
        theta = theta - length * step
        now = value(theta)
    return theta
