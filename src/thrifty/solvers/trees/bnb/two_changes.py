"""A changed cut and one more change below it: the inner loop of the branch and bound.

Let cut ``u0`` be changed to the test "first p points of a sequence go left", and then cut ``u`` under its left child,
too. The errors are

    e(p) - err_u(S_u) + F_u(S_u),

with ``e(p)`` the errors if ``u0`` alone is changed (one sweep gives them for all p), ``S_u`` the points among the
first p that reach ``u``, ``err_u`` their errors under ``u`` as it is and ``F_u`` those once ``u`` is changed in the
best way. ``S_u`` changes only where a point that can reach ``u`` joins, so the positions p fall into ``groups``, and
only the position of least ``e`` in each group counts. Groups are evaluated in the order of their bounds (`lazy`)
until none can beat the threshold. Far below ``u0`` few points can reach ``u``, its errors are few, and nothing needs
to be evaluated at all.

Under the right child everything is the same with the sequence reversed.

With floors, the position in a group must also leave enough for all leaves outside ``u``; that is looked at only for
a group whose relaxed errors are below the threshold.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from thrifty.solvers.trees.bnb.filling import add_point, clear_holding, clear_leaves_of, first_enough
from thrifty.solvers.trees.bnb.lazy import close, start_bounds
from thrifty.solvers.trees.bnb.one_change import best_test, node_totals
from thrifty.solvers.trees.bnb.scene import take_range
from thrifty.solvers.trees.bnb.variants import fill_variants, rank_at


@njit(cache=True, nogil=True)
def change_with_one_below(u0, on_left, features, order, m, threshold, scene, work):  # type: ignore[no-untyped-def]
    """Fewest errors under ``u0`` if it and one cut under its left (or right) child are changed.

    Args:
        u0: Cut; it may be changed.
        on_left: Under which child the other change is.
        features: Those to try at ``u0``; bool ``[d]``.
        order: Points at ``u0`` by each feature that its subtree may use, in ``order[j, :m]``; int32 ``[d, >= m]``.
            Not ``work.sorted`` or ``work.listed``.
        m: How many.
        threshold: Only fewer errors than this are of interest.
        scene: The problem.
        work: Buffers.

    Returns:
        A lower bound on the relaxed errors, exact if below ``threshold`` and there are no floors; the allowed errors
        if below ``threshold``, else inf; feature, rank and missing direction of the test at ``u0``.
    """
    shape, data, leaves, variants, groups = scene.shape, scene.data, work.leaves, work.variants, work.groups
    lazy, listed, points, totals, stop = work.lazy[0], work.listed, work.points, work.at_cut, scene.stop
    least_open, base, group_of = lazy.least_open, groups.base, groups.of
    leaf_start, leaf_stop, tolerance = shape.leaf_start, shape.leaf_stop, data.tolerance
    inner = shape.left[u0] if on_left else shape.right[u0]
    outer = shape.right[u0] if on_left else shape.left[u0]
    leaf, leaf_out = scene.leaf_of[inner], scene.leaf_of[outer]
    inside, outside = (leaf_start[inner], leaf_stop[inner]), (leaf_start[outer], leaf_stop[outer])
    lower, value = np.inf, np.inf
    best_j, best_rank, best_side = np.int64(-1), np.int64(-1), False
    if scene.n_changeable[inner] == 0 or not features.any():
        return lower, value, best_j, best_rank, best_side

    lazy.whole[:] = -np.inf
    n_variants = fill_variants(features, order, m, u0, on_left, scene, work)
    node_totals(inner, variants.sequence[0], m, shape, leaf, data, leaves, totals)
    first = shape.place[inner]
    last = first + 2 * (leaf_stop[inner] - leaf_start[inner]) - 1
    for i in range(first, last):
        u = shape.preorder[i]
        if not scene.changeable[u]:
            continue
        a, b = shape.left[u], shape.right[u]
        allowed = scene.allowed[u]
        cut = (leaf_start[u], leaf_stop[a], leaf_stop[u], scene.missing_left[u], scene.turns_missing)
        n_listed = -1
        for v in range(n_variants):
            bound = variants.least[v] - totals.errors[u] + totals.unavoidable[u]
            if bound >= threshold - tolerance:
                lower = min(lower, bound)
                continue
            sequence = variants.sequence[v]
            n_groups = group_positions(
                sequence, m, variants.error[v], leaf, leaf_start[u], leaf_stop[u], data, leaves, groups
            )
            start_bounds(n_groups, allowed, groups.unavoidable, groups.weight, -1.0, groups.weight[n_groups - 1], lazy)
            while True:
                if stop[0]:
                    return -np.inf, value, best_j, best_rank, best_side
                g, last, bound = 0, 0, np.inf
                for t in range(n_groups):
                    here = base[t] + least_open[t]
                    if here < bound:
                        g, bound = t, here
                    if here == bound:
                        last = t
                if base[(g + last) // 2] + least_open[(g + last) // 2] == bound:
                    g = (g + last) // 2  # of a run of equal bounds the middle rules out most
                if bound >= threshold - tolerance:
                    lower = min(lower, bound)
                    break
                if n_listed < 0:
                    n_listed = take_range(order, m, leaf, leaf_start[u], leaf_stop[u], allowed, listed)
                j = lazy.open_at[g]
                n_here = np.int64(0)  # a plain 0 would be a type of its own, and `best_test` compile once more
                for p in range(n_listed):
                    points[n_here] = listed[j, p]
                    n_here += group_of[listed[j, p]] <= g
                relaxed, errors, _, _ = best_test(
                    points, n_here, scene.ranks[j], cut, scene.leaf_of[a], scene.leaf_of[b], threshold - base[g],
                    data, leaves,
                )  # fmt: skip
                lower = min(lower, base[g] + relaxed)
                if errors < np.inf:
                    q = allowed_position(
                        g, sequence, m, variants.error[v], leaf, leaf_start[u], leaf_stop[u], inside, leaf_out,
                        outside, data, leaves.holding,
                    )  # fmt: skip
                    errors += variants.error[v, q] - groups.errors[g] if q >= 0 else np.inf
                    if errors < threshold - tolerance:
                        threshold = value = errors
                        best_j, best_side = variants.feature[v], variants.missing_left[v]
                        best_rank = rank_at(q, sequence, m, scene.ranks[best_j], best_side, on_left)
                close(g, j, relaxed, n_groups, np.int64(1), allowed, groups.weight, lazy)
    return lower, value, best_j, best_rank, best_side


@njit(cache=True, nogil=True)
def group_positions(sequence, m, error, leaf, start, stop, data, leaves, groups):  # type: ignore[no-untyped-def]
    """Group the positions of a variant by the points joined that can reach a cut below: group g has g of them.

    Args:
        sequence: Points in the order in which they join; ``[>= m]``.
        m: How many.
        error: Errors for each number of points joined; ``[>= m + 1]``.
        leaf: Leaf of each point once it has joined; ``[n]``.
        start: First leaf under the cut below.
        stop: One past the last.
        data: Points.
        leaves: Buffers.
        groups: Written.

    Returns:
        The number of groups.
    """
    counts, largest, y, weight, unavoidable = leaves.counts, leaves.largest, data.y, data.weight, data.unavoidable
    base, errors_at, unavoidable_at, weight_at = groups.base, groups.errors, groups.unavoidable, groups.weight
    group_of = groups.of
    clear_leaves_of(sequence, m, leaf, start, stop, counts, largest)
    g = 0
    errors, no_less, joined, least = 0.0, 0.0, 0.0, np.inf
    for q in range(m + 1):
        least = min(least, error[q])
        e = sequence[q] if q < m else np.int32(0)
        if q == m or start <= leaf[e] < stop:
            base[g], errors_at[g], unavoidable_at[g], weight_at[g] = least - errors, errors, no_less, joined
            g += 1
            least = np.inf
            if q < m:
                group_of[e] = g
                errors += add_point(leaf[e], y[e], weight[e], counts, largest)
                joined += weight[e]
                no_less += unavoidable[e]
    return g


@njit(cache=True, nogil=True)
def allowed_position(g, sequence, m, error, leaf, start, stop, inside, leaf_out, outside, data, holding):  # type: ignore[no-untyped-def]
    """The position of group ``g`` with the fewest errors at which all leaves but those of the cut below hold floors.

    Args:
        g: Group.
        sequence: As for `group_positions`, up to ``stop``.
        m: See ``sequence``.
        error: See ``sequence``.
        leaf: See ``sequence``.
        start: See ``sequence``.
        stop: See ``sequence``.
        inside: First leaf, and one past the last, of the child that points join.
        leaf_out: Leaf of each point before it has joined; ``[n]``.
        outside: As ``inside``, of the other child.
        data: Points and floors.
        holding: Buffers.

    Returns:
        The position, -1 if there is none.
    """
    at_least, at_most = 0, m
    if data.has_floors:
        clear_holding(holding, inside[0], inside[1])
        clear_holding(holding, outside[0], outside[1])
        at_least = first_enough(sequence, 0, 1, m, leaf, inside[0], inside[1], start, stop, data, holding)
        at_most = m - first_enough(sequence, m - 1, -1, m, leaf_out, outside[0], outside[1], 0, 0, data, holding)
    best, joined = -1, 0
    for q in range(m + 1):
        if joined == g and at_least <= q <= at_most and error[q] < np.inf and (best < 0 or error[q] < error[best]):
            best = q
        if q < m and start <= leaf[sequence[q]] < stop:
            joined += 1
    return best
