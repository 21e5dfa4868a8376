"""Searches made of best single changes: k = 1 exactly, and repeated until nothing helps."""

from __future__ import annotations

from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.sweeps.moves import Secondary
from thrifty.solvers.trees.sweeps.single import SingleChangeSearch


def solve_single(problem: Problem, k: int, *, secondary: Secondary = "gini") -> Solution:
    """The fewest errors within ``k`` changes, for k = 0 or 1."""
    search = SingleChangeSearch(problem, secondary)
    errors = [search.errors]
    if k == 1:
        change = search.best()
        if change is not None:
            search.make(change)
        errors.append(search.errors)
    return Solution(
        cuts=search.cuts,
        errors_by_budget=tuple(errors),
        status="optimal",
        lower_bound=errors[-1],
        n_states=k * int(problem.allowed.sum()),
    )


def hill_climb(problem: Problem, *, secondary: Secondary = "gini") -> Solution:
    """Make the best single change again and again until none makes fewer errors.

    The tree returned is optimal within one change of itself; a cut may have changed more than once on the way.
    ``errors_by_budget`` is what the first two trees of the way prove: budgets 0 and 1.
    """
    search = SingleChangeSearch(problem, secondary)
    errors = [search.errors]
    while (change := search.best()) is not None:
        search.make(change)
        errors.append(search.errors)
    return Solution(
        cuts=search.cuts,
        errors_by_budget=(errors[0], errors[min(1, len(errors) - 1)]),
        status="local optimum",
        lower_bound=problem.table.unavoidable_errors,
        n_states=len(errors) * int(problem.allowed.sum()),
    )
