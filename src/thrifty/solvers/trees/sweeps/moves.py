"""The best test in place of one cut: the kernel of every search for single changes.

Among moves that make equally few errors the choice is, in this order: the
lowest weighted Gini impurity of the leaves; the widest gap between the two values next to the threshold, as a share
of the feature's range; the nearest to the old threshold (a change of feature counts as far). ``secondary="margin"``
puts the gap before the impurity. What is still tied goes to the first feature, then the lowest threshold.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.ranks import MISSING
from thrifty.solvers.trees.sweeps.sweep import clear, fill_errors, fill_floors, fill_gini

Secondary = Literal["gini", "margin"]


class Move(NamedTuple):
    """One feature and threshold in place of a cut's own, with what they are ranked by."""

    error_change: float  # errors after minus errors before
    gini_change: float  # weighted Gini impurity of the leaves, after minus before
    gap: float  # between the values next to the threshold, as a share of the feature's range; 0 at an end
    distance: float  # from the old threshold, as a share of the range; inf on another feature or at an end
    feature: int  # -1: there is no improving move
    low: int  # rank of the largest value sent left here, -1 for none
    high: int  # rank of the smallest value sent right here, the domain size for none
    missing_left: bool


class Positions(NamedTuple):
    """Workspace of one sweep: an entry for each number of points on a side; float64 ``[n + 1]``."""

    error_left: NDArray[np.float64]
    error_right: NDArray[np.float64]
    gini_left: NDArray[np.float64]
    gini_right: NDArray[np.float64]


class Place(NamedTuple):
    """The cut that is swept."""

    feature: int
    threshold: float
    missing_left: bool
    turns_missing: bool
    first_leaf: int  # leaves under its left child are first_leaf .. middle_leaf - 1,
    middle_leaf: int  # those under its right child middle_leaf .. last_leaf - 1
    last_leaf: int
    errors: float  # under it, now
    gini: float


class Domain(NamedTuple):
    """Distinct values of all features in one array: those of feature j are ``values[offset[j]:offset[j + 1]]``."""

    values: NDArray[np.float64]
    offset: NDArray[np.int64]


class Ranking(NamedTuple):
    """How moves are compared."""

    tolerance: float  # of errors
    gini_tolerance: float
    margin_first: bool


@njit(cache=True, nogil=True)
def is_better(a, b, ranking):  # type: ignore[no-untyped-def]
    """Whether move ``a`` comes before move ``b``; both are `Move` tuples."""
    if abs(a[0] - b[0]) > ranking.tolerance:
        return a[0] < b[0]
    if ranking.margin_first and abs(a[2] - b[2]) > 1e-12:
        return a[2] > b[2]
    if abs(a[1] - b[1]) > ranking.gini_tolerance:
        return a[1] < b[1]
    if abs(a[2] - b[2]) > 1e-12:
        return a[2] > b[2]
    return a[3] < b[3]


