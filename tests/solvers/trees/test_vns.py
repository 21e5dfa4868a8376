"""Variable neighbourhood search: where it ends, and that it is never worse than climbing."""

import numpy as np
import pytest
from tree_instances import random_problem, random_tree

from thrifty.solvers.trees.bnb.branch_and_bound import solve_branch_and_bound
from thrifty.solvers.trees.bnb.sideways import equal_tests, gini
from thrifty.solvers.trees.bnb.vns import rebase, solve_vns
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.small.brute import n_trees, solve_brute
from thrifty.solvers.trees.sweeps.hillclimb import hill_climb


def problem_of(seed, max_cuts=5):
    tree, X, y, settings = random_problem(seed, max_cuts=max_cuts)
    return build_problem(tree, X, y, **settings)


@pytest.mark.parametrize("seed", range(40))
def test_no_few_changes_of_the_result_help(seed):
    problem = problem_of(seed)
    most = min(3, problem.topology.n_leaves - 1)
    solution = solve_vns(problem, max_changes=3)
    assert solution.status == "local optimum"
    assert problem.keeps_floors(solution.cuts)
    errors = problem.n_errors(solution.cuts)
    assert solution.lower_bound <= errors <= problem.n_errors(hill_climb(problem).cuts) + 1e-8
    there = rebase(problem, solution.cuts)
    k = next((k for k in range(most, 0, -1) if n_trees(there, k) < 1500), 0)
    assert solve_brute(there, k).errors_by_budget[-1] == pytest.approx(errors, abs=1e-8)
    assert solve_branch_and_bound(there, most).errors_by_budget[-1] == pytest.approx(errors, abs=1e-8)
    assert solution.errors_by_budget == hill_climb(problem).errors_by_budget


@pytest.mark.parametrize("seed", [5, 6, 7, 9])
def test_the_climb_begins_anew_after_a_pair(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(6, size=(60, 3)).astype(float), rng.integers(2, size=60)
    problem = build_problem(random_tree(rng, 10, 3, 2, 6), X, y, operation="adjust", min_samples_leaf=0)
    solution = solve_vns(problem, max_changes=2)
    errors = problem.n_errors(solution.cuts)
    assert errors < problem.n_errors(hill_climb(problem).cuts)
    assert solve_branch_and_bound(rebase(problem, solution.cuts), 2).errors_by_budget == (errors,) * 3


def test_it_goes_further_than_climbing():
    """Somewhere no single change helps and two do."""
    gained = [
        problem.n_errors(hill_climb(problem).cuts) - problem.n_errors(solve_vns(problem).cuts)
        for problem in map(problem_of, range(60))
    ]
    assert sum(gain > 1e-8 for gain in gained) >= 3


@pytest.mark.parametrize("seed", range(20))
def test_ties_never_cost_errors_and_repeat_themselves(seed):
    problem = problem_of(seed)
    plain = solve_vns(problem, max_changes=2)
    tied = solve_vns(problem, max_changes=2, ties=True, max_rounds=6, random_state=seed)
    again = solve_vns(problem, max_changes=2, ties=True, max_rounds=6, random_state=seed, n_jobs=2)
    assert problem.n_errors(tied.cuts) <= problem.n_errors(plain.cuts) + 1e-8
    if problem.n_errors(tied.cuts) == pytest.approx(problem.n_errors(plain.cuts), abs=1e-8):
        assert gini(problem, tied.cuts) <= gini(problem, plain.cuts) + 1e-8
    assert (tied.cuts.feature == again.cuts.feature).all()
    assert (tied.cuts.rank == again.cuts.rank).all()
    assert tied.status == "local optimum"


def test_ties_lead_on():
    """On some problem an equally good tree is the way to a better one."""
    better = 0
    for seed in range(60):
        problem = problem_of(seed)
        plain = solve_vns(problem, max_changes=1)
        tied = solve_vns(problem, max_changes=1, ties=True, max_rounds=10, random_state=0)
        better += problem.n_errors(tied.cuts) < problem.n_errors(plain.cuts) - 1e-8
    assert better >= 2


@pytest.mark.parametrize("seed", range(20))
def test_equal_tests_are_equal(seed):
    problem = problem_of(seed)
    errors = problem.n_errors(problem.cuts)
    for v, feature, rank in equal_tests(problem).tolist():
        assert problem.allowed[v, feature]
        aside = problem.cuts.with_cut(v, feature, rank, bool(problem.cuts.missing_left[v]))
        assert problem.n_errors(aside) == pytest.approx(errors, abs=1e-8)


def test_time_limit_and_incumbents():
    problem = problem_of(3)
    errors = []
    solution = solve_vns(problem, on_incumbent=errors.append)
    assert errors == sorted(set(errors), reverse=True)
    assert errors[-1] == problem.n_errors(solution.cuts)
    cut_short = solve_vns(problem, time_limit=1e-9)
    assert cut_short.status == "time limit"
    assert problem.n_errors(cut_short.cuts) <= problem.n_errors(problem.cuts)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"max_changes": 0}, "max_changes: expected .*got 0"),
        ({"max_rounds": 0}, "max_rounds: expected .*got 0"),
        ({"tabu_size": -1}, "tabu_size: expected .*got -1"),
        ({"time_limit": -2.0}, "time_limit: expected .*got -2.0"),
    ],
)
def test_bad_settings_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        solve_vns(problem_of(0), **settings)


def test_a_single_leaf_is_an_optimum():
    problem = next(p for p in map(problem_of, range(100)) if p.topology.n_leaves == 1)
    solution = solve_vns(problem, ties=True)
    assert solution.status == "local optimum"
    assert np.isclose(solution.errors_by_budget[0], problem.n_errors(problem.cuts))


def test_without_a_seed_it_is_seed_0_and_numpys_own_state_is_left_alone():
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    for problem in map(problem_of, range(6)):
        found = [solve_vns(problem, ties=True, max_rounds=4, random_state=seed).cuts for seed in (None, 0)]
        assert np.array_equal(found[0].feature, found[1].feature)
        assert np.array_equal(found[0].rank, found[1].rank)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
