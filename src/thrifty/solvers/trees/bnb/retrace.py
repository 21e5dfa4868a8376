"""From the tables of a finished search to the tests of the tree behind them.

The search keeps numbers, not trees. The tests below a changed cut are found by solving the few subtrees on the way of
the best tree once more, now with its errors as the threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from thrifty.solvers.trees.bnb.few_changes import VALUE
from thrifty.solvers.trees.bnb.nested import Search, constant
from thrifty.solvers.trees.bnb.tables import Tables
from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.sweeps.moves import Secondary
from thrifty.solvers.trees.sweeps.single import SingleChangeSearch


def retrace(problem: Problem, search: Search, tables: Tables, budget: int, *, complete: bool) -> Cuts:
    """The tree with ``tables.best[VALUE, tables.node, budget]`` errors.

    Args:
        problem: The problem.
        search: Any search of it, with an empty memo for a result that does not depend on what was asked before.
        tables: Tables of the whole tree.
        budget: Changes, at most.
        complete: Whether the tables come from a search that ran to its end.
    """
    scene = search.scene
    cuts = problem.cuts
    waiting = [(tables, budget)]
    while waiting:
        tables, budget = waiting.pop()
        for u, a in _changed_cuts(tables, budget, search):
            value = float(tables.changed[VALUE, u, a])
            order = search.points_at(tables, u)
            choice = tables.choices[u, a]
            if a > 1 and complete and not search.is_one_kernel(u, a):
                again = search.run(search.change(u, order, a, constant(value + search.step))).choice
                choice = choice if again is None else again
            cuts = cuts.with_cut(u, choice.feature, choice.rank, choice.missing_left)
            sides = [
                (choice.n_left, int(scene.shape.left[u]), True),
                (a - 1 - choice.n_left, int(scene.shape.right[u]), False),
            ]
            rest = value
            for given, child, on_left in sorted(sides):  # the quicker question first
                n_changes = min(given, int(scene.n_changeable[child]))
                points = search.points_beside(order, choice, child, on_left)
                if a == 1 or points.shape[1] == 0:
                    continue
                below = search.run(search.tables(child, points, n_changes, rest + search.step))
                rest -= float(below.best[VALUE, child, n_changes])
                waiting.append((below, n_changes))
    return cuts


def _changed_cuts(tables: Tables, budget: int, search: Search) -> Iterator[tuple[int, int]]:
    """The topmost changed cuts of the best tree, and how many changes each has in all, itself included."""
    scene, tolerance = search.scene, search.scene.data.tolerance
    best = tables.best[VALUE]
    waiting = [(tables.node, budget)]
    while waiting:
        u, a = waiting.pop()
        enough = best[u, a] + tolerance
        a = int(np.argmax(best[u, : a + 1] <= enough))  # no more changes than it takes
        if a == 0:
            continue
        if tables.changed[VALUE, u, a] <= enough:
            yield u, a
            continue
        left, right = int(scene.shape.left[u]), int(scene.shape.right[u])
        n_left = int(np.argmin(best[left, : a + 1] + best[right, a::-1]))
        waiting += [(right, a - n_left), (left, n_left)]


def settle_ties(problem: Problem, cuts: Cuts, secondary: Secondary) -> Cuts:
    """Give each changed cut in turn the test that is best by ``secondary`` among those that make as few errors.

    A change that turns out to be needless is taken back.
    """
    tolerance = problem.table.tolerance
    errors = problem.n_errors(cuts)
    for v in problem.changed(cuts):
        without = cuts.with_cut_of(v, problem.cuts)
        if problem.n_errors(without) <= errors + tolerance and problem.keeps_floors(without):
            cuts = without
            continue
        allowed = np.zeros_like(problem.allowed)
        allowed[v] = problem.allowed[v]
        search = SingleChangeSearch(replace(problem, cuts=without, allowed=allowed), secondary)
        change = search.best()
        if change is not None:
            search.make(change)
            if search.errors <= errors + tolerance:
                cuts = search.cuts
    return cuts
