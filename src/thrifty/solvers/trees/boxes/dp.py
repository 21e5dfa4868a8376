"""``solver="dp"``: the fewest errors within k changes, by the dynamic programme over boxes."""

from __future__ import annotations

import numpy as np

from thrifty.solvers.trees.boxes.dynamic import DynamicProgramme, Progress
from thrifty.solvers.trees.boxes.placement import place
from thrifty.solvers.trees.boxes.splits import Kind
from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.sweeps.single import SingleChangeSearch


def solve_dp(
    problem: Problem,
    k: int,
    *,
    time_limit: float | None = None,
    memory_limit_mb: float = 2048,
    progress: Progress | None = None,
) -> Solution:
    """The fewest errors within ``k`` changes, for any ``k`` at once: its time depends little on ``k``.

    The solver for many changes, few features and few distinct values: O((D + 1)^{2d}) boxes a cut, or as many as the
    changes above can make. With ``k`` equal to the number of cuts it finds the best tree of the given shape.

    Args:
        problem: The problem.
        k: Changes, at most; from 0 to the number of cuts.
        time_limit: Seconds. After that the best of a greedy search is returned, with a lower bound.
        memory_limit_mb: Memory for boxes and choices; with less, more is worked out twice.
        progress: Called with the number of states so far, now and then.

    Returns:
        The solution; ``n_states`` counts boxes at cuts, at most (D + 1)^{2d} times the number of cuts unless memory
        runs short (D: distinct values of a feature, d: features; no missing values).

    Source:
        Theorems 4.1 and 4.2 of the paper.
    """
    kind = Kind("exchange" if problem.turns_missing else "adjust", k, problem.allowed, problem.turns_missing)
    programme = DynamicProgramme(
        problem, (kind,), time_limit=time_limit, memory_limit_mb=memory_limit_mb, progress=progress
    )
    tables, lots = programme.solve()
    errors_by_budget = [float(errors) for errors in tables[0]]
    errors_by_budget += errors_by_budget[-1:] * (k + 1 - len(errors_by_budget))
    if programme.is_cut_short:
        return _greedy(problem, k, errors_by_budget[-1], programme.n_states)
    cuts = problem.cuts
    for node in place(programme, lots, tables.shape[1] - 1):
        if node.case == "change":
            cuts = cuts.with_cut(node.old, node.feature, node.rank, node.missing_left)
    return Solution(cuts, tuple(errors_by_budget), "optimal", errors_by_budget[-1], programme.n_states)


def _greedy(problem: Problem, k: int, lower_bound: float, n_states: int) -> Solution:
    """What the best single changes, one after the other, reach within ``k`` cuts."""
    search = SingleChangeSearch(problem)
    best: Cuts = problem.cuts
    errors = np.full(k + 1, search.errors)
    while (change := search.best()) is not None:
        search.make(change)
        n_changed = len(problem.changed(search.cuts))
        if n_changed > k:
            break
        best = search.cuts
        errors[n_changed:] = search.errors
    is_optimal = errors[k] <= lower_bound + problem.table.tolerance
    return Solution(
        cuts=best,
        errors_by_budget=tuple(errors.tolist()),
        status="optimal" if is_optimal else "time limit",
        lower_bound=min(lower_bound, float(errors[k])),
        n_states=n_states,
    )