@njit(cache=True, nogil=True)
def best_move(order, low, high, features, place, points, domain, leaf_left, leaf_right, leaves, floors, work, ranking):  # type: ignore[no-untyped-def]
    """The best improving test at one cut, over the given features.

    Args:
        order: Points by rank, those at the cut in ``order[j, low:high]`` for each feature j; int32 ``[d, n]``.
        low: See ``order``.
        high: See ``order``.
        features: Features to try; int64.
        place: The cut.
        points: All points.
        domain: All distinct values.
        leaf_left: Leaf of each point at the cut if sent left; ``[n]``.
        leaf_right: Leaf of each point at the cut if sent right; ``[n]``.
        leaves: Workspace.
        floors: What each leaf must hold.
        work: Workspace.
        ranking: How to choose among moves.

    Returns:
        A `Move` as a plain tuple; feature -1 if none makes fewer errors.
    """
    best = (0.0, 0.0, 0.0, np.inf, np.int64(-1), np.int64(-1), np.int64(-1), False)
    for j in features:
        here = order[j, low:high]
        ranks = points.ranks[j]
        m = len(here)
        while m > 0 and ranks[here[m - 1]] == MISSING:
            m -= 1
        n_missing = len(here) - m
        for turn in range(2 if n_missing > 0 and place.turns_missing else 1):
            missing_left = place.missing_left != (turn == 1)
            first, last = fill_both(
                here, m, n_missing, missing_left, False, place, points, leaf_left, leaf_right, leaves, floors, work
            )
            lowest = np.inf
            for p in range(first, last + 1):
                if p in (0, m) or ranks[here[p - 1]] != ranks[here[p]]:
                    lowest = min(lowest, work.error_left[p] + work.error_right[m - p])
            change = lowest - place.errors
            if not change < -ranking.tolerance or change > best[0] + ranking.tolerance:
                continue
            fill_both(
                here, m, n_missing, missing_left, True, place, points, leaf_left, leaf_right, leaves, floors, work
            )
            values = domain.values[domain.offset[j] : domain.offset[j + 1]]
            span = values[-1] - values[0] if len(values) > 1 else 1.0
            for p in range(first, last + 1):
                if not (p in (0, m) or ranks[here[p - 1]] != ranks[here[p]]):
                    continue
                error = work.error_left[p] + work.error_right[m - p]
                if error > lowest + ranking.tolerance:
                    continue
                below = np.int64(-1) if p == 0 else np.int64(ranks[here[p - 1]])
                above = np.int64(len(values)) if p == m else np.int64(ranks[here[p]])
                gap, distance = 0.0, np.inf
                if p > 0 and p < m:
                    gap = (values[above] - values[below]) / span
                    if j == place.feature:
                        distance = abs(values[below] / 2 + values[above] / 2 - place.threshold) / span
                side = missing_left
                if n_missing == 0 and j != place.feature:
                    side = 2 * p > m  # as scikit-learn: missing values follow the larger side
                gini = work.gini_left[p] + work.gini_right[m - p]
                move = (error - place.errors, gini - place.gini, gap, distance, np.int64(j), below, above, side)
                if best[4] < 0 or is_better(move, best, ranking):
                    best = move
    return best


@njit(cache=True, nogil=True)
def fill_both(here, m, n_missing, missing_left, gini, place, points, leaf_left, leaf_right, leaves, floors, work):  # type: ignore[no-untyped-def]
    """Sweep both sides, for the errors or for the impurity, the missing values already on one of them.

    Returns:
        The first and the last number of points on the left at which all floors are met (for the errors only).
    """
    clear(leaves, place.first_leaf, place.last_leaf)
    for on_left in (True, False):
        leaf = leaf_left if on_left else leaf_right
        begin, step = (0, 1) if on_left else (m - 1, -1)
        if gini:
            totals = work.gini_left if on_left else work.gini_right
            totals[0] = 0.0
            if n_missing > 0 and missing_left == on_left:
                fill_gini(here, m, 1, n_missing, leaf, points.y, points.weight, leaves, totals)
                totals[0] = totals[n_missing]
            fill_gini(here, begin, step, m, leaf, points.y, points.weight, leaves, totals)
        else:
            totals = work.error_left if on_left else work.error_right
            totals[0] = 0.0
            if n_missing > 0 and missing_left == on_left:
                fill_errors(here, m, 1, n_missing, leaf, points.y, points.weight, leaves, totals)
                totals[0] = totals[n_missing]
                for i in range(m, m + n_missing):
                    leaves.n_rows[leaf[here[i]]] += points.n_rows[here[i]]
                    leaves.weight[leaf[here[i]]] += points.weight[here[i]]
            fill_errors(here, begin, step, m, leaf, points.y, points.weight, leaves, totals)
    if gini:
        return 0, m
    first = fill_floors(
        here, 0, 1, m, leaf_left, points.n_rows, points.weight, leaves, floors, place.first_leaf, place.middle_leaf
    )
    last = m - fill_floors(
        here, m - 1, -1, m, leaf_right, points.n_rows, points.weight, leaves, floors, place.middle_leaf, place.last_leaf
    )
    return first, last
