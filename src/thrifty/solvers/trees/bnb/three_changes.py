"""A changed cut and both its children, where no other cut below it may be changed.

So are the bottoms of a complete tree, and whole trees of depth two. For each threshold at ``u0`` the two children are
minimised apart, each over its own features (`lazy`); of all thresholds, sides and features the one with the lowest
bound is evaluated next. (Depth-two solvers of optimal trees, MurTree and ConTree, are the model: they too evaluate a
side only as far as the other leaves it a chance.)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from thrifty.solvers.trees.bnb.lazy import close, start_bounds
from thrifty.solvers.trees.bnb.one_change import best_test
from thrifty.solvers.trees.bnb.variants import fill_variants, rank_at


@njit(cache=True, nogil=True)
def change_with_one_below_each(u0, features, order, m, threshold, scene, work):  # type: ignore[no-untyped-def]
    """Fewest errors under ``u0`` if it and both its children are changed.

    Args:
        u0: Cut; it and its children may be changed.
        features: Those to try at ``u0``; bool ``[d]``.
        order: Points at ``u0`` by each feature that its subtree may use, in ``order[j, :m]``; int32 ``[d, >= m]``.
        m: How many.
        threshold: Only fewer errors than this are of interest.
        scene: The problem.
        work: Buffers.

    Returns:
        A lower bound on the relaxed errors, exact if below ``threshold`` and there are no floors; the allowed errors
        if below ``threshold``, else inf; feature, rank and missing direction of the test at ``u0``.
    """
    shape, data, leaves, variants, groups = scene.shape, scene.data, work.leaves, work.variants, work.groups
    points, tolerance, leaf_of = work.points, data.tolerance, scene.leaf_of
    left, right = work.lazy
    children = (shape.left[u0], shape.right[u0])
    allowed = (scene.allowed[children[0]], scene.allowed[children[1]])
    at, weight, joined_at = groups.at, groups.weight, groups.of
    found = (groups.base, groups.errors)  # fewest allowed errors of each side so far, by position
    lower, value = np.inf, np.inf
    best_j, best_rank, best_side = np.int64(-1), np.int64(-1), False
    for side in range(2):
        _evaluate_whole(children[side], order, m, scene, leaves, work.lazy[side].whole)

    on_left = np.bool_(True)
    n_variants = fill_variants(features, order, m, u0, on_left, scene, work)
    whole_weight = data.weight[variants.sequence[0, :m]].sum()
    for v in np.argsort(variants.least[:n_variants], kind="mergesort"):  # the most promising first
        sequence = variants.sequence[v]
        n_sets = list_positions(sequence, m, variants.error[v], data, groups)
        unavoidable = groups.unavoidable
        start_bounds(n_sets, allowed[0], unavoidable, weight, -1.0, whole_weight, left)
        unavoidable[:n_sets] = unavoidable[n_sets - 1] - unavoidable[:n_sets]  # now of the points on the right
        start_bounds(n_sets, allowed[1], unavoidable, weight, 1.0, 0.0, right)
        found[0][:n_sets] = np.inf
        found[1][:n_sets] = np.inf
        while True:
            if scene.stop[0]:
                return -np.inf, value, best_j, best_rank, best_side
            i, side, bound = lowest_bound(n_sets, left, right)
            if bound >= threshold - tolerance:
                lower = min(lower, (left.least[:n_sets] + right.least[:n_sets]).min())
                break
            j = work.lazy[side].open_at[i]
            n_here = np.int64(0)  # see two_changes
            for p in range(m):
                points[n_here] = order[j, p]
                n_here += (joined_at[order[j, p]] < at[i]) == (side == 0)
            u = children[side]
            a, b = shape.left[u], shape.right[u]
            bounds = (shape.leaf_start[u], shape.leaf_stop[a], shape.leaf_stop[u])
            cut = (*bounds, scene.missing_left[u], scene.turns_missing)
            limit = threshold - work.lazy[1 - side].least[i]
            relaxed, errors, _, _ = best_test(
                points, n_here, scene.ranks[j], cut, leaf_of[a], leaf_of[b], limit, data, leaves
            )
            close(i, j, relaxed, n_sets, 1 - 2 * side, allowed[side], weight, work.lazy[side])
            found[side][i] = min(found[side][i], errors)
            if found[0][i] + found[1][i] < threshold - tolerance:
                threshold = value = found[0][i] + found[1][i]
                best_j, best_side = variants.feature[v], variants.missing_left[v]
                best_rank = rank_at(at[i], sequence, m, scene.ranks[best_j], best_side, on_left)
    return lower, value, best_j, best_rank, best_side


@njit(cache=True, nogil=True)
def _evaluate_whole(u, order, m, scene, leaves, whole):  # type: ignore[no-untyped-def]
    """Fewest relaxed errors at ``u``, changed, for each feature if all points go there."""
    a, b = scene.shape.left[u], scene.shape.right[u]
    bounds = (scene.shape.leaf_start[u], scene.shape.leaf_stop[a], scene.shape.leaf_stop[u])
    cut = (*bounds, scene.missing_left[u], scene.turns_missing)
    for j in range(len(order)):
        if scene.allowed[u, j]:
            whole[j], _, _, _ = best_test(
                order[j], m, scene.ranks[j], cut, scene.leaf_of[a], scene.leaf_of[b], -np.inf, scene.data, leaves
            )


@njit(cache=True, nogil=True)
def lowest_bound(n_sets, left, right):  # type: ignore[no-untyped-def]
    """The position of the lowest bound, of a run of equal ones the middle.

    Returns:
        Position, side to evaluate (0: left), bound.
    """
    left_least, left_open, right_least, right_open = left.least, left.least_open, right.least, right.least_open
    first, last, bound = 0, 0, np.inf
    for t in range(n_sets):
        here = min(left_open[t] + right_least[t], left_least[t] + right_open[t])
        if here < bound:
            first, bound = t, here
        if here == bound:
            last = t
    i = (first + last) // 2
    if min(left_open[i] + right_least[i], left_least[i] + right_open[i]) != bound:
        i = first
    return i, 0 if left_open[i] + right_least[i] == bound else 1, bound


@njit(cache=True, nogil=True)
def list_positions(sequence, m, error, data, groups):  # type: ignore[no-untyped-def]
    """List the positions at which there is a threshold, with weight and unavoidable errors of the points joined.

    Returns:
        How many there are.
    """
    n_sets = 0
    joined, unavoidable = 0.0, 0.0
    for q in range(m + 1):
        if error[q] < np.inf:
            groups.at[n_sets], groups.weight[n_sets], groups.unavoidable[n_sets] = q, joined, unavoidable
            n_sets += 1
        if q < m:
            e = sequence[q]
            groups.of[e] = q
            joined += data.weight[e]
            unavoidable += data.unavoidable[e]
    return n_sets
