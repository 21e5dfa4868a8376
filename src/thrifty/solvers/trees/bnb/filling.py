"""Kernels that add points to leaves: errors, and the rows and weight that floors ask for."""

from __future__ import annotations

from numba import njit


@njit(cache=True, nogil=True)
def clear_leaves(counts, largest, start, stop):  # type: ignore[no-untyped-def]
    """Empty the leaves ``start .. stop - 1``."""
    for at in range(start, stop):
        largest[at] = 0.0
        for c in range(counts.shape[1]):
            counts[at, c] = 0.0


@njit(cache=True, nogil=True)
def clear_leaves_of(points, m, leaf, start, stop, counts, largest):  # type: ignore[no-untyped-def]
    """Empty the leaves ``start .. stop - 1``, or only those that ``points[:m]`` will touch, where these are fewer."""
    if stop - start <= max(m, 1):
        clear_leaves(counts, largest, start, stop)
        return
    for i in range(m):
        at = leaf[points[i]]
        if start <= at < stop:
            clear_leaves(counts, largest, at, at + 1)


@njit(cache=True, nogil=True)
def add_point(at, c, w, counts, largest):  # type: ignore[no-untyped-def]
    """Add a point of class ``c`` and weight ``w`` to leaf ``at``; returns by how much the leaf's errors grow."""
    count = counts[at, c] + w
    counts[at, c] = count
    grown = max(count - largest[at], 0.0)
    largest[at] += grown
    return w - grown


@njit(cache=True, nogil=True)
def first_enough(points, begin, step, m, leaf, start, stop, but_from, but_to, data, holding):  # type: ignore[no-untyped-def]
    """How many of ``points[begin], points[begin + step], ...`` the leaves ``start .. stop - 1`` need for their floors.

    Args:
        points: Points; int32.
        begin: Where the first stands.
        step: 1 or -1.
        m: How many there are.
        leaf: Leaf of each point; ``[n]``.
        start: First leaf.
        stop: One past the last.
        but_from: First of the leaves among them that do not matter.
        but_to: One past the last of those.
        data: Points and floors.
        holding: What the leaves hold before; updated.

    Returns:
        That number, ``m + 1`` if ``m`` points are not enough.
    """
    rows, held, least_rows, least_held = holding.n_rows, holding.weight, data.floors.n_rows, data.floors.weight
    n_rows, weight = data.n_rows, data.weight
    short = 0
    for at in range(start, stop):
        if not but_from <= at < but_to:
            short += rows[at] < least_rows[at] or held[at] < least_held[at]
    if short == 0:
        return 0
    for p in range(m):
        e = points[begin + step * p]
        at = leaf[e]
        if start <= at < stop and not but_from <= at < but_to:
            was_short = rows[at] < least_rows[at] or held[at] < least_held[at]
            rows[at] += n_rows[e]
            held[at] += weight[e]
            if was_short and rows[at] >= least_rows[at] and held[at] >= least_held[at]:
                short -= 1
                if short == 0:
                    return p + 1
    return m + 1


@njit(cache=True, nogil=True)
def clear_holding(holding, start, stop):  # type: ignore[no-untyped-def]
    """Forget what the leaves ``start .. stop - 1`` hold towards their floors."""
    rows, held = holding.n_rows, holding.weight
    for at in range(start, stop):
        rows[at] = 0
        held[at] = 0.0


@njit(cache=True, nogil=True)
def hold(points, first, last, leaf, data, holding):  # type: ignore[no-untyped-def]
    """Count ``points[first:last]`` towards the floors of their leaves."""
    rows, held, n_rows, weight = holding.n_rows, holding.weight, data.n_rows, data.weight
    for i in range(first, last):
        e = points[i]
        rows[leaf[e]] += n_rows[e]
        held[leaf[e]] += weight[e]
