"""The kernels: route points to leaves, and sweep one feature at one cut.

With both subtrees of a cut fixed, each point has one leaf if it is sent left and one if it is sent right. Adding
points to the left leaves in ascending order of a feature gives the errors on the left for *every* threshold, adding
them to the right leaves in descending order those on the right. A step is O(1) for any number of classes: an error is
added unless the point's class becomes, or is, its leaf's majority.

All kernels are loops over preallocated arrays, release the GIL, and never call themselves. Sums of weights are
float64, which is exact for whole-numbered weights.

numba's cache notices an edit in the file of a kernel, not in that of a kernel it calls: after an edit here, kernels
elsewhere that call these are compiled anew only once their own file is saved again (the tests see to it themselves).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.ranks import MISSING


class Points(NamedTuple):
    """The training points as the kernels read them; see `ranks.RankTable`."""

    ranks: NDArray[np.int32]
    y: NDArray[np.int32]
    weight: NDArray[np.float64]
    n_rows: NDArray[np.int64]


class Floors(NamedTuple):
    """What each leaf must hold at least."""

    n_rows: NDArray[np.int64]  # [n_leaves]
    weight: NDArray[np.float64]  # [n_leaves]


class LeafCounts(NamedTuple):
    """What the leaves hold while a sweep fills them; one row a leaf of the tree."""

    counts: NDArray[np.float64]  # [n_leaves, n_classes]
    largest: NDArray[np.float64]  # [n_leaves], the largest entry of each row of counts
    weight: NDArray[np.float64]  # [n_leaves], the sum of each row of counts
    squares: NDArray[np.float64]  # [n_leaves], the sum of squares of each row of counts
    n_rows: NDArray[np.int64]  # [n_leaves]


def empty_leaves(n_leaves: int, n_classes: int) -> LeafCounts:
    """Workspace for the sweeps of a tree with ``n_leaves`` leaves."""
    return LeafCounts(
        counts=np.zeros((n_leaves, n_classes)),
        largest=np.zeros(n_leaves),
        weight=np.zeros(n_leaves),
        squares=np.zeros(n_leaves),
        n_rows=np.zeros(n_leaves, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def leaf_numbers(left, right, leaf_start, feature, rank, missing_left, ranks, start, leaf):  # type: ignore[no-untyped-def]
    """Write the number of the leaf that each point reaches from node ``start`` into ``leaf`` (int32 ``[n]``)."""
    for e in range(ranks.shape[1]):
        v = start
        while left[v] != -1:
            r = ranks[feature[v], e]
            goes_left = missing_left[v] if r == MISSING else r <= rank[v]
            v = left[v] if goes_left else right[v]
        leaf[e] = leaf_start[v]


@njit(cache=True, nogil=True)
def side_leaves(  # type: ignore[no-untyped-def]
    v,
    left,
    right,
    leaf_start,
    feature,
    rank,
    missing_left,
    ranks,
    points,
    leaf,
    leaf_left,
    leaf_right,
    sent_left,
):
    """For the points that reach cut ``v``: their leaf if sent left, if sent right, and where ``v`` does send them.

    On the side where a point goes its leaf is known (``leaf``); only the other side is walked, from the child down.
    That keeps memory at O(n) where a table over all nodes would take O(n * nodes).

    Args:
        v: The cut.
        left: ``[n_nodes]``, as ``right`` and ``leaf_start``: the tree's shape.
        right: See ``left``.
        leaf_start: See ``left``.
        feature: ``[n_nodes]``, as ``rank`` and ``missing_left``: the current cuts.
        rank: See ``feature``.
        missing_left: See ``feature``.
        ranks: ``[d, n]``.
        points: The points at ``v``, in any order.
        leaf: Current leaf of every point; ``[n]``.
        leaf_left: Written at ``points``; ``[n]``.
        leaf_right: Written at ``points``; ``[n]``.
        sent_left: Written at ``points``; bool ``[n]``.

    Returns:
        How many points go left.
    """
    n_left = 0
    for i in range(len(points)):
        e = points[i]
        r = ranks[feature[v], e]
        goes_left = missing_left[v] if r == MISSING else r <= rank[v]
        sent_left[e] = goes_left
        n_left += goes_left
        u = right[v] if goes_left else left[v]
        while left[u] != -1:
            r = ranks[feature[u], e]
            down_left = missing_left[u] if r == MISSING else r <= rank[u]
            u = left[u] if down_left else right[u]
        if goes_left:
            leaf_left[e] = leaf[e]
            leaf_right[e] = leaf_start[u]
        else:
            leaf_left[e] = leaf_start[u]
            leaf_right[e] = leaf[e]
    return n_left


@njit(cache=True, nogil=True)
def partition(order, low, high, sent_left, spare):  # type: ignore[no-untyped-def]
    """Split ``order[j, low:high]`` of every feature stably: points sent left first. ``spare`` is int32 ``[n]``."""
    for j in range(order.shape[0]):
        to, n_right = low, 0
        for i in range(low, high):
            e = order[j, i]
            if sent_left[e]:
                order[j, to] = e
                to += 1
            else:
                spare[n_right] = e
                n_right += 1
        order[j, to:high] = spare[:n_right]


@njit(cache=True, nogil=True)
def clear(leaves, start, stop):  # type: ignore[no-untyped-def]
    """Empty the leaves ``start .. stop - 1``."""
    leaves.counts[start:stop] = 0.0
    leaves.largest[start:stop] = 0.0
    leaves.weight[start:stop] = 0.0
    leaves.squares[start:stop] = 0.0
    leaves.n_rows[start:stop] = 0


@njit(cache=True, nogil=True)
def fill_errors(points, first, step, m, leaf, y, weight, leaves, error):  # type: ignore[no-untyped-def]
    """Add points to their leaves one by one and note the errors after each.

    Args:
        points: Point numbers; ``points[first], points[first + step], ...`` are added, ``m`` in all.
        first: Where to begin.
        step: 1 or -1.
        m: How many to add.
        leaf: Leaf of each point; ``[n]``.
        y: Class of each point; ``[n]``.
        weight: Weight of each point; ``[n]``.
        leaves: What the leaves hold; ``counts`` and ``largest`` are updated.
        error: ``error[0]`` is the errors before; ``error[p]`` those after ``p`` points is written, up to ``m``.
    """
    total = error[0]
    for p in range(m):
        e = points[first + step * p]
        at, c, w = leaf[e], y[e], weight[e]
        count = leaves.counts[at, c] + w
        leaves.counts[at, c] = count
        grown = count - leaves.largest[at]
        if grown > 0.0:
            leaves.largest[at] = count
            total += w - grown
        else:
            total += w
        error[p + 1] = total


@njit(cache=True, nogil=True)
def fill_gini(points, first, step, m, leaf, y, weight, leaves, gini):  # type: ignore[no-untyped-def]
    """As `fill_errors`, for the weighted Gini impurity: the sum over leaves of ``weight - squares / weight``."""
    total = gini[0]
    for p in range(m):
        e = points[first + step * p]
        at, c, w = leaf[e], y[e], weight[e]
        count = leaves.counts[at, c]
        before, squares = leaves.weight[at], leaves.squares[at]
        if before > 0.0:
            total -= before - squares / before
        squares += w * (2.0 * count + w)
        after = before + w
        total += after - squares / after
        leaves.counts[at, c] = count + w
        leaves.weight[at] = after
        leaves.squares[at] = squares
        gini[p + 1] = total


@njit(cache=True, nogil=True)
def fill_floors(points, first, step, m, leaf, n_rows, weight, leaves, floors, start, stop):  # type: ignore[no-untyped-def]
    """Add points to leaves until each of ``start .. stop - 1`` holds its floors.

    Leaves only gain, so the positions where all floors are met are those from the first on.

    Returns:
        That first position, or ``m + 1`` if there is none.
    """
    short = 0
    for at in range(start, stop):
        short += is_short(leaves, floors, at)
    if short == 0:
        return 0
    for p in range(m):
        e = points[first + step * p]
        at = leaf[e]
        was_short = is_short(leaves, floors, at)
        leaves.n_rows[at] += n_rows[e]
        leaves.weight[at] += weight[e]
        if was_short and not is_short(leaves, floors, at):
            short -= 1
            if short == 0:
                return p + 1
    return m + 1


@njit(cache=True, nogil=True)
def is_short(leaves, floors, at):  # type: ignore[no-untyped-def]
    """Whether leaf ``at`` holds less than its floors."""
    return leaves.n_rows[at] < floors.n_rows[at] or leaves.weight[at] < floors.weight[at]
