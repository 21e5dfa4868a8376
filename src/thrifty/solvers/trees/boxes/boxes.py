"""Boxes, as the dynamic programme stores them: the set of points in each.

A box of the paper is an interval of every feature. Two boxes that hold the same points are the same state, so a state
is the *set* of its points, which stands for the smallest box around them, works
for any number of features, and goes on working where missing values cut holes into boxes. At each cut there are at
most min((D + 1)^{2d}, n^{2d}) such sets.

A set is looked up by a key of 128 bits, the sum of a random key of each point. Sums are taken along a sweep, one
addition a point, so the sets on both sides of every threshold have theirs before any of them is written down. Two
different sets have the same key with probability 2^-128.

Errors that no tree avoids (points that agree in every feature but not in class) are counted the same way: each such
group's are noted at its first point, and a set contains a group as a whole or not at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.ranks import MISSING, RankTable
from thrifty.solvers.trees.model.labels import leaf_errors

EVERYTHING = -1
"""Feature of a child that is its parent's whole set (the box of a raised subtree)."""

_KEY_SEED = 20260617


class PointTable(NamedTuple):
    """The training points as the kernels read them; see `ranks.RankTable`."""

    ranks: NDArray[np.int32]  # [d, n]
    order: NDArray[np.int32]  # [d, n]
    place: NDArray[np.int32]  # [d, n], the inverse of order
    y: NDArray[np.int32]  # [n]
    weight: NDArray[np.float64]  # [n]
    n_rows: NDArray[np.int64]  # [n]
    unavoidable: NDArray[np.float64]  # [n], errors of a point's group at its first point, else 0
    key: NDArray[np.uint64]  # [2, n], random


class Boxes(NamedTuple):
    """The sets that reach one node; those of box ``i`` are ``points[start[i]:start[i + 1]]``, ascending."""

    start: NDArray[np.int64]  # [n_boxes + 1]
    points: NDArray[np.int32]
    need: NDArray[np.bool_]  # [n_boxes, n_changes], the change budgets whose entries are asked for


class Children(NamedTuple):
    """Distinct boxes that one child of a cut receives, not written down yet: a hash table and a recipe each."""

    slots: NDArray[np.int32]  # open addressing: number of a child, -1 where free; a power of two
    key: NDArray[np.uint64]  # [capacity, 2]
    parent: NDArray[np.int32]  # box at the cut that it is a part of,
    feature: NDArray[np.int32]  # feature of the test, or EVERYTHING,
    rank: NDArray[np.int32]  # and its rank
    missing_left: NDArray[np.bool_]
    size: NDArray[np.int64]  # points in it
    need: NDArray[np.bool_]  # [capacity, n_changes of the child]
    total: NDArray[np.int64]  # [1], how many there are


def point_table(table: RankTable) -> PointTable:
    """What the kernels need of a table."""
    place = np.empty_like(table.order)
    for j in range(table.n_features):
        place[j, table.order[j]] = np.arange(table.n_points, dtype=np.int32)
    n_groups = int(table.group.max()) + 1
    unavoidable = np.zeros(table.n_points)
    first = np.unique(table.group, return_index=True)[1]
    unavoidable[first] = leaf_errors(table.class_counts(table.group, n_groups))
    random = np.random.default_rng(_KEY_SEED)
    key = random.integers(0, 2**64, size=(2, table.n_points), dtype=np.uint64)
    return PointTable(
        table.ranks, table.order, place, table.y, table.weight, table.n_rows, unavoidable, key
    )  # fmt: skip


def one_box(points: NDArray[np.int32], need: NDArray[np.bool_]) -> Boxes:
    """A single box with all of ``points``."""
    return Boxes(np.array([0, len(points)], dtype=np.int64), points.astype(np.int32), need[None, :].copy())


def some_boxes(boxes: Boxes, first: int, last: int) -> Boxes:
    """Boxes ``first .. last - 1`` alone."""
    if (first, last) == (0, len(boxes.start) - 1):
        return boxes
    start = boxes.start[first : last + 1]
    return Boxes(start - start[0], boxes.points[start[0] : start[-1]], boxes.need[first:last])


def no_children(capacity: int, n_changes: int) -> Children:
    """Room for ``capacity`` children."""
    n_slots = 1 << max(4, (2 * capacity - 1).bit_length())
    return Children(
        slots=np.full(n_slots, -1, dtype=np.int32),
        key=np.empty((capacity, 2), dtype=np.uint64),
        parent=np.empty(capacity, dtype=np.int32),
        feature=np.empty(capacity, dtype=np.int32),
        rank=np.empty(capacity, dtype=np.int32),
        missing_left=np.empty(capacity, dtype=np.bool_),
        size=np.empty(capacity, dtype=np.int64),
        need=np.empty((capacity, n_changes), dtype=np.bool_),
        total=np.zeros(1, dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def find_or_add(key1, key2, children):  # type: ignore[no-untyped-def]
    """The number of the child with this key, and whether it is new (the caller then writes its recipe)."""
    mask = np.uint64(len(children.slots) - 1)
    at = key1 & mask
    while True:
        i = children.slots[np.int64(at)]
        if i < 0:
            i = np.int32(children.total[0])
            children.slots[np.int64(at)] = i
            children.key[i, 0], children.key[i, 1] = key1, key2
            children.total[0] += 1
            return i, True
        if children.key[i, 0] == key1 and children.key[i, 1] == key2:
            return i, False
        at = (at + np.uint64(1)) & mask


def boxes_of(children: Children, parents: Boxes, table: PointTable, *, left: bool) -> Boxes:
    """Write the children down.

    Args:
        children: What `find_or_add` collected.
        parents: Boxes at the cut.
        table: All points.
        left: Whether they are what the tests send left, or right.
    """
    n = int(children.total[0])
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(children.size[:n], out=start[1:])
    points = np.empty(start[-1], dtype=np.int32)
    _write(children, parents, table, left, start, points)
    return Boxes(start, points, children.need[:n].copy())


@njit(cache=True, nogil=True)
def _write(children, parents, table, left, start, points):  # type: ignore[no-untyped-def]
    for i in range(len(start) - 1):
        to, parent, j = start[i], children.parent[i], children.feature[i]
        for at in range(parents.start[parent], parents.start[parent + 1]):
            e = parents.points[at]
            if j == EVERYTHING or is_sent_left(table.ranks[j, e], children.rank[i], children.missing_left[i]) == left:
                points[to] = e
                to += 1


@njit(cache=True, nogil=True)
def is_sent_left(rank, cut_rank, missing_left):  # type: ignore[no-untyped-def]
    """Whether a point with this rank goes left at a cut."""
    return missing_left if rank == MISSING else rank <= cut_rank


@njit(cache=True, nogil=True)
def least_errors(boxes, unavoidable):  # type: ignore[no-untyped-def]
    """Unavoidable errors of each box; float64 ``[n_boxes]``."""
    least = np.zeros(len(boxes.start) - 1)
    for i in range(len(least)):
        for at in range(boxes.start[i], boxes.start[i + 1]):
            least[i] += unavoidable[boxes.points[at]]
    return least
