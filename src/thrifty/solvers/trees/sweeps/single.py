"""The best single change of a whole tree: k = 1 solved exactly in O(n * depth * d) after presorting.

The training points are kept sorted by every feature and split stably down the tree; at each cut every feature that
it may test is swept once (`moves`). What a cut can gain depends only on the points that reach it and on the tests
below it, so a repeated search looks again only at the cuts above and below the one that changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.model.labels import leaf_errors
from thrifty.solvers.trees.sweeps.moves import Domain, Move, Place, Positions, Ranking, Secondary, best_move, is_better
from thrifty.solvers.trees.sweeps.sweep import Points, empty_leaves, partition, side_leaves


@dataclass(frozen=True)
class Change:
    """Cut ``node`` of a tree gets another test."""

    node: int
    move: Move


class SingleChangeSearch:
    """Finds the best single change, again and again as changes are made.

    Attributes:
        cuts: The current tests.
        errors: The current training errors.
    """

    def __init__(self, problem: Problem, secondary: Secondary = "gini") -> None:
        self.problem = problem
        table, topology = problem.table, problem.topology
        n, n_leaves = table.n_points, topology.n_leaves
        self._points = Points(table.ranks, table.y, table.weight, table.n_rows)
        self._domain = Domain(np.concatenate(table.values), np.concatenate([[0], np.cumsum(table.domain_sizes)]))
        self._ranking = Ranking(table.tolerance, 1e-9 * float(table.weight.sum()), secondary == "margin")
        self._features = [np.flatnonzero(row) for row in problem.allowed]
        self._leaves = empty_leaves(n_leaves, table.n_classes)
        self._work = Positions(*(np.empty(n + 1) for _ in range(4)))
        self._leaf_left, self._leaf_right, self._spare = (np.empty(n, dtype=np.int32) for _ in range(3))
        self._sent_left = np.empty(n, dtype=bool)
        self._order = np.empty_like(table.order)
        self._threshold = problem.tree.threshold.copy()
        self._found: list[Move | None] = [None] * topology.n_nodes
        self._stale = np.ones(topology.n_nodes, dtype=bool)
        self.cuts = problem.cuts
        self._count_leaves()

    def _count_leaves(self) -> None:
        self._leaf = self.problem.leaf_of(self.cuts)
        counts = self.problem.leaf_counts(self._leaf)
        weight = counts.sum(axis=1)
        self._leaf_errors = leaf_errors(counts)
        self._leaf_gini = weight - np.square(counts).sum(axis=1) / np.where(weight > 0, weight, 1.0)
        self.errors = float(self._leaf_errors.sum())

    def best(self) -> Change | None:
        """The best change of the current tree; ``None`` if none makes fewer errors."""
        self._search_stale_cuts()
        best: Change | None = None
        for v in self.problem.topology.cuts:
            move = self._found[v]
            if move is not None and (best is None or is_better(move, best.move, self._ranking)):
                best = Change(int(v), move)
        return best

    def make(self, change: Change) -> None:
        """Apply a change that `best` returned."""
        v, move = change.node, change.move
        table, topology = self.problem.table, self.problem.topology
        threshold = table.threshold_between(move.feature, move.low, move.high)
        rank = table.rank_of(move.feature, threshold)
        self.cuts = self.cuts.with_cut(v, move.feature, rank, move.missing_left)
        self._threshold[v] = threshold
        self._stale[topology.ancestors(v)] = True
        self._stale[topology.subtree(v)] = True
        self._count_leaves()

    def _search_stale_cuts(self) -> None:
        """Walk the stale cuts in preorder, each point order sorted within the cut that is reached."""
        topology = self.problem.topology
        np.copyto(self._order, self.problem.table.order)
        low = np.zeros(topology.n_nodes, dtype=np.int64)
        high = np.zeros(topology.n_nodes, dtype=np.int64)
        high[0] = self.problem.table.n_points
        for v in topology.cuts:
            if not self._stale[v]:
                continue  # nothing below it is stale either
            self._stale[v] = False
            self._found[v] = None
            first, last = topology.leaf_start[v], topology.leaf_stop[v]
            errors = float(self._leaf_errors[first:last].sum())
            if errors <= self._ranking.tolerance:
                continue  # nothing to gain here or below
            n_left = self._sides(int(v), int(low[v]), int(high[v]))
            self._found[v] = self._sweep(int(v), int(low[v]), int(high[v]), errors)
            left, right = topology.left[v], topology.right[v]
            if last - first > 2:
                partition(self._order, low[v], high[v], self._sent_left, self._spare)
            low[left], high[left] = low[v], low[v] + n_left
            low[right], high[right] = low[v] + n_left, high[v]

    def _sides(self, v: int, low: int, high: int) -> int:
        topology, cuts = self.problem.topology, self.cuts
        return int(
            side_leaves(
                v, topology.left, topology.right, topology.leaf_start, cuts.feature, cuts.rank,
                cuts.missing_left, self._points.ranks, self._order[0, low:high],
                self._leaf, self._leaf_left, self._leaf_right, self._sent_left,
            )
        )  # fmt: skip

    def _sweep(self, v: int, low: int, high: int, errors: float) -> Move | None:
        if len(self._features[v]) == 0:
            return None
        topology = self.problem.topology
        first, last = int(topology.leaf_start[v]), int(topology.leaf_stop[v])
        place = Place(
            feature=int(self.cuts.feature[v]),
            threshold=float(self._threshold[v]),
            missing_left=bool(self.cuts.missing_left[v]),
            turns_missing=self.problem.turns_missing,
            first_leaf=first,
            middle_leaf=int(topology.leaf_stop[topology.left[v]]),
            last_leaf=last,
            errors=errors,
            gini=float(self._leaf_gini[first:last].sum()),
        )
        found = Move(
            *best_move(
                self._order, low, high, self._features[v], place, self._points, self._domain,
                self._leaf_left, self._leaf_right, self._leaves, self.problem.floors, self._work, self._ranking,
            )
        )  # fmt: skip
        return None if found.feature < 0 else found
