"""The fewest errors within k changes, by branch and bound.

Budgets are raised one at a time. With budget a, every cut of the tree is asked for the fewest errors under it if it
and a - 1 cuts below it are changed; cuts that do not meet combine by convolution (`few_changes`). These questions do
not depend on each other, so they are spread over threads. Those for the last budget share the best tree found so far:
a question is answered only as far as the answer could still beat it.

The result does not depend on the number of threads. Of equally good answers that of the first question wins, so a
question gives way to an equally good answer only if that belongs to an earlier one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from threading import Lock
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.crew import Crew
from thrifty.solvers.trees.bnb.few_changes import LOWER, VALUE
from thrifty.solvers.trees.bnb.memo import Memo
from thrifty.solvers.trees.bnb.nested import Search
from thrifty.solvers.trees.bnb.retrace import retrace, settle_ties
from thrifty.solvers.trees.bnb.scene import Scene, build_scene, new_work
from thrifty.solvers.trees.bnb.tables import Answer, Tables
from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.model.validation import check_limits
from thrifty.solvers.trees.sweeps.moves import Secondary
from thrifty.solvers.trees.sweeps.single import SingleChangeSearch

SPLIT_FROM = 2_000_000
"""A question about a cut is split by feature if it may take more steps than this."""

SHORT = 1_000_000
"""Steps, some tens of milliseconds, that the caller's thread takes itself rather than wait for another."""

MOST_THREADS = 256
"""Threads that are started at most: more would only wait for a core."""

DEFAULT_MEMORY_MB = 2048
"""For what is remembered of past questions; the search itself takes what `scene` says."""


def solve_branch_and_bound(
    problem: Problem,
    k: int,
    *,
    time_limit: float | None = None,
    memory_limit_mb: float = DEFAULT_MEMORY_MB,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_incumbent: Callable[[float], None] | None = None,
    secondary: Secondary = "gini",
) -> Solution:
    """The fewest errors within ``k`` changes, proved unless time runs out.

    Args:
        problem: The problem.
        k: Changes, 0 to the number of cuts.
        time_limit: Seconds after which the best found so far is returned, with a lower bound; checked between sweeps.
            ``None``: no limit.
        memory_limit_mb: Megabytes for remembered answers (budgets from 3 on). When they are full they are forgotten,
            which costs time and nothing else.
        n_jobs: Threads; ``None`` is 1, -1 is one for each core. A search that ends in time gives the same tree for any
            number (``n_states`` may differ).
        progress: Called with the questions answered so far and their total.
        on_incumbent: Called with the errors of the best tree so far, whenever there is a better one.
        secondary: Among equally good thresholds; see below.

    Returns:
        A `Solution`. Each entry of ``errors_by_budget`` is optimal if ``status`` is ``"optimal"``. The tree has as few
        changes as any that makes so few errors. Which cuts change is then up to the order of the search (the same on
        every run), and each changed cut has the test that is best by ``secondary`` with all others as they are.

    Raises:
        ValueError: ``k``, ``time_limit``, ``memory_limit_mb`` or ``n_jobs`` is out of range.

    Source:
        Harviainen, Sommer, Sorge (NeurIPS 2025, arXiv 2510.12726).
    """
    if not 0 <= k <= problem.topology.n_leaves - 1:
        raise ValueError(f"k: expected 0 to {problem.topology.n_leaves - 1}, the tree's cuts, got {k}")
    check_limits(time_limit, memory_limit_mb)
    deadline = np.inf if time_limit is None else monotonic() + time_limit
    scene = build_scene(problem)
    memo = Memo(memory_limit_mb * 2**20)
    searches = [Search(scene, new_work(scene, problem.table.n_classes), memo) for _ in range(n_threads(n_jobs))]
    incumbents = Incumbents(problem, k, on_incumbent)
    for cuts in greedy(problem, k, secondary):
        incumbents.offer(cuts)

    tables = _raise_budgets(k, Crew(searches, scene.stop, deadline), scene, problem, incumbents, progress)
    complete = not scene.stop[0]
    scene.stop[0] = 0  # to say what was found takes no longer than it took to find it
    errors = [min(at) for at in zip(incumbents.errors, tables.best[VALUE, 0].tolist(), strict=True)]
    enough = errors[k] + scene.data.tolerance
    budget = next(a for a in range(k + 1) if errors[a] <= enough)
    if tables.best[VALUE, 0, budget] <= enough:
        fresh = Search(scene, searches[0].work, Memo(memo.limit))
        cuts = retrace(problem, fresh, tables, budget, complete=complete)
    else:
        cuts = incumbents.cuts[budget]
    lower = max(float(tables.best[LOWER, 0, k]), problem.table.unavoidable_errors)
    return Solution(
        cuts=settle_ties(problem, cuts, secondary),
        errors_by_budget=tuple(errors),
        status="optimal" if complete else "time limit",
        lower_bound=errors[k] if complete else min(lower, errors[k]),
        n_states=sum(search.n_states for search in searches),
    )


class Question(NamedTuple):
    """The fewest errors under a cut that is changed to a test on one of ``features``."""

    cut: int
    features: NDArray[np.intp]


