"""What the kernels of the branch and bound read (`Scene`) and write (`Work`), as flat arrays.

A search below a changed cut never touches the tests below it before it comes to them, so the leaf that a point
reaches from a node by the tree's own tests is worked out once, for every node and point (`Scene.leaf_of`); no kernel
routes a point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.lazy import Lazy, empty_lazy
from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.instance.ranks import MISSING
from thrifty.solvers.trees.sweeps.sweep import Floors


class Shape(NamedTuple):
    """The tree's shape, see `topology.Topology`; int64, as Python's numbers are, so that each kernel compiles once."""

    left: NDArray[np.int64]  # [n_nodes], as all of these
    right: NDArray[np.int64]
    leaf_start: NDArray[np.int64]
    leaf_stop: NDArray[np.int64]
    preorder: NDArray[np.int64]
    place: NDArray[np.int64]  # where each node stands in preorder


class Data(NamedTuple):
    """What the points weigh, and what leaves must hold of them; see `ranks.RankTable`."""

    y: NDArray[np.int32]  # [n]
    weight: NDArray[np.float64]  # [n]
    n_rows: NDArray[np.int64]  # [n]
    unavoidable: NDArray[np.float64]  # [n], errors that every tree makes: see `_unavoidable`
    floors: Floors
    has_floors: bool  # whether any floor is above zero
    tolerance: float


class Scene(NamedTuple):
    """A problem as the kernels read it; nothing in it changes but ``stop``.

    A kernel that is called often takes the parts that it needs: each array in an argument costs numba some time.
    """

    shape: Shape
    data: Data
    ranks: NDArray[np.int32]  # [d, n]
    leaf_of: NDArray[np.int32]  # [n_nodes, n], leaf that each point reaches from each node
    missing_left: NDArray[np.bool_]  # [n_nodes]
    turns_missing: bool
    allowed: NDArray[np.bool_]  # [n_nodes, d], features that a cut may be changed to
    allowed_below: NDArray[np.bool_]  # [n_nodes, d], features that some cut of the node's subtree may be changed to
    changeable: NDArray[np.bool_]  # [n_nodes], cuts that may be changed to anything
    n_changeable: NDArray[np.int32]  # [n_nodes], how many of those the node's subtree has
    stop: NDArray[np.uint8]  # [1], set to 1 from another thread to make every kernel return soon


def build_scene(problem: Problem) -> Scene:
    """Lay out ``problem``. Memory: 4 bytes a node and point."""
    topology, table = problem.topology, problem.table
    place = np.empty(topology.n_nodes, dtype=np.int64)
    place[topology.preorder] = np.arange(topology.n_nodes)
    allowed_below = problem.allowed.copy()
    changeable = np.asarray(problem.allowed.any(axis=1))
    n_changeable = changeable.astype(np.int32)
    for v in topology.cuts[::-1]:
        for child in (topology.left[v], topology.right[v]):
            allowed_below[v] |= allowed_below[child]
            n_changeable[v] += n_changeable[child]
    return Scene(
        shape=Shape(
            left=topology.left.astype(np.int64),
            right=topology.right.astype(np.int64),
            leaf_start=topology.leaf_start.astype(np.int64),
            leaf_stop=topology.leaf_stop.astype(np.int64),
            preorder=topology.preorder.astype(np.int64),
            place=place,
        ),
        data=Data(
            y=table.y,
            weight=table.weight,
            n_rows=table.n_rows,
            unavoidable=_unavoidable(problem),
            floors=problem.floors,
            has_floors=bool((problem.floors.n_rows > 0).any() or (problem.floors.weight > 0).any()),
            tolerance=table.tolerance,
        ),
        ranks=table.ranks,
        leaf_of=problem.leaf_table(problem.cuts),
        missing_left=np.ascontiguousarray(problem.cuts.missing_left),
        turns_missing=problem.turns_missing,
        allowed=problem.allowed,
        allowed_below=allowed_below,
        changeable=changeable,
        n_changeable=n_changeable,
        stop=np.zeros(1, dtype=np.uint8),
    )


def _unavoidable(problem: Problem) -> NDArray[np.float64]:
    """The weight of each point but the heaviest of its group (points that agree in every feature stay together)."""
    table = problem.table
    lightest_first = np.lexsort((np.arange(table.n_points)[::-1], table.weight, table.group))
    heaviest = lightest_first[np.flatnonzero(np.diff(table.group[lightest_first], append=-1))]
    unavoidable = table.weight.copy()
    unavoidable[heaviest] = 0.0
    return unavoidable


class Leaves(NamedTuple):
    """What the leaves hold while points are added to them."""

    counts: NDArray[np.float64]  # [n_leaves, n_classes]
    largest: NDArray[np.float64]  # [n_leaves], the largest entry of each row of counts
    holding: Floors  # rows and weight, counted where there are floors
    error: NDArray[np.float64]  # [n + 1], errors after each point


class Variants(NamedTuple):
    """The tests that a cut may be changed to; see `variants`."""

    sequence: NDArray[np.int32]  # [variants, n], points in the order in which they join a child
    error: NDArray[np.float64]  # [variants, n + 1], errors for each number of points joined; inf where no test is
    feature: NDArray[np.int64]  # [variants]
    missing_left: NDArray[np.bool_]  # [variants]
    least: NDArray[np.float64]  # [variants], least entry of error


class Groups(NamedTuple):
    """The positions of a variant by the points that can reach one cut below; see `two_changes`."""

    base: NDArray[np.float64]  # [n + 1], least error less that under the cut
    errors: NDArray[np.float64]  # [n + 1], those under the cut
    at: NDArray[np.int64]  # [n + 1], a position; see three_changes
    unavoidable: NDArray[np.float64]  # [n + 1], errors at the cut that every tree makes
    weight: NDArray[np.float64]  # [n + 1], weight at the cut
    of: NDArray[np.int64]  # [n], the first group that each point is in


class Totals(NamedTuple):
    """What an unchanged subtree does with some points; see `one_change.node_totals`."""

    errors: NDArray[np.float64]  # [n_nodes]
    unavoidable: NDArray[np.float64]  # [n_nodes], errors that every tree makes
    holds_floors: NDArray[np.bool_]  # [n_nodes]


class Work(NamedTuple):
    """Buffers of one thread; what a kernel leaves in them means nothing to the next."""

    leaves: Leaves
    variants: Variants
    groups: Groups
    lazy: tuple[Lazy, Lazy]
    at_cut: Totals  # of the subtree of a changed cut's child
    at_node: Totals  # with changed, best and test: see few_changes
    changed: NDArray[np.float64]  # [2, n_nodes, 3]
    best: NDArray[np.float64]  # [2, n_nodes, 3]
    test: NDArray[np.int64]  # [n_nodes, 3]
    order: NDArray[np.int32]  # [d, n], the points at a cut that is changed
    sorted: NDArray[np.int32]  # [d, n], points split down a tree
    listed: NDArray[np.int32]  # [d, n], the points that may reach one cut below
    points: NDArray[np.int32]  # [n], those among them that do; also the right half of a split
    low: NDArray[np.int64]  # [n_nodes], with high: where the points at each node stand in sorted
    high: NDArray[np.int64]  # [n_nodes]


def new_work(scene: Scene, n_classes: int) -> Work:
    """Buffers for one thread. Memory: about 42 bytes a point and feature, 12 more where missing directions turn."""
    d, n = scene.ranks.shape
    n_nodes, n_leaves = len(scene.shape.left), len(scene.data.floors.n_rows)
    turning = int((scene.ranks == MISSING).any(axis=1).sum()) if scene.turns_missing else 0
    v = d + turning
    return Work(
        leaves=Leaves(
            counts=np.zeros((n_leaves, n_classes)),
            largest=np.zeros(n_leaves),
            holding=Floors(np.zeros(n_leaves, dtype=np.int64), np.zeros(n_leaves)),
            error=np.empty(n + 1),
        ),
        variants=Variants(
            sequence=np.empty((v, n), dtype=np.int32),
            error=np.empty((v, n + 1)),
            feature=np.empty(v, dtype=np.int64),
            missing_left=np.empty(v, dtype=np.bool_),
            least=np.empty(v),
        ),
        groups=Groups(
            base=np.empty(n + 1),
            errors=np.empty(n + 1),
            at=np.empty(n + 1, dtype=np.int64),
            unavoidable=np.empty(n + 1),
            weight=np.empty(n + 1),
            of=np.empty(n, dtype=np.int64),
        ),
        lazy=(empty_lazy(d, n), empty_lazy(d, n)),
        at_cut=empty_totals(n_nodes),
        at_node=empty_totals(n_nodes),
        changed=np.empty((2, n_nodes, 3)),
        best=np.empty((2, n_nodes, 3)),
        test=np.empty((n_nodes, 3), dtype=np.int64),
        order=np.empty((d, n), dtype=np.int32),
        sorted=np.empty((d, n), dtype=np.int32),
        listed=np.empty((d, n), dtype=np.int32),
        points=np.empty(n, dtype=np.int32),
        low=np.empty(n_nodes, dtype=np.int64),
        high=np.empty(n_nodes, dtype=np.int64),
    )


def empty_totals(n_nodes: int) -> Totals:
    """Room for the totals of ``n_nodes`` nodes."""
    return Totals(np.zeros(n_nodes), np.zeros(n_nodes), np.ones(n_nodes, dtype=np.bool_))


@njit(cache=True, nogil=True)
def take_range(order, m, row, start, stop, features, out):  # type: ignore[no-untyped-def]
    """Copy the points whose entry in ``row`` is in ``start .. stop - 1``, for the marked features, in order.

    Args:
        order: ``[d, >= m]``, the same points in each row.
        m: How many.
        row: ``[n]``, leaf of each point.
        start: First leaf.
        stop: One past the last.
        features: Which rows of ``order`` to copy; bool ``[d]``.
        out: ``[d, >= m]``.

    Returns:
        How many were copied.
    """
    copied = 0
    for j in range(order.shape[0]):
        if features[j]:
            to = 0
            for i in range(m):
                e = order[j, i]
                if start <= row[e] < stop:
                    out[j, to] = e
                    to += 1
            copied = to
    return copied


@njit(cache=True, nogil=True)
def n_present(points, m, ranks):  # type: ignore[no-untyped-def]
    """How many of ``points[:m]``, sorted by ``ranks``, have a value (missing ones come last)."""
    while m > 0 and ranks[points[m - 1]] == MISSING:
        m -= 1
    return m
