"""One local-search problem: the tree's cuts on ranks, the training points, and what may be changed.

Every solver takes a `Problem` and returns `Cuts`; `Problem.to_tree` turns them into a tree. Only the shape of the
tree is fixed here; leaves always take their majority class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import is_number, one_of, whole
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING, RankTable, rank_table
from thrifty.solvers.trees.model.labels import leaf_errors
from thrifty.solvers.trees.model.topology import Topology
from thrifty.solvers.trees.model.tree import NO_FEATURE, Tree
from thrifty.solvers.trees.model.validation import check_table
from thrifty.solvers.trees.sweeps.sweep import Floors, leaf_numbers

Operation = Literal["adjust", "exchange", "both"]
Features = Sequence[int | str] | Mapping[int, Sequence[int | str]] | None


@dataclass(frozen=True, eq=False)
class Cuts:
    """What a search changes: the test at each cut. Entries at leaves mean nothing.

    Attributes:
        feature: Feature *of the rank table* that a cut tests, -1 at a leaf; int32 ``[n_nodes]``.
        rank: Largest rank that goes left, -1 for none; int32 ``[n_nodes]``.
        missing_left: Whether a missing value goes left; bool ``[n_nodes]``.
    """

    feature: NDArray[np.int32]
    rank: NDArray[np.int32]
    missing_left: NDArray[np.bool_]

    def with_cut(self, v: int, feature: int, rank: int, missing_left: bool) -> Cuts:
        """A copy in which cut ``v`` has another test."""
        changed = Cuts(self.feature.copy(), self.rank.copy(), self.missing_left.copy())
        changed.feature[v], changed.rank[v], changed.missing_left[v] = feature, rank, missing_left
        return changed

    def with_cut_of(self, v: int, other: Cuts) -> Cuts:
        """A copy in which cut ``v`` has the test that it has in ``other``."""
        return self.with_cut(v, int(other.feature[v]), int(other.rank[v]), bool(other.missing_left[v]))


@dataclass(frozen=True, eq=False)
class Problem:
    """A tree, a training table on ranks, and the changes allowed.

    Attributes:
        tree: The tree as given.
        table: The training points.
        cuts: The tree's tests on ranks.
        allowed: Features (of the table) that each cut may be changed to; bool ``[n_nodes, d]``, all False at a
            leaf or a frozen cut. For adjustment that is the cut's own feature.
        turns_missing: Whether a change may also turn a cut's missing direction (exchange) or keeps it (adjustment).
        floors: Rows and weight that each leaf must hold. A leaf that holds less than is asked as given may stay so
            but not shrink: its floor is what it holds.
        given_errors: Training errors of the tree with the labels that it came with.
        is_reasonable: Whether as given no leaf is empty and each predicts one of its most frequent classes.
    """

    tree: Tree
    table: RankTable
    cuts: Cuts
    allowed: NDArray[np.bool_]
    turns_missing: bool
    floors: Floors
    given_errors: float
    is_reasonable: bool

    @property
    def topology(self) -> Topology:
        """The tree's shape."""
        return self.tree.topology

    def leaf_of(self, cuts: Cuts, start: int = 0) -> NDArray[np.int32]:
        """Number of the leaf that each point reaches from node ``start``; int32 ``[n]``."""
        leaf = np.empty(self.table.n_points, dtype=np.int32)
        topology = self.topology
        leaf_numbers(
            topology.left, topology.right, topology.leaf_start,
            cuts.feature, cuts.rank, cuts.missing_left, self.table.ranks, start, leaf,
        )  # fmt: skip
        return leaf

    def leaf_table(self, cuts: Cuts) -> NDArray[np.int32]:
        """Leaf that each point would reach from *every* node; int32 ``[n_nodes, n]``, one pass bottom-up."""
        topology = self.topology
        leaf = np.empty((topology.n_nodes, self.table.n_points), dtype=np.int32)
        leaf[topology.leaves] = np.arange(topology.n_leaves)[:, None]
        for v in topology.cuts[::-1]:
            goes_left = self.table.goes_left(cuts.feature[v], cuts.rank[v], cuts.missing_left[v])
            leaf[v] = np.where(goes_left, leaf[topology.left[v]], leaf[topology.right[v]])
        return leaf

    def leaf_counts(self, leaf: NDArray[np.int32]) -> NDArray[np.float64]:
        """Weight of each class at each leaf, ``[n_leaves, n_classes]``, given each point's leaf."""
        return self.table.class_counts(leaf, self.topology.n_leaves)

    def n_errors(self, cuts: Cuts) -> float:
        """Training errors under ``cuts`` when every leaf takes its majority class."""
        return float(leaf_errors(self.leaf_counts(self.leaf_of(cuts))).sum())

    def keeps_floors(self, cuts: Cuts) -> bool:
        """Whether every leaf holds its floor of rows."""
        leaf = self.leaf_of(cuts)
        weight = self.leaf_counts(leaf).sum(axis=1)
        return bool((self._rows(leaf) >= self.floors.n_rows).all() and (weight >= self.floors.weight).all())

    def _rows(self, leaf: NDArray[np.int32]) -> NDArray[np.int64]:
        rows = np.bincount(leaf, weights=self.table.n_rows, minlength=self.topology.n_leaves)
        return rows.astype(np.int64)

    def changed(self, cuts: Cuts) -> list[int]:
        """Cuts whose test differs from the tree's as given, in preorder."""
        was = self.cuts
        differs = (cuts.feature != was.feature) | (cuts.rank != was.rank) | (cuts.missing_left != was.missing_left)
        return [int(v) for v in self.topology.cuts if differs[v]]

    def to_tree(self, cuts: Cuts) -> Tree:
        """The tree with these tests, statistics and majority classes from the training points.

        A changed cut's threshold is put midway between the two values nearest to it among the points that reach it
        (among all points, where those are on one side), which moves no training row. Other cuts keep theirs.
        """
        topology, leaf, feature = self.topology, self.leaf_of(cuts), self.tree.feature.copy()
        moved_to = self._moved(cuts)
        feature[moved_to] = self.table.columns[cuts.feature[moved_to]]
        moved = replace(
            self.tree,
            feature=feature,
            threshold=self.thresholds(cuts, leaf),
            missing_left=None if self.tree.missing_left is None else cuts.missing_left,
        )
        counts = topology.sum_up(self.leaf_counts(leaf))
        return moved.relabel(counts, topology.sum_up(self._rows(leaf)))

    def thresholds(self, cuts: Cuts, leaf: NDArray[np.int32]) -> NDArray[np.float64]:
        """The thresholds that :meth:`to_tree` puts, ``[n_nodes]``; ``leaf`` is the leaf of each point by these cuts."""
        topology, table = self.topology, self.table
        threshold = self.tree.threshold.copy()
        for v in self._moved(cuts):
            j, rank = int(cuts.feature[v]), int(cuts.rank[v])
            here = table.ranks[j, (leaf >= topology.leaf_start[v]) & (leaf < topology.leaf_stop[v])]
            low, high = here[here <= rank].max(initial=BELOW_ALL), here[here > rank].min(initial=MISSING)
            one_sided = low < 0 or high == MISSING
            threshold[v] = table.threshold_at(j, rank) if one_sided else table.threshold_between(j, int(low), int(high))
        return threshold

    def _moved(self, cuts: Cuts) -> NDArray[np.intp]:
        """The cuts whose feature or rank is another than the given tree's; their missing direction does not count."""
        nodes, was = self.topology.cuts, self.cuts
        moved: NDArray[np.intp] = nodes[((cuts.feature != was.feature) | (cuts.rank != was.rank))[nodes]]
        return moved


