"""How the branch and bound runs: threads, limits, interrupts, what it tells while it works."""

import threading

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tree_instances import random_problem

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.bnb.branch_and_bound import Race, n_threads, solve_branch_and_bound
from thrifty.solvers.trees.bnb.crew import Crew
from thrifty.solvers.trees.bnb.memo import OVERHEAD, Memo
from thrifty.solvers.trees.bnb.tables import Answer
from thrifty.solvers.trees.instance.problem import build_problem


def noisy_problem(n=400, leaves=12, operation="exchange", levels=None):
    rng = np.random.default_rng(0)
    X = rng.random((n, 3)) if levels is None else rng.integers(levels, size=(n, 3)).astype(float)
    y = ((X[:, 0] > X[:, 1]) ^ (rng.random(n) < 0.2)).astype(int)
    tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(X, y)
    return build_problem(Tree.from_sklearn(tree), X, y, operation=operation)


@pytest.fixture(scope="module")
def noisy():
    problem = noisy_problem()
    return problem, solve_branch_and_bound(problem, 3)


def same_cuts(one, other):
    return all((getattr(one, name) == getattr(other, name)).all() for name in ("feature", "rank", "missing_left"))


@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_threads_do_not_change_the_solution(noisy, n_jobs):
    problem, alone = noisy
    together = solve_branch_and_bound(problem, 3, n_jobs=n_jobs)
    assert together.errors_by_budget == alone.errors_by_budget
    assert same_cuts(together.cuts, alone.cuts)


@pytest.mark.parametrize("seed", range(20))
def test_threads_do_not_change_which_of_many_equal_trees_is_found(seed):
    tree, X, y, settings = random_problem(seed, max_cuts=5)
    problem = build_problem(tree, X, y, **settings)
    k = min(4, tree.n_cuts)
    alone = solve_branch_and_bound(problem, k)
    for n_jobs in (2, 4):
        assert same_cuts(solve_branch_and_bound(problem, k, n_jobs=n_jobs).cuts, alone.cuts)


@pytest.mark.parametrize("memory", [0, 0.001])
def test_a_full_memory_costs_no_answer(memory):
    problem = noisy_problem(n=120, leaves=8, levels=4)
    plenty = solve_branch_and_bound(problem, 5)
    little = solve_branch_and_bound(problem, 5, memory_limit_mb=memory)
    assert little.errors_by_budget == plenty.errors_by_budget
    assert same_cuts(little.cuts, plenty.cuts)


def test_the_memo_forgets_all_when_full():
    memo = Memo(2 * (OVERHEAD + 1))
    first, second, third = ((0, 3, bytes([i])) for i in range(3))
    memo.put(first, 5.0, Answer(4.0, 4.0))
    memo.put(second, 5.0, Answer(6.0, 7.0))
    assert memo.get(first, 99.0) == Answer(4.0, 4.0)  # exact
    assert memo.get(second, 5.0) == Answer(6.0, np.inf)  # no better than its threshold
    assert memo.get(second, 6.0) is None
    memo.put(third, 5.0, Answer(1.0, 1.0))
    assert memo.get(first, 5.0) is None
    assert memo.get(third, 5.0) == Answer(1.0, 1.0)


@pytest.mark.parametrize("seconds", [1e-9, 0.002, *np.linspace(0.005, 0.1, 20)])
def test_a_time_limit_leaves_a_tree_and_a_bound(noisy, seconds):
    problem, proved = noisy
    cut_short = solve_branch_and_bound(problem, 3, time_limit=seconds, n_jobs=2)
    errors = cut_short.errors_by_budget
    assert cut_short.lower_bound <= proved.errors_by_budget[-1] <= errors[-1]
    assert problem.n_errors(cut_short.cuts) == errors[-1]
    assert problem.keeps_floors(cut_short.cuts)
    assert len(problem.changed(cut_short.cuts)) <= 3
    assert all(best <= found for best, found in zip(proved.errors_by_budget, errors, strict=True))
    assert cut_short.status in ("time limit", "optimal")
    if cut_short.status == "optimal":
        assert errors == proved.errors_by_budget


