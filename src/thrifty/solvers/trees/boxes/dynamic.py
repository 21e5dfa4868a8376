"""The dynamic programme over boxes: one engine for changes and for pruning.

All boxes that reach a cut are handled together: `expansion` lists what may happen at each and which boxes that hands
to the children, those are solved in turn, and `combination` puts the tables together. Work starts at the root's one
box, so only boxes are met that the operations still available reach; equal boxes are met once.

Chains of any length are fine: a cut's work is a generator that yields the child it waits for, and those that wait
stand on a list. When the memory for a cut's boxes runs short they are taken in several lots, which forget what they
have in common; when that for the choices runs short, those furthest down are forgotten and worked out again on the
way of the answer alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.boxes.boxes import (
    Boxes,
    Children,
    boxes_of,
    least_errors,
    no_children,
    one_box,
    point_table,
    some_boxes,
)
from thrifty.solvers.trees.boxes.cases import Moves, room_for_moves, take_moves
from thrifty.solvers.trees.boxes.combination import Choices, combine
from thrifty.solvers.trees.boxes.expansion import CutPlace, Workspace, expand
from thrifty.solvers.trees.boxes.sides import empty_sums
from thrifty.solvers.trees.boxes.splits import RAISE_LEFT, RAISE_RIGHT, Kind, all_splits
from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.instance.ranks import MISSING
from thrifty.solvers.trees.sweeps.sweep import empty_leaves

Progress = Callable[[int], None]

_MOVE_BYTES = 40
_CHILD_BYTES = 64
_LEAF_TABLE_BYTES = 64e6
_SLICE = 500_000
"""Moves between two looks at the clock."""


class Lot(NamedTuple):
    """How the entries of some boxes of one cut are reached: what is remembered for the answer."""

    first: int  # number of the first of these boxes
    choices: Choices  # by moves
    moves: Moves  # those chosen
    below: tuple[list[Lot] | None, list[Lot] | None]  # of both children; None once forgotten
    n_bytes: int  # with all below


Tables = tuple[NDArray[np.float64], list[Lot]]
"""Errors of every box and entry, ``[n_boxes, size]``, and how they are reached."""

_Work = Generator[tuple[int, Boxes], Tables, Tables]


class DynamicProgramme:
    """Fewest errors for each combination of budgets.

    Attributes:
        problem: The problem.
        splits: Table layout of each node.
        n_states: Boxes at cuts that were worked on.
        is_cut_short: Whether the time ran out: tables are lower bounds.
    """

    def __init__(
        self,
        problem: Problem,
        kinds: tuple[Kind, ...],
        n_replace: int = 0,
        n_raise: int = 0,
        *,
        leaf_floor: tuple[int, float] = (0, 0.0),
        time_limit: float | None = None,
        memory_limit_mb: float = 2048,
        progress: Progress | None = None,
    ) -> None:
        """Lay out the tables.

        Args:
            problem: The problem; its own ``allowed`` is not looked at.
            kinds: Kinds of change, at least one.
            n_replace: Cuts to remove by subtree replacement, at most.
            n_raise: Cuts to remove by subtree raising, at most.
            leaf_floor: Rows and weight asked of a leaf that replaces a subtree.
            time_limit: Seconds from now.
            memory_limit_mb: Memory for boxes and choices.
            progress: Called with the number of states so far.
        """
        self.problem, self.kinds = problem, kinds
        topology, table = problem.topology, problem.table
        self.splits = all_splits(topology, kinds, n_replace, n_raise)
        self.n_states = 0
        self.is_cut_short = False
        self._deadline = None if time_limit is None else perf_counter() + time_limit
        self._progress = progress
        self._limit = memory_limit_mb * 1e6
        self._held = 0.0  # by cuts that wait
        self._remembered = 0.0  # in lots
        self._points = point_table(table)
        self._has_missing = (table.ranks == MISSING).any(axis=1)
        self._sums = empty_sums(table.n_points)
        self._leaves = empty_leaves(topology.n_leaves, table.n_classes)
        self._subtree_rows = topology.sum_up(problem.floors.n_rows)
        self._subtree_weight = topology.sum_up(problem.floors.weight)
        self._leaf_floor = leaf_floor
        small = 4 * topology.n_nodes * table.n_points <= _LEAF_TABLE_BYTES
        self._leaf_table = problem.leaf_table(problem.cuts) if small else None

    def solve(self) -> Tables:
        """The tables of the root: of one box, with all points, every entry asked for."""
        if self.problem.topology.n_leaves == 1:
            return np.array([[self.problem.n_errors(self.problem.cuts)]]), []
        points = np.arange(self.problem.table.n_points, dtype=np.int32)
        return self.solve_box(0, points, np.ones(self.splits[0].n_changes, dtype=np.bool_))

    def solve_box(self, v: int, points: NDArray[np.int32], need: NDArray[np.bool_]) -> Tables:
        """The tables of cut ``v`` for one box.

        Args:
            v: A cut.
            points: The points in the box, ascending.
            need: Change budgets asked for, ``[n_changes]``; with one all smaller ones.
        """
        frames = [self._work(v, one_box(points, need))]
        reply: Tables | None = None
        while True:
            try:
                asked = frames[-1].send(reply)  # type: ignore[arg-type]  # the first is None
            except StopIteration as done:
                frames.pop()
                reply = done.value
                if not frames:
                    return done.value  # type: ignore[no-any-return]
            else:
                frames.append(self._work(*asked))
                reply = None

    def ignore_time(self) -> None:
        """From now on finish whatever is asked."""
        self._deadline = None

    def _work(self, v: int, boxes: Boxes) -> _Work:
        topology, splits, n = self.problem.topology, self.splits[v], len(boxes.start) - 1
        errors = np.empty((n, splits.size))
        lots: list[Lot] = []
        if n == 0:
            return errors, lots
        cut = self._place(v)
        n_changes, n_children = self._bounds(v, boxes)
        left, right = int(topology.left[v]), int(topology.right[v])
        first = 0
        while first < n:
            last = self._as_many_as_fit(first, n_changes, n_children)
            lot = some_boxes(boxes, first, last)
            expanded = self._expand(v, lot, cut, n_changes[first:last], n_children[first:last])
            if expanded is None:
                break
            moves, below = expanded
            held = _n_bytes(moves) + _n_bytes(below[0]) + _n_bytes(below[1])
            self._held += held
            on_left, lots_left = yield left, below[0]
            on_right, lots_right = yield right, below[1]
            self._held -= held
            combined = combine(
                lot, moves, splits, (on_left, self.splits[left]), (on_right, self.splits[right]),
                self.problem.table.tolerance, self._is_late,
            )  # fmt: skip
            if combined is None:
                break
            errors[first:last] = combined[0]
            lots.append(self._remember(first, combined[1], moves, lots_left, lots_right))
            first = last
        if first < n:  # the time ran out
            least = least_errors(some_boxes(boxes, first, n), self._points.unavoidable)
            errors[first:] = least[:, None] + splits.shape_only
        return errors, lots

    def _is_late(self) -> bool:
        if self._deadline is not None and perf_counter() > self._deadline:
            self.is_cut_short = True
        return self.is_cut_short

    def _place(self, v: int) -> CutPlace:
        problem, topology, splits = self.problem, self.problem.topology, self.splits[v]
        left, right = int(topology.left[v]), int(topology.right[v])
        allowed = np.array([kind.allowed[v] for kind in self.kinds])
        own = int(problem.cuts.feature[v])
        others = np.flatnonzero(allowed.any(axis=0))
        leaf = self._leaf_table
        rows, weight = self._subtree_rows, self._subtree_weight
        return CutPlace(
            feature=own,
            rank=int(problem.cuts.rank[v]),
            missing_left=bool(problem.cuts.missing_left[v]),
            features=np.concatenate([[own], others[others != own]]).astype(np.int64),
            allowed=allowed,
            turns_missing=np.array([kind.turns_missing for kind in self.kinds]),
            unit=splits.unit,
            needs_left=splits.needs_left,
            needs_right=splits.needs_right,
            first_leaf=int(topology.leaf_start[v]),
            middle_leaf=int(topology.leaf_stop[left]),
            last_leaf=int(topology.leaf_stop[v]),
            leaf_left=problem.leaf_of(problem.cuts, left) if leaf is None else leaf[left],
            leaf_right=problem.leaf_of(problem.cuts, right) if leaf is None else leaf[right],
            raises=np.diff(splits.start)[[RAISE_LEFT, RAISE_RIGHT]] > 0,
            prunes=np.array([self.splits[u].n_prunings > 1 for u in (v, left, right)]),
            least_rows=np.array([min(self._leaf_floor[0], rows[v]), rows[left], rows[right]], dtype=np.int64),
            least_weight=np.array([min(self._leaf_floor[1], weight[v]), weight[left], weight[right]]),
            tolerance=problem.table.tolerance,
        )

    def _bounds(self, v: int, boxes: Boxes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """At most how many moves each box has, and how many boxes it hands to each child; ``[n]`` and ``[n, 2]``."""
        topology, splits, size = self.problem.topology, self.splits[v], np.diff(boxes.start)
        n_moves = np.full(len(size), 4, dtype=np.int64)
        n_children = np.full((len(size), 2), 2, dtype=np.int64)
        for q, kind in enumerate(self.kinds):
            if splits.unit[q] < 0:
                continue
            sweeps, tests, is_deep = 0, np.zeros(len(size), dtype=np.int64), np.zeros(len(size), dtype=np.bool_)
            for j in np.flatnonzero(kind.allowed[v]):
                turns = 1 + int(kind.turns_missing and self._has_missing[j])
                sweeps += turns
                tests += turns * (np.minimum(size, self.problem.table.domain_sizes[j]) + 1)
            for side, (needs, child) in enumerate(
                ((splits.needs_left, topology.left[v]), (splits.needs_right, topology.right[v]))
            ):
                asked = needs[1 + q, 1:]
                deep = boxes.need[:, asked[asked >= 0]].any(axis=1) | (self.splits[child].n_prunings > 1)
                n_children[:, side] += tests * (deep & boxes.need[:, splits.unit[q]])
                is_deep |= deep
            n_moves += (sweeps + tests * is_deep) * boxes.need[:, splits.unit[q]]
        return n_moves, n_children

    def _as_many_as_fit(self, first: int, n_moves: NDArray[np.int64], n_children: NDArray[np.int64]) -> int:
        """How many boxes, from ``first`` on, half of what memory is left can take; one at least."""
        room = (self._limit - self._held - self._remembered) / 2
        needed = np.cumsum(n_moves[first:] * _MOVE_BYTES + n_children[first:].sum(axis=1) * _CHILD_BYTES)
        return first + max(1, int(np.searchsorted(needed, room, side="right")))

    def _expand(
        self, v: int, boxes: Boxes, cut: CutPlace, n_moves: NDArray[np.int64], n_children: NDArray[np.int64]
    ) -> tuple[Moves, tuple[Boxes, Boxes]] | None:
        """All moves of these boxes and the boxes they hand down; ``None`` if the time ran out."""
        n = len(n_moves)
        moves = room_for_moves(n, int(n_moves.sum()))
        collected: list[Children] = []
        for side, child in enumerate((self.problem.topology.left[v], self.problem.topology.right[v])):
            most = int(n_children[:, side].sum()) if self.problem.topology.left[child] >= 0 else 0
            collected.append(no_children(most, self.splits[child].n_changes))
        work = Workspace(
            self._sums, self._leaves, self.problem.floors,
            np.zeros(cut.needs_left.shape, dtype=np.bool_), np.zeros(cut.needs_right.shape, dtype=np.bool_),
            np.zeros((2, 1 + len(self.kinds)), dtype=np.bool_),
        )  # fmt: skip
        ends = np.searchsorted(np.cumsum(n_moves), np.arange(_SLICE, int(n_moves.sum()) + _SLICE, _SLICE), side="left")
        first, count = 0, 0
        for last in np.minimum(ends + 1, n):
            if self._is_late():
                return None
            if last > first:
                count = expand(first, last, boxes, cut, self._points, work, moves, count, collected[0], collected[1])
                self.n_states += int(last - first)
                first = int(last)
            if self._progress is not None:
                self._progress(self.n_states)
        moves = take_moves(moves, np.arange(count))
        left, right = (
            boxes_of(children, boxes, self._points, left=side == 0) for side, children in enumerate(collected)
        )
        return moves, (left, right)

    def _remember(self, first: int, choices: Choices, moves: Moves, left: list[Lot], right: list[Lot]) -> Lot:
        used, renumbered = np.unique(choices.move, return_inverse=True)
        skipped = int(len(used) > 0 and used[0] < 0)
        kept = Choices((renumbered - skipped).astype(np.int32).reshape(choices.move.shape), choices.triple)
        chosen = take_moves(moves, used[skipped:])
        own = _n_bytes(kept) + _n_bytes(chosen)
        under = sum(lot.n_bytes for lot in (*left, *right))
        self._remembered += own
        if self._remembered > self._limit / 2:
            self._remembered -= under
            return Lot(first, kept, chosen, (None, None), own)
        return Lot(first, kept, chosen, (left, right), own + under)


def _n_bytes(arrays: tuple[NDArray, ...]) -> int:
    return sum(array.nbytes for array in arrays)
