"""Forecasts without a network, of each node by itself: what any model has to beat.

All take the target's history (snapshot, node), NaN where nothing was observed, and forecast the snapshots asked for
from those before them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int


def filled(y: Float[np.ndarray, "snapshot node"], train: Int[np.ndarray, " n"]) -> Float[np.ndarray, "snapshot node"]:
    """Return the last known value of each node up to each snapshot; before the first, its median in training.

    Args:
        y: The history.
        train: Training snapshots.
    """
    out, held = np.empty_like(y), medians(y, train)
    for t, row in enumerate(y):
        held = np.where(np.isfinite(row), row, held)
        out[t] = held
    return out


def medians(y: Float[np.ndarray, "snapshot node"], train: Int[np.ndarray, " n"]) -> Float[np.ndarray, " node"]:
    """Return each node's median over training snapshots; of a node never observed, that of all.

    Args:
        y: The history.
        train: Training snapshots.
    """
    known = y[train]
    overall = float(np.nanmedian(known))
    seen = np.isfinite(known).any(0)
    return np.array([np.nanmedian(known[:, i]) if seen[i] else overall for i in range(y.shape[1])])


def persistence(y: Float[np.ndarray, "snapshot node"], targets: Int[np.ndarray, " t"], train: Int[np.ndarray, " n"]
                ) -> Float[np.ndarray, "t node"]:  # fmt: skip
    """Forecast the last known value.

    Args:
        y: The history.
        targets: Snapshots to forecast.
        train: Training snapshots.
    """
    found: Float[np.ndarray, "t node"] = filled(y, train)[np.asarray(targets) - 1]
    return found


def seasonal(y: Float[np.ndarray, "snapshot node"], targets: Int[np.ndarray, " t"], train: Int[np.ndarray, " n"],
             period: int = 7) -> Float[np.ndarray, "t node"]:  # fmt: skip
    """Forecast the last known value of a period ago, for instance of the same weekday.

    Args:
        y: The history.
        targets: Snapshots to forecast.
        train: Training snapshots.
        period: Snapshots of a period.
    """
    found: Float[np.ndarray, "t node"] = filled(y, train)[np.asarray(targets) - period]
    return found


def per_node_median(y: Float[np.ndarray, "snapshot node"], targets: Int[np.ndarray, " t"], train: Int[np.ndarray, " n"]
                    ) -> Float[np.ndarray, "t node"]:  # fmt: skip
    """Forecast each node's median in training.

    Args:
        y: The history.
        targets: Snapshots to forecast.
        train: Training snapshots.
    """
    return np.tile(medians(y, train), (len(targets), 1))


def yesterday(y: Float[np.ndarray, "snapshot node"], targets: Int[np.ndarray, " t"], train: Int[np.ndarray, " n"]
              ) -> Float[np.ndarray, "t node"]:  # fmt: skip
    """Forecast the mean over nodes of the snapshot before.

    Args:
        y: The history.
        targets: Snapshots to forecast.
        train: Training snapshots.
    """
    means = np.nanmean(y[np.asarray(targets) - 1], 1, keepdims=True)
    return np.tile(means, (1, y.shape[1]))


def ridge(y: Float[np.ndarray, "snapshot node"], targets: Int[np.ndarray, " t"], train: Int[np.ndarray, " n"],
          validation: Int[np.ndarray, " v"], lags: int = 7, alphas: Sequence[float] = (1, 10, 100, 1e3, 1e4, 1e5)
          ) -> Float[np.ndarray, "t node"]:  # fmt: skip
    """Forecast by one ridge regression on a node's own lags and its median; its penalty is chosen on validation.

    Args:
        y: The history.
        targets: Snapshots to forecast.
        train: Training snapshots, each with ``lags`` before it.
        validation: Snapshots by whose mean absolute error the penalty is chosen.
        lags: Snapshots before a target that are read.
        alphas: Penalties to choose from.
    """
    from sklearn.linear_model import Ridge

    held, middle = filled(y, train), medians(y, train)

    def rows(snapshots: Int[np.ndarray, " t"]) -> Float[np.ndarray, "row feature"]:
        lagged = np.stack([held[np.asarray(snapshots) - k] for k in range(1, lags + 1)], -1)
        own = np.broadcast_to(middle[None, :, None], (*lagged.shape[:2], 1))
        return np.concatenate([lagged, own], -1).reshape(-1, lags + 1)

    X, known = rows(train), np.isfinite(y[train]).ravel()
    best, found = np.inf, np.empty(0)
    for alpha in alphas:
        model = Ridge(alpha).fit(X[known], y[train].ravel()[known])
        guess = model.predict(rows(validation)).reshape(len(validation), -1)
        error = float(np.nanmean(np.abs(guess - y[validation])))
        if error < best:
            best, found = error, model.predict(rows(targets)).reshape(len(targets), -1)
    return found
