"""What the method is measured against: alternating optimisation of the cuts, and the paper's programme taken literally.

`tao` is of use in its own right. `plain_dynamic_programme` is not: it is the dynamic programme as the paper writes it,
in plain Python, for a like-for-like comparison of speed.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.tree import DecisionTreeClassifier

from thrifty._common.checks import whole
from thrifty.solvers.trees.instance.problem import Cuts, Problem, build_problem
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING, RankTable
from thrifty.solvers.trees.model.topology import NO_NODE
from thrifty.solvers.trees.model.tree import Tree

TreeLike = TypeVar("TreeLike", Tree, DecisionTreeClassifier)

Box = tuple[tuple[int, int], ...]
"""Ranks (l, r] of each feature."""


def tao(
    tree: TreeLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    max_rounds: int = 100,
) -> TreeLike:
    """Tree alternating optimisation: each cut in turn gets the best test while everything else stays as it is.

    Leaves take their majority class. Then, from the bottom up, each cut gets the feature and threshold with the
    fewest errors, the classes of all leaves held fixed: only the rows that one of its children gets right and the
    other wrong matter, and each votes for a side with its weight. Rounds are repeated until no cut changes. Training
    errors never rise; where the search ends no single test helps as long as no leaf changes its class.

    Args:
        tree: A `Tree`, or a fitted ``DecisionTreeClassifier``. It is not modified.
        X: Training table, ``[n, n_features]``. A missing value follows each cut's missing direction.
        y: Classes, ``[n]``.
        sample_weight: ``[n]``, at least 0. ``None``: 1 each.
        max_rounds: Rounds, at most.

    Returns:
        A tree of the same shape and type.

    Raises:
        ValueError: The table does not fit the tree.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from thrifty.solvers.trees.rivals import tao
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_leaf_nodes=4, max_features=1, random_state=0).fit(X, y)
        >>> bool(tao(tree, X, y).score(X, y) >= tree.score(X, y))
        True

    Source:
        Carreira-Perpiñán and Tavallali, "Alternating optimization of decision trees, with application to learning
        sparse oblique trees", NeurIPS 2018; here with tests of one feature.
    """
    whole("max_rounds", max_rounds)
    ours = tree if isinstance(tree, Tree) else Tree.from_sklearn(tree)
    problem = build_problem(ours, X, y, sample_weight=sample_weight, min_samples_leaf=0)
    labels = ours.labels[problem.topology.leaves]
    cuts = problem.cuts
    for _ in range(max_rounds):
        counts = problem.leaf_counts(problem.leaf_of(cuts))
        at_old = counts[np.arange(len(counts)), labels]
        labels = np.where(at_old == counts.max(axis=1), labels, counts.argmax(axis=1))
        before, cuts = cuts, _one_round(problem, cuts, labels)
        if cuts is before:
            break
    better = problem.to_tree(cuts)
    return better if isinstance(tree, Tree) else better.to_sklearn(like=tree)


def _one_round(problem: Problem, cuts: Cuts, labels: NDArray[np.intp]) -> Cuts:
    """Each cut once, children first; the same ``cuts`` if none changes. ``labels`` are of the leaves."""
    table, topology = problem.table, problem.topology
    leaf = problem.leaf_of(cuts)  # tells who reaches a cut until a cut above it changes, which is later
    is_right: dict[int, NDArray[np.bool_]] = {}  # whether each point, put in at a node, gets its class
    for v in topology.preorder[::-1].tolist():
        left, right = int(topology.left[v]), int(topology.right[v])
        if left == NO_NODE:
            is_right[v] = labels[topology.leaf_start[v]] == table.y
            continue
        here = (leaf >= topology.leaf_start[v]) & (leaf < topology.leaf_stop[v])
        gain = here * table.weight * (is_right[left].astype(float) - is_right[right])  # of going left
        sent_left = partial(table.goes_left, missing_left=bool(cuts.missing_left[v]))
        now = float(gain[sent_left(int(cuts.feature[v]), int(cuts.rank[v]))].sum())
        gained, feature, rank = max(
            (_best_threshold(table, j, gain, bool(cuts.missing_left[v])) for j in range(table.n_features)),
            key=lambda found: found[0],
        )
        if gained > now + table.tolerance:
            cuts = cuts.with_cut(v, feature, rank, bool(cuts.missing_left[v]))
        goes_left = sent_left(int(cuts.feature[v]), int(cuts.rank[v]))
        is_right[v] = np.where(goes_left, is_right.pop(left), is_right.pop(right))
    return cuts


def _best_threshold(table: RankTable, j: int, gain: NDArray[np.float64], missing_left: bool) -> tuple[float, int, int]:
    """The most that a threshold on feature ``j`` gains, ``j``, and its rank, midway between the points that vote."""
    voters = table.order[j][gain[table.order[j]] != 0]
    ranks = table.ranks[j, voters]
    m = int(np.searchsorted(ranks, MISSING))
    apart = np.ones(m + 1, dtype=bool)
    apart[np.flatnonzero(np.diff(ranks[:m]) == 0) + 1] = False
    totals = np.concatenate([[0.0], np.cumsum(gain[voters[:m]])])
    p = int(np.where(apart, totals, -np.inf).argmax())
    gained = float(totals[p]) + (float(gain[voters[m:]].sum()) if missing_left else 0.0)
    low = int(ranks[p - 1]) if p > 0 else BELOW_ALL
    high = int(ranks[p]) if p < m else len(table.values[j])
    return gained, j, low if p in (0, m) else (low + high - 1) // 2


def plain_dynamic_programme(problem: Problem, k: int, *, time_limit: float) -> float:
    """Fewest errors within ``k`` changes by the recurrence of the paper, word for word.

    Boxes are intervals of ranks, a dictionary remembers (cut, box, budget), every threshold of the whole domain is
    tried, a leaf counts the examples inside its box, and work starts from the root, so that only what is reachable is
    computed. Neither missing values nor floors; a Python call for each level of the tree.

    Args:
        problem: The problem.
        k: Changes, at most.
        time_limit: Seconds.

    Raises:
        TimeoutError: The time ran out.
    """
    table, topology, cuts = problem.table, problem.topology, problem.cuts
    examples = [tuple(row) for row in table.ranks.T.tolist()]
    labels, weights = table.y.tolist(), table.weight.tolist()
    feature, rank = cuts.feature.tolist(), cuts.rank.tolist()
    lefts, rights = topology.left.tolist(), topology.right.tolist()
    may_test = [[j for j, allowed in enumerate(row) if allowed] for row in problem.allowed.tolist()]
    domains = [range(BELOW_ALL, size) for size in table.domain_sizes.tolist()]
    known: dict[tuple[int, Box, int], float] = {}
    deadline = perf_counter() + time_limit

    def fewest(v: int, box: Box, budget: int) -> float:
        if (v, box, budget) in known:
            return known[v, box, budget]
        if perf_counter() > deadline:
            raise TimeoutError(f"the plain dynamic programme took more than {time_limit:g} seconds")
        if lefts[v] == NO_NODE:
            errors = leaf(box)
        else:
            errors = split(v, box, feature[v], rank[v], budget)
            if budget > 0:
                for j in may_test[v]:
                    for x in domains[j]:
                        errors = min(errors, split(v, box, j, x, budget - 1))
        known[v, box, budget] = errors
        return errors

    def split(v: int, box: Box, j: int, x: int, budget: int) -> float:
        low, high = box[j]
        left = (*box[:j], (low, max(low, min(high, x))), *box[j + 1 :])
        right = (*box[:j], (min(high, max(low, x)), high), *box[j + 1 :])
        return min(
            fewest(lefts[v], left, on_left) + fewest(rights[v], right, budget - on_left)
            for on_left in range(budget + 1)
        )

    def leaf(box: Box) -> float:
        counts = [0.0] * table.n_classes
        for example, label, weight in zip(examples, labels, weights, strict=True):
            if all(low < value <= high for value, (low, high) in zip(example, box, strict=True)):
                counts[label] += weight
        return sum(counts) - max(counts)

    return fewest(0, tuple((BELOW_ALL, size - 1) for size in table.domain_sizes.tolist()), k)
