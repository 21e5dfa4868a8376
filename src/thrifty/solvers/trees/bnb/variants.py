"""The tests that a changed cut may get: one *variant* for each feature and missing direction.

A variant puts the points at the cut into the sequence in which they join one of its children as the threshold moves;
a test is then a number of points that have joined. The kernels below fill `scene.Variants`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from thrifty.solvers.trees.bnb.filling import add_point, clear_leaves_of
from thrifty.solvers.trees.bnb.scene import n_present
from thrifty.solvers.trees.instance.ranks import MISSING


@njit(cache=True, nogil=True)
def fill_variants(features, order, m, u0, on_left, scene, work):  # type: ignore[no-untyped-def]
    """Sweep each of ``features`` at cut ``u0``.

    Args:
        features: Features to sweep; bool ``[d]``.
        order: Points at ``u0`` by each of them; int32 ``[d, >= m]``.
        m: How many.
        u0: Cut.
        on_left: Whether points join the left child, in ascending order, or the right one, in descending order.
        scene: The problem.
        work: Buffers; ``variants`` is written.

    Returns:
        The number of variants.
    """
    variants, shape = work.variants, scene.shape
    a, b = shape.left[u0], shape.right[u0]
    inner, outer = (a, b) if on_left else (b, a)
    inside = (shape.leaf_start[inner], shape.leaf_stop[inner])
    outside = (shape.leaf_start[outer], shape.leaf_stop[outer])
    leaf_in, leaf_out = scene.leaf_of[inner], scene.leaf_of[outer]
    n_variants = 0
    for j in range(len(features)):
        if not features[j]:
            continue
        ranks = scene.ranks[j]
        present = n_present(order[j], m, ranks)
        for turn in range(2 if scene.turns_missing and present < m else 1):
            v = n_variants
            side = scene.missing_left[u0] != (turn == 1)
            variants.feature[v], variants.missing_left[v] = j, side
            # from the left: missing values first if they go left, then ascending, missing last if they go right
            n_first = m - present if side else 0
            sequence, error = variants.sequence[v], variants.error[v]
            for i in range(m):
                to = i + n_first if i < present or not side else i - present
                sequence[to if on_left else m - 1 - to] = order[j, i]
            first = n_first if on_left else m - present - n_first
            variants.least[v] = _fill_errors(
                sequence, m, first, first + present, ranks, leaf_in, leaf_out, inside, outside, scene.data,
                work.leaves, error,
            )  # fmt: skip
            n_variants += 1
    return n_variants


@njit(cache=True, nogil=True)
def _fill_errors(sequence, m, first, last, ranks, leaf_in, leaf_out, inside, outside, data, leaves, error):  # type: ignore[no-untyped-def]
    """Errors for each number of points joined, inf where no threshold between ``first`` and ``last`` gives it.

    Returns:
        The least of them.
    """
    counts, largest, y, weight = leaves.counts, leaves.largest, data.y, data.weight
    clear_leaves_of(sequence, m, leaf_in, inside[0], inside[1], counts, largest)
    clear_leaves_of(sequence, m, leaf_out, outside[0], outside[1], counts, largest)
    total = 0.0
    error[0] = 0.0
    for q in range(m):
        e = sequence[q]
        total += add_point(leaf_in[e], y[e], weight[e], counts, largest)
        error[q + 1] = total
    total = 0.0
    least = np.inf
    for q in range(m, -1, -1):
        if first <= q <= last and (q in (first, last) or ranks[sequence[q - 1]] != ranks[sequence[q]]):
            error[q] += total
            least = min(least, error[q])
        else:
            error[q] = np.inf
        if q > 0:
            e = sequence[q - 1]
            total += add_point(leaf_out[e], y[e], weight[e], counts, largest)
    return least


@njit(cache=True, nogil=True)
def rank_at(q, sequence, m, ranks, missing_left, on_left):  # type: ignore[no-untyped-def]
    """Rank of the threshold for which ``q`` points of the sequence have joined."""
    n_left = q if on_left else m - q
    if missing_left:  # the missing values, which come first, have no rank
        n_missing = 0
        while n_missing < m and ranks[sequence[n_missing if on_left else m - 1 - n_missing]] == MISSING:
            n_missing += 1
        if n_left <= n_missing:
            return np.int64(-1)
    if n_left == 0:
        return np.int64(-1)
    return np.int64(ranks[sequence[n_left - 1 if on_left else m - n_left]])
