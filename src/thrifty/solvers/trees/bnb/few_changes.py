"""Tables of fewest errors for each budget, and a whole subtree solved for budgets of at most two in one kernel.

Cuts of which none is above the other do not meet, so their changes combine by min-plus convolution of the children's
tables:

    T[v, a] = min( min over b of T[left, b] + T[right, a - b],   v keeps its test
                   C[v, a],                                      v is changed, a - 1 more below it
                   T[v, a - 1] ).

There are two of each table: lower bounds on the relaxed errors, and the allowed errors (see `one_change`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from thrifty.solvers.trees.bnb.one_change import change_each_cut, node_totals
from thrifty.solvers.trees.bnb.scene import take_range
from thrifty.solvers.trees.bnb.two_changes import change_with_one_below

LOWER, VALUE = 0, 1
"""The two tables of each kind."""


@njit(cache=True, nogil=True)
def combine(v, budget, shape, totals, changed, best):  # type: ignore[no-untyped-def]
    """Fill T for the subtree of ``v`` from C.

    Args:
        v: Node.
        budget: Largest number of changes.
        shape: The tree's shape.
        totals: What each node does as it is.
        changed: C, inf where there is nothing; ``[2, n_nodes, > budget]``, entry 0 unused.
        best: T, written; likewise.
    """
    first = shape.place[v]
    last = first + 2 * (shape.leaf_stop[v] - shape.leaf_start[v]) - 1
    for i in range(last - 1, first - 1, -1):
        u = shape.preorder[i]
        best[LOWER, u, 0] = totals.errors[u]
        best[VALUE, u, 0] = totals.errors[u] if totals.holds_floors[u] else np.inf
        left, right = shape.left[u], shape.right[u]
        for kind in range(2):
            for a in range(1, budget + 1):
                least = best[kind, u, a - 1]
                if left != -1:
                    least = min(least, changed[kind, u, a])
                    for b in range(a + 1):
                        least = min(least, best[kind, left, b] + best[kind, right, a - b])
                best[kind, u, a] = least


@njit(cache=True, nogil=True)
def fewest_errors(v, order, m, budget, threshold, scene, work):  # type: ignore[no-untyped-def]
    """F(v, S, budget) for a budget of 0, 1 or 2.

    Args:
        v: Node.
        order: The points S by each feature that the subtree may use, in ``order[j, :m]``; int32 ``[d, >= m]``. None
            of ``work``'s own.
        m: How many; at least one.
        budget: Changes.
        threshold: Only fewer errors than this are of interest.
        scene: The problem.
        work: Buffers.

    Returns:
        A lower bound on the relaxed errors, exact if below ``threshold``; the allowed errors, exact if below
        ``threshold``. If ``scene.stop`` was set both are still bounds, but may be poor.
    """
    shape, data, totals = scene.shape, scene.data, work.at_node
    changed, best = work.changed, work.best
    errors, unavoidable = totals.errors, totals.unavoidable
    row = 0
    while row < len(order) - 1 and not scene.allowed_below[v, row]:
        row += 1
    node_totals(v, order[row], m, shape, scene.leaf_of[v], data, work.leaves, totals)
    if budget > 0:
        gain = errors[v] - threshold if budget == 1 else 0.0  # of two changes each may gain less
        change_each_cut(v, order, m, gain, totals, scene, work, changed[LOWER, :, 1], changed[VALUE, :, 1], work.test)
    first = shape.place[v]
    last = first + 2 * (shape.leaf_stop[v] - shape.leaf_start[v]) - 1
    for i in range(first, last):
        changed[:, shape.preorder[i], 2] = np.inf
    combine(v, budget, shape, totals, changed, best)
    lower, value = best[LOWER, v, budget], best[VALUE, v, budget]
    if budget < 2:
        return (unavoidable[v], value) if scene.stop[0] else (lower, value)

    threshold = min(threshold, value)
    for i in range(first, last):
        u = shape.preorder[i]
        if not scene.changeable[u] or scene.n_changeable[u] < 2:
            continue
        elsewhere = errors[v] - errors[u]
        limit = min(best[VALUE, u, 2], threshold - elsewhere)
        if unavoidable[u] >= limit - data.tolerance:
            lower = min(lower, elsewhere + unavoidable[u])
            continue
        n_here = take_range(
            order, m, scene.leaf_of[v], shape.leaf_start[u], shape.leaf_stop[u], scene.allowed_below[u], work.order
        )
        for on_left in (True, False):
            bound, here, _, _, _ = change_with_one_below(
                u, on_left, scene.allowed[u], work.order, n_here, limit, scene, work
            )
            lower = min(lower, elsewhere + bound)
            if here < limit - data.tolerance:
                limit = here
                if hold_elsewhere(u, v, totals.holds_floors, shape):
                    value = threshold = min(value, elsewhere + here)
            if scene.stop[0]:
                return unavoidable[v], value
    return (unavoidable[v], value) if scene.stop[0] else (lower, value)


@njit(cache=True, nogil=True)
def hold_elsewhere(u, v, holds_floors, shape):  # type: ignore[no-untyped-def]
    """Whether the leaves under ``v`` but not under ``u`` hold their floors."""
    first = shape.place[v]
    last = first + 2 * (shape.leaf_stop[v] - shape.leaf_start[v]) - 1
    for i in range(first, last):
        w = shape.preorder[i]
        is_outside = shape.leaf_start[w] < shape.leaf_start[u] or shape.leaf_start[w] >= shape.leaf_stop[u]
        if shape.left[w] == -1 and is_outside and not holds_floors[w]:
            return False
    return True