def test_a_time_limit_is_kept():
    """Seconds of work, cut short: the bound is valid though no question was answered."""
    problem = noisy_problem(n=3000, leaves=60)
    before = threading.active_count()
    cut_short = solve_branch_and_bound(problem, 4, time_limit=0.3)
    assert cut_short.status == "time limit"
    assert 0 <= cut_short.lower_bound < cut_short.errors_by_budget[-1] < cut_short.errors_by_budget[0]
    assert problem.n_errors(cut_short.cuts) == cut_short.errors_by_budget[-1]
    assert threading.active_count() == before


def test_progress_and_incumbents(noisy):
    problem, proved = noisy
    steps, errors = [], []
    solve_branch_and_bound(problem, 3, progress=lambda *step: steps.append(step), on_incumbent=errors.append)
    total = steps[0][1]
    assert steps == [(done, total) for done in range(1, total + 1)]
    assert errors == sorted(set(errors), reverse=True)
    assert errors[0] == proved.errors_by_budget[0]
    assert errors[-1] == proved.errors_by_budget[-1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupt_ends_every_thread(noisy, error):
    problem, proved = noisy

    def interrupt(done, total):
        if done == 5:
            raise error

    before = threading.active_count()
    with pytest.raises(error):
        solve_branch_and_bound(problem, 3, n_jobs=3, progress=interrupt)
    assert threading.active_count() == before
    assert same_cuts(solve_branch_and_bound(problem, 3).cuts, proved.cuts)


def test_an_error_in_a_question_is_raised():
    stop = np.zeros(1, dtype=np.uint8)
    crew = Crew([1, 2], stop, np.inf)
    assert crew.ask([lambda worker, i=i: i * 10 for i in range(7)]) == [0, 10, 20, 30, 40, 50, 60]
    assert crew.ask([]) == []
    with pytest.raises(ZeroDivisionError):
        crew.ask([lambda worker: 1 // 0])
    assert stop[0] == 1


def test_a_question_gives_way_to_an_earlier_one_only():
    race = Race(10.0, 0.0)
    assert race.threshold(3) == 10.0  # a tree known before comes before all
    race.offer(3, 10.0)
    assert race.winner == -1
    race.offer(3, 9.0)
    assert (race.best, race.winner) == (9.0, 3)
    assert race.threshold(4) == 9.0
    assert 9.0 < race.threshold(2) < 10.0
    race.offer(4, 9.0)
    assert race.winner == 3
    race.offer(2, 9.0)
    assert race.winner == 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"k": -1}, "k: expected .*got -1"),
        ({"k": 99}, "k: expected 0 to 11, .*got 99"),
        ({"k": 2, "time_limit": 0}, "time_limit: expected .*got 0"),
        ({"k": 2, "memory_limit_mb": -1}, "memory_limit_mb: expected .*got -1"),
        ({"k": 2, "n_jobs": 0}, "n_jobs: expected .*got 0"),
        ({"k": 2, "n_jobs": 1.5}, "n_jobs: expected .*got 1.5"),
    ],
)
def test_bad_settings_are_named(noisy, settings, says):
    with pytest.raises(ValueError, match=says):
        solve_branch_and_bound(noisy[0], **settings)


def test_threads_as_scikit_learn_counts_them():
    assert n_threads(None) == 1
    assert n_threads(3) == 3
    assert n_threads(-1) >= 1


def test_ties_go_by_the_secondary_criterion():
    """Each changed cut has the best test by the criterion, all others as they are: `margin` asks for wide gaps."""
    X = np.array([0.0, 1.0, 1.1, 4.0, 4.1, 9.0])[:, None]
    y = np.array([0, 0, 1, 1, 0, 0])
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_leaf_nodes=3, random_state=0).fit(X, y))
    wrong = Tree(
        **{
            **{name: getattr(tree, name) for name in ("left", "right", "feature", "value", "weight", "n_samples")},
            "threshold": np.where(tree.feature >= 0, -1.0, 0.0),
            "classes": tree.classes,
            "n_features": 1,
        }
    )
    problem = build_problem(wrong, X, y, operation="adjust", min_samples_leaf=0)
    for secondary in ("gini", "margin"):
        solution = solve_branch_and_bound(problem, 2, secondary=secondary)
        assert solution.errors_by_budget[-1] == 0
        assert sorted(problem.to_tree(solution.cuts).threshold[tree.feature >= 0].round(3)) == [1.05, 4.05]
