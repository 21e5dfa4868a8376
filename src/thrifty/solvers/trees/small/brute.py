"""Brute force: every choice of at most k cuts with every test for each.

O((s (D + 1) d)^k n) for exchange; the plainest statement of the problem, against which every other solver is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from math import comb

import numpy as np

from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING
from thrifty.solvers.trees.instance.solution import Solution

MAX_TREES = 1_000_000
"""More trees than this are refused: at some 20 microseconds each they would take half a minute or longer."""

Test = tuple[int, int, bool]
"""Feature, rank, missing goes left."""


def tests_at(problem: Problem, v: int) -> list[Test]:
    """Every test that cut ``v`` may be changed to."""
    table = problem.table
    own = bool(problem.cuts.missing_left[v])
    tests = []
    for j in np.flatnonzero(problem.allowed[v]):
        has_missing = bool((table.ranks[j] == MISSING).any())
        directions = (own, not own) if has_missing and problem.turns_missing else (own,)
        tests += [(int(j), r, side) for r in range(BELOW_ALL, len(table.values[j])) for side in directions]
    return tests


def n_trees(problem: Problem, k: int) -> int:
    """An upper bound on the trees that `solve_brute` evaluates."""
    cuts = problem.topology.cuts
    most = max((len(tests_at(problem, int(v))) for v in cuts), default=0)
    return sum(comb(len(cuts), size) * most**size for size in range(k + 1))


def solve_brute(problem: Problem, k: int, fits: Callable[[Cuts], bool] = lambda _: True) -> Solution:
    """The fewest errors within ``k`` changes, by trying everything.

    Of equally good trees the one with the fewest changes that comes first is taken.

    Args:
        problem: What may change.
        k: Cuts that may.
        fits: What a tree must be; if none of them is, the errors are infinite.

    Raises:
        ValueError: That would be more than `MAX_TREES` trees.
    """
    if (planned := n_trees(problem, k)) > MAX_TREES:
        raise ValueError(f"solver: 'brute' tries at most {MAX_TREES} trees, got up to {planned:.3g} for k={k}")
    best, best_errors, evaluated, errors_by_budget = problem.cuts, float("inf"), 0, list[float]()
    for size in range(k + 1):
        for chosen in combinations(problem.topology.cuts.tolist(), size):
            for tests in product(*(tests_at(problem, v) for v in chosen)):
                cuts, evaluated = with_tests(problem.cuts, chosen, tests), evaluated + 1
                errors = problem.n_errors(cuts)
                if errors < best_errors - problem.table.tolerance and problem.keeps_floors(cuts) and fits(cuts):
                    best, best_errors = cuts, errors
        errors_by_budget.append(best_errors)
    return Solution(
        cuts=best,
        errors_by_budget=tuple(errors_by_budget),
        status="optimal",
        lower_bound=best_errors,
        n_states=evaluated,
    )


def with_tests(cuts: Cuts, chosen: tuple[int, ...], tests: tuple[Test, ...]) -> Cuts:
    """The cuts, with the given tests at the chosen ones."""
    for v, (feature, rank, missing_left) in zip(chosen, tests, strict=True):
        cuts = cuts.with_cut(v, feature, rank, missing_left)
    return cuts
