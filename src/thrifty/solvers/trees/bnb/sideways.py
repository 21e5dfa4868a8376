"""Changes of one cut that make as many errors as before, and the impurity by which to choose among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.memo import Memo
from thrifty.solvers.trees.bnb.nested import Search
from thrifty.solvers.trees.bnb.one_change import best_test
from thrifty.solvers.trees.bnb.scene import build_scene, n_present, new_work
from thrifty.solvers.trees.instance.problem import Cuts, Problem


def gini(problem: Problem, cuts: Cuts) -> float:
    """Weighted Gini impurity of the leaves: the sum of ``weight - squares / weight``."""
    counts = problem.leaf_counts(problem.leaf_of(cuts))
    weight = counts.sum(axis=1)
    return float((weight - np.square(counts).sum(axis=1) / np.where(weight > 0, weight, 1.0)).sum())


def equal_tests(problem: Problem) -> NDArray[np.int64]:
    """Every test in place of one cut that sends points elsewhere and leaves the errors as they are.

    Missing values keep their side. Floors are not looked at.

    Returns:
        Cut, feature and rank; int64 ``[tests, 3]``.
    """
    table, cuts = problem.table, problem.cuts
    scene = build_scene(problem)
    shape, work = scene.shape, new_work(scene, table.n_classes)
    search = Search(scene, work, Memo(0))
    tables = search.start(0, table.order, 0)
    found = [np.empty((0, 3), dtype=np.int64)]
    for u in tables.cuts(1):
        order = search.points_at(tables, u)
        a, b = int(shape.left[u]), int(shape.right[u])
        bounds = (int(shape.leaf_start[u]), int(shape.leaf_stop[a]), int(shape.leaf_stop[u]))
        for j in np.flatnonzero(scene.allowed[u]).tolist():
            ranks, m = scene.ranks[j], order.shape[1]
            present = n_present(order[j], m, ranks)
            cut = (*bounds, bool(scene.missing_left[u]), False)
            best_test(order[j], m, ranks, cut, scene.leaf_of[a], scene.leaf_of[b], -np.inf, scene.data, work.leaves)
            at = np.concatenate([[-1], ranks[order[j, :present]]]).astype(np.int64)
            equal = np.abs(work.leaves.error[: present + 1] - tables.totals.errors[u]) <= table.tolerance
            if j == cuts.feature[u]:
                equal &= at != at[at <= cuts.rank[u]].max(initial=-1)
            rank = at[equal]
            found.append(np.column_stack([np.full(len(rank), u), np.full(len(rank), j), rank]))
    return np.concatenate(found)
