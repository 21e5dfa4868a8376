"""A minimum over features that is evaluated only where it may matter.

F(S), the fewest errors at a cut once it is changed in the best way, is the minimum of f_j(S) over the features j that
it may get. Along a sequence of growing (or shrinking) sets every f_j is monotone and changes by at most the weight of
the points that join (or leave), so one evaluation bounds f_j for all other sets of the sequence. Sets and features
are evaluated one pair at a time, always the one with the lowest bound; a feature that is far from the best at one set
is so at its neighbours, and is not looked at there again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class Lazy(NamedTuple):
    """Bounds along one sequence of sets."""

    bound: NDArray[np.float64]  # [n + 1, d], a lower bound on f_j of each set; f_j itself where that is evaluated
    is_open: NDArray[np.bool_]  # [n + 1, d], whether it is not
    least: NDArray[np.float64]  # [n + 1], least bound at each set
    least_at: NDArray[np.int64]  # [n + 1], feature of that
    least_open: NDArray[np.float64]  # [n + 1], the same among the features not evaluated, inf if all are
    open_at: NDArray[np.int64]  # [n + 1], feature of that, -1 if all are
    whole: NDArray[np.float64]  # [d], f_j of all the points that come into question, -inf where that is not known


def empty_lazy(d: int, n: int) -> Lazy:
    """Buffers for ``d`` features and sets of at most ``n`` points."""
    return Lazy(
        bound=np.empty((n + 1, d)),
        is_open=np.empty((n + 1, d), dtype=np.bool_),
        least=np.empty(n + 1),
        least_at=np.empty(n + 1, dtype=np.int64),
        least_open=np.empty(n + 1),
        open_at=np.empty(n + 1, dtype=np.int64),
        whole=np.full(d, -np.inf),
    )


@njit(cache=True, nogil=True)
def start_bounds(n_sets, features, lower, absent, sign, total, lazy):  # type: ignore[no-untyped-def]
    """Begin a sequence of sets.

    Args:
        n_sets: Sets.
        features: Features to minimise over, at least one; bool ``[d]``.
        lower: Bounds for every feature, monotone and changing by no more than the weight; ``[>= n_sets]``.
        absent: With ``sign`` and ``total``: ``total + sign * absent`` is the weight of the points not in each set.
        sign: See ``absent``.
        total: See ``absent``.
        lazy: Written, but for ``whole``, which is read.
    """
    least, least_at, least_open, open_at = lazy.least, lazy.least_at, lazy.least_open, lazy.open_at
    bound, is_open, whole = lazy.bound, lazy.is_open, lazy.whole
    for i in range(n_sets):
        low, at, missing = np.inf, -1, total + sign * absent[i]
        for j in range(len(features)):
            if features[j]:
                bound[i, j] = max(lower[i], whole[j] - missing)
                is_open[i, j] = True
                if bound[i, j] < low:
                    low, at = bound[i, j], j
        least[i], least_at[i] = low, at
        least_open[i], open_at[i] = low, at


@njit(cache=True, nogil=True)
def close(i, j, errors, n_sets, step, features, weight, lazy):  # type: ignore[no-untyped-def]
    """Enter f_j of set ``i``.

    The bounds of a feature stay monotone and never change by more than the weight, so on either side of ``i`` the
    first that is not raised ends it.

    Args:
        i: Set.
        j: Feature.
        errors: f_j of the set.
        n_sets: Sets.
        step: 1 if the sets grow with their number, -1 if they shrink.
        features: Features minimised over; bool ``[d]``.
        weight: Weight of each set, or that of all others less it; ``[>= n_sets]``.
        lazy: Updated.
    """
    bound, least_at, open_at = lazy.bound, lazy.least_at, lazy.open_at
    lazy.is_open[i, j] = False
    bound[i, j] = max(bound[i, j], errors)
    _refresh(i, features, lazy)
    t = i + step
    while 0 <= t < n_sets and bound[t, j] < errors:
        bound[t, j] = errors
        if open_at[t] == j or least_at[t] == j:
            _refresh(t, features, lazy)
        t += step
    t = i - step
    while 0 <= t < n_sets and bound[t, j] < errors - abs(weight[i] - weight[t]):
        bound[t, j] = errors - abs(weight[i] - weight[t])
        if open_at[t] == j or least_at[t] == j:
            _refresh(t, features, lazy)
        t -= step


@njit(cache=True, nogil=True)
def _refresh(i, features, lazy):  # type: ignore[no-untyped-def]
    """Find the least bounds at set ``i`` anew."""
    bound, is_open = lazy.bound, lazy.is_open
    least, least_at, least_open, open_at = np.inf, -1, np.inf, -1
    for j in range(len(features)):
        if features[j]:
            here = bound[i, j]
            if here < least:
                least, least_at = here, j
            if is_open[i, j] and here < least_open:
                least_open, open_at = here, j
    lazy.least[i], lazy.least_at[i] = least, least_at
    lazy.least_open[i], lazy.open_at[i] = least_open, open_at