def build_problem(
    tree: Tree,
    X: ArrayLike,
    y: ArrayLike,
    *,
    operation: Operation = "exchange",
    sample_weight: ArrayLike | None = None,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    features: Features = None,
    frozen: Collection[int] = (),
) -> Problem:
    """Check a table against a tree and rank it.

    Args:
        tree: The tree to improve.
        X: Training table, ``[n, n_features]``.
        y: Classes, ``[n]``, all among the tree's.
        operation: ``"adjust"``: a change moves a cut's threshold. ``"exchange"``: it puts another test in the cut's
            place, on any of ``features``. ``"both"``: either, so a cut may also stay on its own feature though that
            is not among ``features``.
        sample_weight: ``[n]``; rows of weight 0 are left out. ``None``: 1 each.
        min_samples_leaf: Rows (not weight) that a change must leave in each leaf; 0 allows empty leaves, as in the
            paper. A leaf that holds fewer as given may stay, but not shrink.
        min_weight_fraction_leaf: The same for the share of the total weight, 0 to 0.5.
        features: Columns, by number or name, that a cut may be exchanged to: one list, or one for each cut (node
            number), where cuts not named are free. ``None``: all.
        frozen: Cuts (node numbers) that stay as they are.

    Raises:
        ValueError: An argument does not fit; the message names it.
    """
    one_of("operation", operation, ("adjust", "exchange", "both"))
    whole("min_samples_leaf", min_samples_leaf, least=0, what="a whole number of rows")
    if not (is_number(min_weight_fraction_leaf) and 0.0 <= min_weight_fraction_leaf <= 0.5):
        raise ValueError(f"min_weight_fraction_leaf: expected a share from 0 to 0.5, got {min_weight_fraction_leaf!r}")
    if operation == "adjust" and features is not None:
        raise ValueError("features: expected None with operation='adjust', which changes no feature, got a list")
    topology = tree.topology
    allowed = _allowed(tree, operation, features)
    allowed[_cut_numbers(tree, frozen, "frozen")] = False

    compared, codes, weight = check_table(tree, X, y, sample_weight)
    cuts = topology.cuts
    usable = np.concatenate([np.flatnonzero(allowed.any(axis=0)), tree.feature[cuts]])
    columns = np.unique(usable).astype(np.int32)
    if len(columns) == 0:
        columns = np.zeros(1, dtype=np.int32)  # a single leaf: any column will do
    table = rank_table(compared, codes, weight, len(tree.classes), columns)

    feature = np.full(tree.n_nodes, NO_FEATURE, dtype=np.int32)
    feature[cuts] = np.searchsorted(columns, tree.feature[cuts])
    rank = np.zeros(tree.n_nodes, dtype=np.int32)
    for v in cuts:
        rank[v] = table.rank_of(int(feature[v]), float(tree.threshold[v]))
    missing_left = tree.missing_left if tree.missing_left is not None else np.zeros(tree.n_nodes, dtype=np.bool_)
    problem = Problem(
        tree=tree,
        table=table,
        cuts=Cuts(feature, rank, missing_left),
        allowed=np.ascontiguousarray(allowed[:, columns]),
        turns_missing=operation != "adjust",
        floors=Floors(np.zeros(topology.n_leaves, dtype=np.int64), np.zeros(topology.n_leaves)),
        given_errors=0.0,
        is_reasonable=False,
    )
    leaf = problem.leaf_of(problem.cuts)
    counts = problem.leaf_counts(leaf)
    labels = tree.labels[topology.leaves]
    right = counts[np.arange(topology.n_leaves), labels]
    return replace(
        problem,
        floors=Floors(
            np.minimum(problem._rows(leaf), min(min_samples_leaf, len(codes))),
            np.minimum(counts.sum(axis=1), min_weight_fraction_leaf * counts.sum()) - table.tolerance,
        ),
        given_errors=float((counts.sum(axis=1) - right).sum()),
        is_reasonable=bool(((counts.max(axis=1) > 0) & (right == counts.max(axis=1))).all()),
    )


