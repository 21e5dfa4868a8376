"""Replacement and raising by trying everything: the oracle of the table of four budgets."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from thrifty.solvers.trees.model.labels import leaf_errors
from thrifty.solvers.trees.small.brute import tests_at

LEAF = "leaf"


def all_prunings(tree):
    """Every tree that replacement and raising make, as nested tuples, each with the budgets that it can be charged to.

    A pruned tree is ``(LEAF, node)`` or ``(cut, left, right)``; nodes are those of ``tree``. Yields pairs of such a
    tree and a set of (cuts removed by replacement, cuts removed by raising).
    """
    return _prunings(tree, 0)


def _prunings(tree, v):
    if tree.left[v] == -1:
        return [((LEAF, v), {(0, 0)})]
    found = []
    s = tree.topology.subtree_cuts
    size, left, right = int(s[v]), int(tree.left[v]), int(tree.right[v])
    for (a, charges_a), (b, charges_b) in product(_prunings(tree, left), _prunings(tree, right)):
        found.append(((v, a, b), {(p + r, q + t) for p, q in charges_a for r, t in charges_b}))
    found.append(((LEAF, v), {(n, size - n) for n in range(1, size + 1)}))
    for child, other in ((left, right), (right, left)):
        gone = int(s[other]) + 1
        for shape, charges in _prunings(tree, child):
            found.append((shape, {(p + n, q + gone - n) for p, q in charges for n in range(gone)}))
    return found


def cuts_of(shape):
    """The cuts of a pruned tree."""
    return [] if shape[0] == LEAF else [shape[0], *cuts_of(shape[1]), *cuts_of(shape[2])]


def errors_of(problem, shape, cuts, least_rows):
    """Majority errors of a pruned tree; inf if a leaf holds less than it must."""
    table = problem.table
    rows_given = problem.topology.sum_up(problem.floors.n_rows)
    pending, total = [(shape, np.arange(table.n_points))], 0.0
    while pending:
        (v, *children), points = pending.pop()
        if v == LEAF:
            counts = np.bincount(table.y[points], weights=table.weight[points], minlength=table.n_classes)
            total += float(leaf_errors(counts[None])[0])
            if table.n_rows[points].sum() < min(least_rows, rows_given[children[0]]):
                return np.inf
            continue
        rank = table.ranks[cuts.feature[v], points]
        goes_left = np.where(rank == np.iinfo(np.int32).max, cuts.missing_left[v], rank <= cuts.rank[v])
        pending += [(children[0], points[goes_left]), (children[1], points[~goes_left])]
    return total


def brute_table(problem, budgets, least_rows):
    """The table of four budgets, exchange including adjustment; `problem` has operation ``"both"``."""
    k_adjust, k_exchange, n_prune, n_raise = budgets
    errors = np.full(tuple(n + 1 for n in budgets), np.inf)
    own = problem.allowed & (np.arange(problem.table.n_features) == problem.cuts.feature[:, None])
    adjusting = type(problem)(**{**problem.__dict__, "allowed": own, "turns_missing": False})
    for shape, charges in all_prunings(problem.tree):
        cuts = cuts_of(shape)
        within = [(r, q) for r, q in charges if r <= n_prune and q <= n_raise]
        if not within:
            continue
        for a, e in product(range(k_adjust + 1), range(k_exchange + 1)):
            for adjusted in combinations(cuts, a):
                for exchanged in combinations([v for v in cuts if v not in adjusted], e):
                    options = [tests_at(adjusting, v) for v in adjusted] + [tests_at(problem, v) for v in exchanged]
                    for tests in product(*options):
                        changed = problem.cuts
                        for v, test in zip((*adjusted, *exchanged), tests, strict=True):
                            changed = changed.with_cut(v, *test)
                        found = errors_of(problem, shape, changed, least_rows)
                        for r, q in within:
                            errors[a, e, r, q] = min(errors[a, e, r, q], found)
    for axis in (0, 1):
        errors = np.minimum.accumulate(errors, axis=axis)
    return errors
