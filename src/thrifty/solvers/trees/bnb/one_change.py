"""One change in a subtree, on any set of points, for the branch and bound.

As in `single`, every cut sweeps every feature; here only the errors count, and each result comes twice:

- *relaxed*, without floors on the leaves. It is monotone in the set of points and grows by at most a point's weight
  when that joins, so it bounds what other sets of points can give;
- *allowed*, with every floor held; infinite if that is impossible.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from thrifty.solvers.trees.bnb.filling import (
    add_point,
    clear_holding,
    clear_leaves,
    clear_leaves_of,
    first_enough,
    hold,
)
from thrifty.solvers.trees.bnb.scene import n_present


@njit(cache=True, nogil=True)
def best_test(points, m, ranks, cut, leaf_left, leaf_right, limit, data, leaves):  # type: ignore[no-untyped-def]
    """The best test on one feature at one cut.

    Args:
        points: The points that reach the cut, in ``points[:m]`` by ascending rank, missing last; int32.
        m: How many.
        ranks: Rank of each point; ``[n]``.
        cut: First leaf under the cut; first under its right child; one past the last; whether missing values go left
            now; whether that may turn.
        leaf_left: Leaf of each point if sent left; ``[n]``.
        leaf_right: Leaf of each point if sent right; ``[n]``.
        limit: Floors are looked at only if there are fewer errors than this.
        data: Points and floors.
        leaves: Buffers.

    Returns:
        Fewest errors under the cut, relaxed; the same, allowed, if below ``limit``, else inf; and the rank and missing
        direction of the latter.
    """
    start, middle, stop, side_now, turns_missing = cut
    y, weight, tolerance = data.y, data.weight, data.tolerance
    counts, largest, error = leaves.counts, leaves.largest, leaves.error
    present = n_present(points, m, ranks)
    relaxed, allowed, best_rank, best_side = np.inf, np.inf, np.int64(-1), side_now
    for turn in range(2 if present < m and turns_missing else 1):
        side = side_now != (turn == 1)
        clear_leaves_of(points, m, leaf_left, start, middle, counts, largest)
        clear_leaves_of(points, m, leaf_right, middle, stop, counts, largest)
        if stop - start == 2:
            least = _sweep_two_leaves(points, present, m, ranks, side, y, weight, counts[start], counts[middle], error)
        else:
            least = _sweep(points, present, m, ranks, side, leaf_left, leaf_right, y, weight, counts, largest, error)
        relaxed = min(relaxed, least)
        if least >= min(limit, allowed) - tolerance:
            continue

        first, last = 0, present
        if data.has_floors:
            holding = leaves.holding
            clear_holding(holding, start, stop)
            hold(points, present, m, leaf_left if side else leaf_right, data, holding)
            first = first_enough(points, 0, 1, present, leaf_left, start, middle, 0, 0, data, holding)
            last = present - first_enough(
                points, present - 1, -1, present, leaf_right, middle, stop, 0, 0, data, holding
            )
        for p in range(first, last + 1):
            if error[p] < min(limit, allowed) - tolerance:
                allowed, best_side = error[p], side
                best_rank = np.int64(ranks[points[p - 1]]) if p > 0 else np.int64(-1)
    return relaxed, allowed, best_rank, best_side


@njit(cache=True, nogil=True)
def _sweep(points, present, m, ranks, side, leaf_left, leaf_right, y, weight, counts, largest, error):  # type: ignore[no-untyped-def]
    """Errors for each number of points on the left, inf where no threshold gives it; returns the least.

    Points without a value, ``points[present:m]``, go left if ``side``. The leaves are empty before.
    """
    total = 0.0
    if side:
        for i in range(present, m):
            e = points[i]
            total += add_point(leaf_left[e], y[e], weight[e], counts, largest)
    error[0] = total
    for p in range(present):
        e = points[p]
        total += add_point(leaf_left[e], y[e], weight[e], counts, largest)
        error[p + 1] = total

    total, least = 0.0, np.inf
    if not side:
        for i in range(present, m):
            e = points[i]
            total += add_point(leaf_right[e], y[e], weight[e], counts, largest)
    above = np.int32(-1)  # rank of the point last moved right; no point has this one
    for p in range(present, -1, -1):
        e = points[p - 1] if p > 0 else np.int32(0)
        below = ranks[e] if p > 0 else np.int32(-1)
        if below != above or p == present:
            error[p] += total
            least = min(least, error[p])
        else:
            error[p] = np.inf
        if p > 0:
            total += add_point(leaf_right[e], y[e], weight[e], counts, largest)
        above = below
    return least


@njit(cache=True, nogil=True)
def _sweep_two_leaves(points, present, m, ranks, side, y, weight, on_left, on_right, error):  # type: ignore[no-untyped-def]
    """The same where both children are leaves, with class counts ``on_left`` and ``on_right``: one pass will do."""
    n_classes = len(on_left)
    for i in range(present, m):
        e = points[i]
        if side:
            on_left[y[e]] += weight[e]
        else:
            on_right[y[e]] += weight[e]
    for p in range(present):
        on_right[y[points[p]]] += weight[points[p]]
    least = np.inf
    if n_classes == 2:
        a_left, b_left, a_right, b_right = on_left[0], on_left[1], on_right[0], on_right[1]
        for p in range(present + 1):
            is_threshold = p in (0, present) or ranks[points[p - 1]] != ranks[points[p]]
            error[p] = min(a_left, b_left) + min(a_right, b_right) if is_threshold else np.inf
            least = min(least, error[p])
            if p < present:
                e = points[p]
                b = weight[e] * y[e]
                a = weight[e] - b
                a_left += a
                a_right -= a
                b_left += b
                b_right -= b
        return least
    for p in range(present + 1):
        error[p] = np.inf
        if p in (0, present) or ranks[points[p - 1]] != ranks[points[p]]:
            total, most_left, most_right = 0.0, 0.0, 0.0
            for c in range(n_classes):
                total += on_left[c] + on_right[c]
                most_left, most_right = max(most_left, on_left[c]), max(most_right, on_right[c])
            error[p] = total - most_left - most_right
            least = min(least, error[p])
        if p < present:
            e = points[p]
            on_left[y[e]] += weight[e]
            on_right[y[e]] -= weight[e]
    return least


@njit(cache=True, nogil=True)
def node_totals(v, points, m, shape, leaf, data, leaves, totals):  # type: ignore[no-untyped-def]
    """What the unchanged subtree of ``v`` does with ``points[:m]``, at each of its nodes.

    Args:
        v: Node.
        points: Points that reach it; int32.
        m: How many.
        shape: The tree's shape.
        leaf: Leaf that each point reaches from ``v``; ``[n]``.
        data: Points and floors.
        leaves: Buffers.
        totals: Written for the nodes of the subtree.
    """
    start, stop = shape.leaf_start[v], shape.leaf_stop[v]
    first, last = shape.place[v], shape.place[v] + 2 * (stop - start) - 1
    counts, largest, holding, floors = leaves.counts, leaves.largest, leaves.holding, data.floors
    y, weight = data.y, data.weight
    clear_leaves(counts, largest, start, stop)
    clear_holding(holding, start, stop)
    by_leaf, unavoidable_by_leaf = np.zeros(stop - start), np.zeros(stop - start)
    for i in range(m):
        e = points[i]
        at = leaf[e]
        by_leaf[at - start] += add_point(at, y[e], weight[e], counts, largest)
        unavoidable_by_leaf[at - start] += data.unavoidable[e]
    hold(points, 0, m, leaf, data, holding)
    errors, unavoidable, holds = totals.errors, totals.unavoidable, totals.holds_floors
    for i in range(last - 1, first - 1, -1):
        u = shape.preorder[i]
        if shape.left[u] == -1:
            at = shape.leaf_start[u]
            errors[u] = by_leaf[at - start]
            unavoidable[u] = unavoidable_by_leaf[at - start]
            holds[u] = holding.n_rows[at] >= floors.n_rows[at] and holding.weight[at] >= floors.weight[at]
        else:
            a, b = shape.left[u], shape.right[u]
            errors[u] = errors[a] + errors[b]
            unavoidable[u] = unavoidable[a] + unavoidable[b]
            holds[u] = holds[a] and holds[b]


@njit(cache=True, nogil=True)
def change_each_cut(v, order, m, least_gain, totals, scene, work, lower, value, test):  # type: ignore[no-untyped-def]
    """For each cut ``u`` under ``v``: the fewest errors under ``u`` if ``u`` alone is changed.

    Args:
        v: Node.
        order: Points at ``v`` by each feature that its subtree may use, in ``order[j, :m]``; int32 ``[d, >= m]``.
        m: How many.
        least_gain: A cut that could not save as much as this is left out (its bound says so); 0 for none.
        totals: From `node_totals`.
        scene: The problem.
        work: Buffers.
        lower: A lower bound on the relaxed errors, written at cuts (inf: no better than unchanged); ``[n_nodes]``.
        value: The allowed errors, written at cuts, inf if there are none; ``[n_nodes]``.
        test: Their feature, rank and missing direction; int64 ``[n_nodes, 3]``.
    """
    shape, data, leaves = scene.shape, scene.data, work.leaves
    left, right, leaf_start, leaf_stop = shape.left, shape.right, shape.leaf_start, shape.leaf_stop
    ranks, leaf_of, allowed = scene.ranks, scene.leaf_of, scene.allowed
    sorted_points, low, high, tolerance = work.sorted, work.low, work.high, data.tolerance
    for j in range(len(ranks)):
        if scene.allowed_below[v, j]:
            sorted_points[j, :m] = order[j, :m]
    first = shape.place[v]
    last = first + 2 * (leaf_stop[v] - leaf_start[v]) - 1
    for i in range(first, last):
        lower[shape.preorder[i]] = value[shape.preorder[i]] = np.inf
    low[v], high[v] = 0, m
    for i in range(first, last):
        u = shape.preorder[i]
        if left[u] == -1:
            continue
        a, b = left[u], right[u]
        slack, holds = totals.errors[u] - totals.unavoidable[u], totals.holds_floors[u]
        if low[u] < 0 or scene.n_changeable[u] == 0 or (slack <= tolerance and holds):
            low[a] = low[b] = -1
            continue
        if slack < least_gain - tolerance and holds:
            lower[u] = totals.unavoidable[u]
            low[a] = low[b] = -1
            continue
        cut = (leaf_start[u], leaf_stop[a], leaf_stop[u], scene.missing_left[u], scene.turns_missing)
        for j in range(len(ranks)):
            if allowed[u, j]:
                relaxed, errors, rank, side = best_test(
                    sorted_points[j, low[u] : high[u]], high[u] - low[u], ranks[j], cut, leaf_of[a], leaf_of[b],
                    value[u], data, leaves,
                )  # fmt: skip
                lower[u] = min(lower[u], relaxed)
                if errors < value[u] - tolerance:
                    value[u] = errors
                    test[u, 0], test[u, 1], test[u, 2] = j, rank, side
                if scene.stop[0]:
                    return
        middle = split(sorted_points, low[u], high[u], leaf_of[v], leaf_stop[a], scene.allowed_below[u], work.points)
        low[a], high[a] = low[u], middle
        low[b], high[b] = middle, high[u]


@njit(cache=True, nogil=True)
def split(sorted_points, low, high, leaf, border, features, spare):  # type: ignore[no-untyped-def]
    """Split ``sorted_points[j, low:high]`` stably, points of leaves before ``border`` first, for marked features j.

    Returns:
        Where the others begin.
    """
    middle = low
    for j in range(len(features)):
        if features[j]:
            to, n_right = low, 0
            for i in range(low, high):
                e = sorted_points[j, i]
                if leaf[e] < border:
                    sorted_points[j, to] = e
                    to += 1
                else:
                    spare[n_right] = e
                    n_right += 1
            for i in range(n_right):
                sorted_points[j, to + i] = spare[i]
            middle = to
    return middle