def _raise_budgets(
    k: int,
    crew: Crew[Search],
    scene: Scene,
    problem: Problem,
    incumbents: Incumbents,
    progress: Callable[[int, int], None] | None,
) -> Tables:
    """Fill the tables of the whole tree for one budget after the other."""
    questions = {a: _questions(scene, a) for a in range(2, k + 1)}
    done, total = 0, 1 + sum(map(len, questions.values()))

    def count_one() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    def start(search: Search) -> Tables:
        return search.start(0, problem.table.order, k)

    is_short = problem.table.n_points * problem.table.n_features * problem.tree.max_depth < SHORT
    [tables] = [start(crew.first)] if is_short else crew.ask([start])
    count_one()
    incumbents.improve(float(tables.best[VALUE, 0, k]))
    for a in range(2, k + 1):
        race = Race(min(incumbents.errors[k], float(tables.best[VALUE, 0, k])), scene.data.tolerance)

        def on_answer(answer: Answer, race: Race = race) -> None:
            count_one()
            incumbents.improve(race.best)

        asked = [_ask(i, question, a, tables, race) for i, question in enumerate(questions[a])]
        for i, answer in enumerate(crew.ask(asked, on_answer)):
            # in the race, which other answers have a value may depend on chance
            counts = a < k or i == race.winner
            tables.record(questions[a][i].cut, a, answer if counts else Answer(answer.lower, np.inf))
        tables.combine()
        incumbents.improve(float(tables.best[VALUE, 0, k]))
    return tables


def _questions(scene: Scene, a: int) -> list[Question]:
    """The cuts that may be changed with ``a - 1`` changes below, those with most points first."""
    asked = []
    nodes = scene.shape.preorder
    at_root = np.sort(scene.leaf_of[0])
    for u in nodes[scene.changeable[nodes] & (scene.n_changeable[nodes] >= a)].tolist():
        low, high = np.searchsorted(at_root, [scene.shape.leaf_start[u], scene.shape.leaf_stop[u]])
        features = np.flatnonzero(scene.allowed[u])
        steps = (high - low) * int(scene.n_changeable[u]) * len(features) ** 2
        parts = len(features) if steps > SPLIT_FROM else 1
        asked += [(int(low - high), Question(u, part)) for part in np.array_split(features, parts)]
    return [question for _, question in sorted(asked, key=lambda at: at[0])]


def _ask(i: int, asked: Question, a: int, tables: Tables, race: Race) -> Callable[[Search], Answer]:
    u = asked.cut
    local = float(tables.best[VALUE, u, a])
    elsewhere = tables.elsewhere(u)

    def limit() -> float:
        return min(local, race.threshold(i) - elsewhere) if a == tables.budget else local

    def question(search: Search) -> Answer:
        if search.stopped:
            return Answer(float(tables.totals.unavoidable[u]), np.inf)
        answer: Answer = search.run(search.change(u, search.points_at(tables, u), a, limit, asked.features))
        if a == tables.budget and answer.value < np.inf:
            race.offer(i, elsewhere + answer.value)
        return answer

    return question


class Race:
    """The best answer to the questions of the last budget, shared by all threads.

    Attributes:
        best: Its errors, of the whole tree.
        winner: Number of the question; -1 for a tree that was known before.
    """

    def __init__(self, best: float, tolerance: float) -> None:
        self.best, self.winner = best, -1
        self._tolerance = tolerance
        self._step = 2.0 * tolerance if tolerance > 0 else 0.5
        self._lock = Lock()

    def threshold(self, i: int) -> float:
        """What question ``i`` must go below: an equal answer is enough if the best is that of a later question."""
        with self._lock:
            return self.best if self.winner < i else self.best + self._step

    def offer(self, i: int, errors: float) -> None:
        """Enter an answer."""
        with self._lock:
            equal = abs(errors - self.best) <= self._tolerance
            if errors < self.best - self._tolerance or (equal and i < self.winner):
                self.best, self.winner = errors, i


class Incumbents:
    """The best trees found so far for each budget, as far as they are trees already.

    Attributes:
        errors: Fewest errors for each budget 0 .. k.
        cuts: The tests behind them.
    """

    def __init__(self, problem: Problem, k: int, on_incumbent: Callable[[float], None] | None) -> None:
        self.errors = [np.inf] * (k + 1)
        self.cuts = [problem.cuts] * (k + 1)
        self._problem = problem
        self._reported = np.inf
        self._on_incumbent = on_incumbent

    def offer(self, cuts: Cuts) -> None:
        """Enter a tree for every budget that allows its changes."""
        errors = self._problem.n_errors(cuts)
        for a in range(len(self._problem.changed(cuts)), len(self.errors)):
            if errors < self.errors[a] - self._problem.table.tolerance:
                self.errors[a], self.cuts[a] = errors, cuts
        self.improve(self.errors[-1])

    def improve(self, errors: float) -> None:
        """Report fewer errors for the whole budget to the caller."""
        if errors < self._reported - self._problem.table.tolerance:
            self._reported = errors
            if self._on_incumbent is not None:
                self._on_incumbent(errors)


def greedy(problem: Problem, k: int, secondary: Secondary) -> Iterator[Cuts]:
    """The trees on the way of at most ``k`` best single changes."""
    search = SingleChangeSearch(problem, secondary)
    yield search.cuts
    for _ in range(k):
        change = search.best()
        if change is None:
            return
        search.make(change)
        yield search.cuts


def n_threads(n_jobs: int | None) -> int:
    """Threads for scikit-learn's ``n_jobs``.

    Raises:
        ValueError: It is 0, or less than -1, or no whole number.
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs < -1 or n_jobs == 0:
        raise ValueError(f"n_jobs: expected a number of threads, -1 for one each core, or None for one, got {n_jobs!r}")
    return min(int(n_jobs), MOST_THREADS) if n_jobs > 0 else os.cpu_count() or 1
