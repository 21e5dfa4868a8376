"""Variable neighbourhood search: climb by single changes, then by the best pair, the best three, and so on.

A tree from which no single change helps may still be improved by two at once. So the exact search for k = 2, 3, ... is
run on it in turn, and the climb begins anew at the first that helps. If none does,
the tree may be left for an equally good one: the least impure of those not visited lately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from time import monotonic

import numpy as np
from sklearn.utils import check_random_state

from thrifty._common.checks import whole
from thrifty.solvers.trees.bnb.branch_and_bound import DEFAULT_MEMORY_MB, solve_branch_and_bound
from thrifty.solvers.trees.bnb.sideways import equal_tests, gini
from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.model.validation import check_limits
from thrifty.solvers.trees.sweeps.hillclimb import hill_climb
from thrifty.solvers.trees.sweeps.moves import Secondary

SAMPLE = 100
"""Equally good changes whose impurity is worked out, of all that there are."""


def solve_vns(
    problem: Problem,
    *,
    max_changes: int = 3,
    ties: bool = False,
    max_rounds: int = 20,
    tabu_size: int = 50,
    random_state: int | np.random.RandomState | None = 0,
    time_limit: float | None = None,
    memory_limit_mb: float = DEFAULT_MEMORY_MB,
    n_jobs: int | None = None,
    on_incumbent: Callable[[float], None] | None = None,
    secondary: Secondary = "gini",
) -> Solution:
    """Improve a tree until no change of at most ``max_changes`` of its cuts at a time makes fewer errors.

    As in hill climbing, any number of cuts may have changed in the end.

    Args:
        problem: The problem.
        max_changes: Cuts that one step may change, at least 1; the tree's number of cuts at most is used.
        ties: Whether to go on from such a tree to one that makes as many errors.
        max_rounds: How many such trees to come to; 1 without ``ties``.
        tabu_size: How many of the last of them are not to be visited again on a tie.
        random_state: Draws which equally good changes are looked at; ``None`` is 0.
        time_limit: Seconds, checked between the sweeps of the exact searches. ``None``: no limit.
        memory_limit_mb: As `solve_branch_and_bound`.
        n_jobs: Likewise.
        on_incumbent: Called with the errors of the best tree so far, whenever there is a better one.
        secondary: As `solve_branch_and_bound`.

    Returns:
        A `Solution` with the best tree come to, by errors and then by impurity. Status ``"local optimum"``: no change
        of at most ``max_changes`` cuts of the tree returned makes fewer errors. ``errors_by_budget`` holds what is
        proved of the tree as given: budgets 0 and 1.

    Raises:
        ValueError: A number is out of range.
    """
    for name, given, least in (
        ("max_changes", max_changes, 1),
        ("max_rounds", max_rounds, 1),
        ("tabu_size", tabu_size, 0),
    ):
        whole(name, given, least=least)
    check_limits(time_limit)
    random = check_random_state(0 if random_state is None else random_state)  # never numpy's global state
    descent = Descent(
        problem=problem,
        max_changes=min(max_changes, problem.topology.n_leaves - 1),
        deadline=np.inf if time_limit is None else monotonic() + time_limit,
        on_incumbent=on_incumbent,
        memory_limit_mb=memory_limit_mb,
        n_jobs=n_jobs,
        secondary=secondary,
    )
    climb = hill_climb(problem, secondary=secondary)
    best = here = descent.run(climb.cuts)
    tabu: deque[bytes] = deque(maxlen=tabu_size)
    for _ in range(max_rounds - 1 if ties else 0):
        tabu.append(_key(here.cuts))
        aside = sidestep(problem, here.cuts, tabu, random) if here.is_optimum else None
        if aside is None:
            break
        here = descent.run(aside)
        if here.is_better_than(best, problem.table.tolerance):
            best = here
    return Solution(
        cuts=best.cuts,
        errors_by_budget=climb.errors_by_budget,
        status="local optimum" if best.is_optimum else "time limit",
        lower_bound=problem.table.unavoidable_errors,
        n_states=climb.n_states + descent.n_states,
    )


@dataclass(frozen=True, eq=False)
class Place:
    """Where a descent ended.

    Attributes:
        cuts: The tests.
        errors: Training errors.
        impurity: Weighted Gini impurity of the leaves.
        is_optimum: Whether it is proved that no few changes help; False if time ran out.
    """

    cuts: Cuts
    errors: float
    impurity: float
    is_optimum: bool

    def is_better_than(self, other: Place, tolerance: float) -> bool:
        """By errors, then, between optima, by impurity."""
        if abs(self.errors - other.errors) > tolerance:
            return self.errors < other.errors
        return self.is_optimum and (not other.is_optimum or self.impurity < other.impurity)


@dataclass(eq=False)
class Descent:
    """Exact searches with more and more changes, from one tree down to a local optimum.

    Attributes:
        problem: The problem with the tree as given.
        max_changes: Cuts that one step may change.
        deadline: When to end, by `time.monotonic`.
        on_incumbent: Called with fewer errors than ever before.
        memory_limit_mb: For the exact searches, as ``n_jobs`` and ``secondary``.
        n_jobs: See ``memory_limit_mb``.
        secondary: See ``memory_limit_mb``.
        n_states: What the exact searches evaluated so far.
    """

    problem: Problem
    max_changes: int
    deadline: float
    on_incumbent: Callable[[float], None] | None
    memory_limit_mb: float
    n_jobs: int | None
    secondary: Secondary
    n_states: int = 0
    _reported: float = np.inf

    def run(self, cuts: Cuts) -> Place:
        """Go down from ``cuts``."""
        tolerance = self.problem.table.tolerance
        errors = self._report(cuts)
        k = 1
        while k <= self.max_changes:
            found = self._search(cuts, k)
            if found is None:
                break
            self.n_states += found.n_states
            if self.problem.n_errors(found.cuts) < errors - tolerance:
                cuts = found.cuts
                errors = self._report(cuts)
                k = 0
            if found.status == "time limit":
                break
            k += 1
        return Place(cuts, errors, gini(self.problem, cuts), is_optimum=k > self.max_changes)

    def _search(self, cuts: Cuts, k: int) -> Solution | None:
        left = self.deadline - monotonic()
        if left <= 0:
            return None
        here = rebase(self.problem, cuts)
        if k == 1:
            return hill_climb(here, secondary=self.secondary)
        return solve_branch_and_bound(
            here,
            k,
            time_limit=None if left == np.inf else left,
            memory_limit_mb=self.memory_limit_mb,
            n_jobs=self.n_jobs,
            secondary=self.secondary,
        )

    def _report(self, cuts: Cuts) -> float:
        errors = self.problem.n_errors(cuts)
        if errors < self._reported - self.problem.table.tolerance:
            self._reported = errors
            if self.on_incumbent is not None:
                self.on_incumbent(errors)
        return errors


def rebase(problem: Problem, cuts: Cuts) -> Problem:
    """The problem of improving the tree with ``cuts``; floors and allowed features stay those of the tree as given."""
    return replace(problem, tree=problem.to_tree(cuts), cuts=cuts)


def sidestep(problem: Problem, cuts: Cuts, tabu: Collection[bytes], random: np.random.RandomState) -> Cuts | None:
    """The least impure of `SAMPLE` trees with one cut changed that make as many errors and are not ``tabu``."""
    here = rebase(problem, cuts)
    tests = equal_tests(here)
    best, least = None, np.inf
    for i in random.permutation(len(tests))[:SAMPLE]:
        v, feature, rank = tests[i].tolist()
        aside = cuts.with_cut(v, feature, rank, bool(cuts.missing_left[v]))
        if _key(aside) not in tabu and problem.keeps_floors(aside):
            impurity = gini(problem, aside)
            if impurity < least:
                best, least = aside, impurity
    return best


def _key(cuts: Cuts) -> bytes:
    return cuts.feature.tobytes() + cuts.rank.tobytes() + cuts.missing_left.tobytes()
