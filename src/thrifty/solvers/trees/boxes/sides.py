"""Both sides of every threshold of one feature, read off one sweep over the points of a box.

With the subtrees as they stand each point has one leaf if it is sent left and one if it is sent right. Running sums in
the order of the feature then give, for each number of points on the left: the errors of both sides, what nothing can
avoid, rows, weight, and the keys of the two sets (`boxes`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.sweeps.sweep import clear, fill_errors, fill_floors

SORT_STEP = 2.0
"""Steps of reading one point of all that one comparison of a sort takes, about."""


class SideSums(NamedTuple):
    """Workspace: sums over the first points of a sweep, an entry for each number of points on a side."""

    errors: NDArray[np.float64]  # [2, n + 1], by the subtrees as they stand
    merged: NDArray[np.float64]  # [2, n + 1], in a single leaf
    unavoidable: NDArray[np.float64]  # [n + 1], of the points on the left, as all that follow
    rows: NDArray[np.int64]  # [n + 1]
    weight: NDArray[np.float64]  # [n + 1]
    key: NDArray[np.uint64]  # [2, n + 1]
    leaf: NDArray[np.int32]  # [n], zeros: a single leaf


def empty_sums(n_points: int) -> SideSums:
    """Workspace for boxes of up to ``n_points`` points."""
    n = n_points + 1
    return SideSums(
        errors=np.zeros((2, n)),
        merged=np.zeros((2, n)),
        unavoidable=np.zeros(n),
        rows=np.zeros(n, dtype=np.int64),
        weight=np.zeros(n),
        key=np.zeros((2, n), dtype=np.uint64),
        leaf=np.zeros(n_points, dtype=np.int32),
    )


@njit(cache=True, nogil=True)
def in_order(points, place, order):  # type: ignore[no-untyped-def]
    """``points`` by rank, missing last; sorted alone if they are few, else read off the order of all points.

    Args:
        points: Point numbers.
        place: Place of every point in ``order``.
        order: All points by rank.
    """
    n, m = len(order), len(points)
    if m * np.log2(m + 1) * SORT_STEP < n:
        return order[np.sort(place[points])]
    inside = np.zeros(n, dtype=np.bool_)
    inside[points] = True
    ordered = np.empty(m, dtype=np.int32)
    count = 0
    for e in order:
        if inside[e]:
            ordered[count] = e
            count += 1
    return ordered


@njit(cache=True, nogil=True)
def fill_sides(ordered, m, missing_left, opens, cut, table, work):  # type: ignore[no-untyped-def]
    """Fill the sums of a sweep: the first ``m`` points one by one, the rest (missing values) on one side throughout.

    Unless ``opens``, errors alone: no side can then be anything but settled.

    Returns:
        The first and the last number of swept points on the left at which the subtree on the left, that on the
        right, as they stand, hold what their leaves must.
    """
    sums, leaves = work.sums, work.leaves
    n_missing = len(ordered) - m
    low, high = 0, m
    for merged in range(2 if cut.prunes[0] else 1):
        clear(leaves, cut.first_leaf, cut.last_leaf)
        for side in range(2):
            if merged == 1:
                clear(leaves, 0, 1)
                leaf, errors = sums.leaf, sums.merged[side]
            else:
                leaf, errors = (cut.leaf_left if side == 0 else cut.leaf_right), sums.errors[side]
            errors[0] = 0.0
            if n_missing > 0 and missing_left == (side == 0):
                fill_errors(ordered, m, 1, n_missing, leaf, table.y, table.weight, leaves, errors)
                errors[0] = errors[n_missing]
                if merged == 0:
                    for e in ordered[m:]:
                        leaves.n_rows[leaf[e]] += table.n_rows[e]
                        leaves.weight[leaf[e]] += table.weight[e]
            begin, step = (0, 1) if side == 0 else (m - 1, -1)
            fill_errors(ordered, begin, step, m, leaf, table.y, table.weight, leaves, errors)
            if merged == 1:
                continue
            start, stop = (cut.first_leaf, cut.middle_leaf) if side == 0 else (cut.middle_leaf, cut.last_leaf)
            met = fill_floors(
                ordered, begin, step, m, leaf, table.n_rows, table.weight, leaves, work.floors, start, stop
            )
            if side == 0:
                low = met
            else:
                high = m - met
    if not opens:
        return low, high
    sums.unavoidable[0] = 0.0
    sums.rows[0] = 0
    sums.weight[0] = 0.0
    sums.key[:, 0] = 0
    for p in range(len(ordered)):
        e = ordered[p]
        sums.unavoidable[p + 1] = sums.unavoidable[p] + table.unavoidable[e]
        sums.rows[p + 1] = sums.rows[p] + table.n_rows[e]
        sums.weight[p + 1] = sums.weight[p] + table.weight[e]
        sums.key[0, p + 1] = sums.key[0, p] + table.key[0, e]
        sums.key[1, p + 1] = sums.key[1, p] + table.key[1, e]
    return low, high


@njit(cache=True, nogil=True)
def side_sum(totals, side, p, m, n, with_missing):  # type: ignore[no-untyped-def]
    """What one side of a threshold holds.

    Args:
        totals: Running sums over the points of a sweep; ``[n + 1]``.
        side: 0 for the left, 1 for the right.
        p: Swept points on the left.
        m: Swept points.
        n: All points; the last ``n - m`` have missing values.
        with_missing: Whether those are on this side.
    """
    swept = totals[p] if side == 0 else totals[m] - totals[p]
    return swept + (totals[n] - totals[m]) if with_missing else swept