def _allowed(tree: Tree, operation: Operation, features: Features) -> NDArray[np.bool_]:
    """Columns of the user's table that each cut may test; bool ``[n_nodes, n_features]``."""
    allowed = np.zeros((tree.n_nodes, tree.n_features), dtype=bool)
    cuts = tree.topology.cuts
    if operation != "adjust":
        if features is None:
            allowed[cuts] = True
        elif isinstance(features, Mapping):
            allowed[cuts] = True
            for v in _cut_numbers(tree, list(features), "features"):
                allowed[v] = False
                allowed[v, _column_numbers(tree, features[v])] = True
        else:
            columns = np.array(_column_numbers(tree, features), dtype=np.intp)
            allowed[cuts[:, None], columns] = True
    if operation != "exchange":
        allowed[cuts, tree.feature[cuts]] = True
    return allowed


def _cut_numbers(tree: Tree, given: Collection[int], argument: str) -> list[int]:
    if not isinstance(given, Iterable):
        raise ValueError(f"{argument}: expected a list of cuts, by node number, got {given!r}")
    cuts: set[int] = set(tree.topology.cuts.tolist())
    if strange := [v for v in given if v not in cuts]:
        raise ValueError(f"{argument}: expected cuts of the tree, {sorted(cuts)[:20]}, got {strange[:5]}")
    return [int(v) for v in given]


def _column_numbers(tree: Tree, given: Sequence[int | str]) -> list[int]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(f"features: expected a list of columns, by number or name, got {given!r}")
    names = {} if tree.feature_names is None else {name: j for j, name in enumerate(tree.feature_names)}
    numbers = [_column_number(column, names) for column in given]
    if strange := [column for column, j in zip(given, numbers, strict=True) if not 0 <= j < tree.n_features]:
        known = f"columns are 0..{tree.n_features - 1}" + (f" or {list(names)[:20]}" if names else "")
        raise ValueError(f"features: expected columns, got {strange[:5]}; {known}")
    return numbers


def _column_number(column: int | str, names: Mapping[str, int]) -> int:
    """-1 for what is no column."""
    if isinstance(column, str):
        return names.get(column, -1)
    return int(column) if isinstance(column, (int, np.integer)) and not isinstance(column, bool) else -1
