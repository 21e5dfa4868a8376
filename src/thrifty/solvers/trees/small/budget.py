"""``solver="budget"``: is there a tree within k changes that makes at most t errors? For small t and small trees.

Theorems 4.4 and 4.5 of the paper guess the cuts that change, the class of each leaf and how many errors each leaf may
make, and then place each threshold as far to the right as the errors allowed on the left permit: the points on the
left only grow with the threshold, so the largest feasible one is found by binary search, and leaves the fewest points
to the right. Here the guesses are made on the way down, and two are not needed: a leaf's class is its majority, whose
errors grow with its points as well, and errors are shared out between the two sides of a changed cut only, not among
all leaves. What is left is O((d k t log D)^k) subtrees for each placing of the k changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.model.labels import leaf_errors
from thrifty.solvers.trees.small.brute import Test

MAX_ERRORS = 3
MAX_CUTS = 10

Points = NDArray[np.int32]
Changes = dict[int, Test]


def within_errors(problem: Problem, k: int, t: int) -> Cuts | None:
    """Tests within ``k`` changes that make at most ``t`` errors, or ``None`` if there are none.

    Args:
        problem: At most `MAX_CUTS` cuts, whole-numbered weights, and no floors (``min_samples_leaf=0``): with a floor
            a larger set of points is not always harder.
        k: Changes, at most.
        t: Errors (sum of weights), at most; 0 to `MAX_ERRORS`.

    Raises:
        ValueError: The problem is of another kind, or too large.

    Source:
        Theorems 4.4 and 4.5 of the paper.
    """
    _check(problem, t)
    changes = _Decision(problem).changes(0, np.arange(problem.table.n_points, dtype=np.int32), k, t)
    if changes is None:
        return None
    cuts = problem.cuts
    for v, test in changes.items():
        cuts = cuts.with_cut(v, *test)
    return cuts


def solve_budget(problem: Problem, k: int, *, max_errors: int = MAX_ERRORS) -> Solution:
    """The fewest errors within ``k`` changes, by deciding for 0, 1, ... errors.

    Args:
        problem: As for `within_errors`.
        k: Changes, at most.
        max_errors: The largest number of errors that is tried.

    Returns:
        The solution. ``errors_by_budget`` holds what was found; budgets below ``k`` that need more than
        ``max_errors`` stand at the errors of the tree as given.

    Raises:
        ValueError: As `within_errors`, or every tree within ``k`` changes makes more than ``max_errors`` errors.
    """
    _check(problem, max_errors)
    best, given = problem.cuts, problem.n_errors(problem.cuts)
    found, decisions = [given], 0
    for budget in range(1, k + 1):
        fewest = found[-1]
        for t in range(int(min(max_errors + 1, fewest))):
            decisions += 1
            cuts = within_errors(problem, budget, t)
            if cuts is not None:
                best, fewest = cuts, problem.n_errors(cuts)
                break
        found.append(fewest)
    if found[-1] > max_errors:
        raise ValueError(
            f"solver: 'budget' stops at {max_errors} errors, and every tree within k={k} changes makes more; "
            "expected 'bnb' or 'dp'"
        )
    return Solution(best, tuple(found), "optimal", found[-1], decisions)


def _check(problem: Problem, t: int) -> None:
    n_cuts = problem.topology.n_leaves - 1
    if n_cuts > MAX_CUTS:
        raise ValueError(f"solver: expected 'bnb' or 'dp' for more than {MAX_CUTS} cuts, got 'budget' for {n_cuts}")
    if not 0 <= t <= MAX_ERRORS:
        raise ValueError(f"t: expected 0 to {MAX_ERRORS} errors, got {t}")
    if not problem.table.has_integer_weights:
        raise ValueError("sample_weight: expected whole numbers with solver='budget', got fractions")
    if problem.floors.n_rows.any() or (problem.floors.weight > 0).any():
        raise ValueError(
            "solver: 'budget' needs min_samples_leaf=0 and min_weight_fraction_leaf=0; expected 'bnb' or 'dp'"
        )


class _Decision:
    """The search of `within_errors`. It calls itself for the children of a cut: at most `MAX_CUTS` deep."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.left, self.right = problem.topology.left.tolist(), problem.topology.right.tolist()
        self.known: dict[tuple[int, bytes, int, int], Changes | None] = {}

    def changes(self, v: int, points: Points, k: int, t: int) -> Changes | None:
        """At most ``k`` changes in the subtree of ``v`` with which ``points`` make at most ``t`` errors."""
        if t < 0:
            return None
        if self.left[v] < 0:
            table = self.problem.table
            counts = np.zeros(table.n_classes)
            np.add.at(counts, table.y[points], table.weight[points])
            return {} if leaf_errors(counts[None])[0] <= t else None
        key = (v, points.tobytes(), k, t)
        if key not in self.known:
            self.known[key] = self._kept(v, points, k, t)
            if self.known[key] is None and k > 0:
                self.known[key] = self._changed(v, points, k - 1, t)
        return self.known[key]

    def _kept(self, v: int, points: Points, k: int, t: int) -> Changes | None:
        cuts = self.problem.cuts
        test = int(cuts.feature[v]), int(cuts.rank[v]), bool(cuts.missing_left[v])
        on_left, on_right = self.problem.table.halves(points, *test)
        for k_left in range(k + 1):
            for t_left in range(t + 1):
                below = self._both(v, on_left, on_right, (k_left, t_left), (k - k_left, t - t_left))
                if below is not None:
                    return below
        return None

    def _changed(self, v: int, points: Points, k: int, t: int) -> Changes | None:
        for j, ranks, missing_left in self._tests(v, points):
            for k_left in range(k + 1):
                for t_left in range(t + 1):
                    rank = self._largest(v, points, (j, ranks, missing_left), k_left, t_left)
                    if rank is None:
                        continue
                    halves = self.problem.table.halves(points, j, rank, missing_left)
                    below = self._both(v, *halves, (k_left, t_left), (k - k_left, t - t_left))
                    if below is not None:
                        return {v: (j, rank, missing_left), **below}
        return None

    def _largest(self, v: int, points: Points, test: tuple[int, list[int], bool], k: int, t: int) -> int | None:
        """The largest of the ranks for which the left subtree makes at most ``t`` errors within ``k`` changes."""
        j, ranks, missing_left = test
        low, high = -1, len(ranks) - 1  # ranks[low] is feasible, or low is -1; those above high are not
        while low < high:
            middle = (low + high + 1) // 2
            on_left, _ = self.problem.table.halves(points, j, ranks[middle], missing_left)
            if self.changes(self.left[v], on_left, k, t) is None:
                high = middle - 1
            else:
                low = middle
        return None if low < 0 else ranks[low]

    def _tests(self, v: int, points: Points) -> Iterator[tuple[int, list[int], bool]]:
        """Features that ``v`` may test, with the thresholds that matter here, and missing directions."""
        own = bool(self.problem.cuts.missing_left[v])
        for j in np.flatnonzero(self.problem.allowed[v]).tolist():
            ranks = np.unique(self.problem.table.ranks[j, points]).tolist()
            has_missing = bool(ranks) and ranks[-1] == MISSING
            thresholds = [BELOW_ALL, *(rank for rank in ranks if rank != MISSING)]
            yield j, thresholds, own
            if has_missing and self.problem.turns_missing:
                yield j, thresholds, not own

    def _both(
        self, v: int, on_left: Points, on_right: Points, left: tuple[int, int], right: tuple[int, int]
    ) -> Changes | None:
        first = self.changes(self.left[v], on_left, *left)
        if first is None:
            return None
        second = self.changes(self.right[v], on_right, *right)
        return None if second is None else {**first, **second}
