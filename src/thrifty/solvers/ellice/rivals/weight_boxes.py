"""Rivals that fear any change of at most δ in every single weight and bias: Δ-robust neighbours, and PROPLACE.

For a linear model the worst logit over that box is wᵀx + b − δ(‖x‖₁ + 1). With one hidden ReLU layer it is known too:
the weights into different hidden units are apart, so every unit can be at the worse end of its own interval.

References: Jiang, Leofante, Rago, Toni, AAAI 2023 (Δ-robustness); Jiang, Lan, Leofante, Rago, Toni, ACML 2023
(PROPLACE).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

Rows = Float[np.ndarray, "n d"]
#: (weights [outputs, inputs], biases [outputs]) of one layer, or of two with a ReLU between them; one output at last.
Layers = Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]


def worst_logit_in_box(rows: Rows, layers: Layers, delta: float) -> Float[np.ndarray, " n"]:
    """Return the lowest logit over all models whose weights and biases each differ by at most ``delta``.

    Raises:
        ValueError: There are more than two layers.
    """
    if len(layers) > 2:
        raise ValueError(
            f"layers: expected one or two, for which the worst model is known in closed form, got {len(layers)}"
        )
    low = high = rows
    if len(layers) == 2:
        weights, biases = layers[0]
        middle = rows @ weights.T + biases
        width = delta * (np.abs(rows).sum(axis=1, keepdims=True) + 1)
        low, high = np.maximum(middle - width, 0.0), np.maximum(middle + width, 0.0)
    weights, biases = layers[-1]
    if len(layers) == 1:
        found: NDArray[np.float64] = rows @ weights[0] + biases[0] - delta * (np.abs(rows).sum(axis=1) + 1)
        return found
    worse = weights[0] - delta
    units: NDArray[np.float64] = np.where(worse >= 0, low * worse, high * worse).sum(axis=1)
    return np.asarray(units + biases[0] - delta)


def robust_neighbours(rows: Rows, pool: Rows, layers: Layers, delta: float, *, halvings: int = 30) -> Rows:
    """Return, for every row, the Δ-robust point nearest on the way to its nearest Δ-robust row of a table (RNCE).

    Args:
        rows: Whom to answer.
        pool: The table.
        layers: The model.
        delta: δ.
        halvings: Of the way; 0 gives the table's rows themselves.
    """
    robust = pool[worst_logit_in_box(pool, layers, delta) >= 0]
    if not len(robust):
        return np.full_like(rows, np.nan)
    found: NDArray[np.float64] = robust[cdist(rows, robust).argmin(axis=1)]
    low, high = np.zeros(len(rows)), np.ones(len(rows))
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        fine = worst_logit_in_box(rows + middle[:, None] * (found - rows), layers, delta) >= 0
        low, high = np.where(fine, low, middle), np.where(fine, middle, high)
    walked: NDArray[np.float64] = rows + high[:, None] * (found - rows)
    return walked if halvings else found


def proplace(rows: Rows, pool: Rows, theta: Float[np.ndarray, " m"], delta: float, *, k: int = 10) -> Rows:
    """PROPLACE for a linear model: the Δ-robust point nearest in L1 within the hull of the person and of neighbours.

    The neighbours are the ``k`` nearest Δ-robust rows of a table. The published method alternates two mixed-integer
    programmes; for a linear model the worst weights are known, and one linear programme is left:

        min Σ u   s.t.   x = Σ λᵢ cᵢ,  Σ λᵢ = 1,  u ≥ ±(x − x₀),  x = p − q,  wᵀx + b − δ(Σ(p + q) + 1) ≥ 0.
    """
    d = rows.shape[1]
    layers = [(theta[None, :-1], theta[-1:])]
    robust = pool[worst_logit_in_box(pool, layers, delta) >= 0]
    found = np.full_like(rows, np.nan)
    if not len(robust):
        return found
    eye = np.eye(d)
    for i, (row, near) in enumerate(zip(rows, np.argsort(cdist(rows, robust), axis=1)[:, :k], strict=True)):
        corners = np.vstack([row, robust[near]])
        n = len(corners)
        # The variables: λ [n], u [d], p [d], q [d]; all of them at least 0.
        made = linprog(
            np.concatenate([np.zeros(n), np.ones(d), np.zeros(2 * d)]),
            A_ub=np.vstack(
                [
                    np.hstack([corners.T, -eye, 0 * eye, 0 * eye]),
                    np.hstack([-corners.T, -eye, 0 * eye, 0 * eye]),
                    np.concatenate([-(corners @ theta[:-1]), np.zeros(d), np.full(2 * d, delta)])[None],
                ]
            ),
            b_ub=np.concatenate([row, -row, [theta[-1] - delta]]),
            A_eq=np.vstack(
                [
                    np.concatenate([np.ones(n), np.zeros(3 * d)])[None],
                    np.hstack([corners.T, 0 * eye, -eye, eye]),
                ]
            ),
            b_eq=np.concatenate([[1.0], np.zeros(d)]),
        )
        if made.status == 0:
            found[i] = made.x[:n] @ corners
    return found
