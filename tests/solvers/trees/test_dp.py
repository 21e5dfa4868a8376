"""The dynamic programme against brute force and golden values."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.tree import DecisionTreeClassifier
from tree_instances import chain, complete_depth_2, random_problem, random_tree

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.rivals import plain_dynamic_programme
from thrifty.solvers.trees.small.brute import n_trees, solve_brute
from thrifty.solvers.trees.sweeps.hillclimb import solve_single

TABLES = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer}
TINY_MEMORY_MB = 1e-3


def dummy_cuts(table, features=(0, 0, 0)):
    X, y = TABLES[table](return_X_y=True)
    thresholds = [X[:, j].min() - 1 for j in features]
    return complete_depth_2(features, thresholds, X.shape[1], len(np.unique(y))), X, y


@pytest.mark.parametrize("seed", range(100))
def test_equals_brute_force(seed):
    """Oracle 1: changes of one kind, floors, weights, missing values, frozen cuts, allowed features."""
    tree, X, y, settings = random_problem(seed, max_cuts=6)
    problem = build_problem(tree, X, y, **settings)
    for k in range(min(3, tree.n_cuts) + 1):
        if n_trees(problem, k) > 3000:
            break
        tried = solve_brute(problem, k).errors_by_budget
        for memory in (2048, TINY_MEMORY_MB):
            found = solve_dp(problem, k, memory_limit_mb=memory)
            assert found.errors_by_budget == pytest.approx(tried, abs=1e-9)
            assert problem.n_errors(found.cuts) == pytest.approx(tried[-1], abs=1e-9)
            assert problem.keeps_floors(found.cuts)
            assert len(problem.changed(found.cuts)) <= k
            assert found.status == "optimal"


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_sweep(seed):
    tree, X, y, settings = random_problem(seed + 500)
    problem = build_problem(tree, X, y, **settings)
    k = min(1, tree.n_cuts)
    assert solve_dp(problem, k).errors_by_budget == pytest.approx(solve_single(problem, k).errors_by_budget, abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_large_budgets_equal_the_plain_programme(seed):
    """Deep trees and k up to s, where the same box is asked for with several budgets."""
    rng = np.random.default_rng(seed)
    d, domain, s = int(rng.integers(1, 3)), int(rng.integers(3, 6)), int(rng.integers(4, 7))
    X, y = rng.integers(domain, size=(14, d)).astype(float), rng.integers(2, size=14)
    shape = chain(s, rng.integers(d, size=s), rng.integers(-1, domain, size=s), n_features=d)
    tree = shape if seed % 3 else random_tree(rng, s, d, 2, domain)
    problem = build_problem(tree, X, y, operation="adjust" if d == 2 else "exchange", min_samples_leaf=0)
    expected = [plain_dynamic_programme(problem, k, time_limit=60) for k in range(s + 1)]
    found = solve_dp(problem, s)
    assert list(found.errors_by_budget) == expected
    assert problem.n_errors(found.cuts) == expected[-1]


def test_a_box_met_again_with_more_budget():
    """One of 1500 random problems in which a box is first met with fewer changes left than it is later asked for."""
    rng = np.random.default_rng(566)
    d, domain, s, n = (int(rng.integers(low, high)) for low, high in ((1, 3), (3, 6), (4, 7), (8, 25)))
    X, y = rng.integers(domain, size=(n, d)).astype(float), rng.integers(2, size=n)
    tree = chain(s, rng.integers(d, size=s), rng.integers(-1, domain, size=s), n_features=d)
    operation = "adjust" if rng.random() < 0.5 else "exchange"
    problem = build_problem(tree, X, y, operation=operation, min_samples_leaf=0)
    expected = (8, 7, 5, 4, 3)
    assert plain_dynamic_programme(problem, 4, time_limit=60) == expected[-1]
    assert solve_dp(problem, 4).errors_by_budget == expected


def test_a_change_that_cannot_be_none():
    """Cut 0 may not stay on its own column, so a change there costs errors; larger budgets are still no worse."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
    tree = chain(1, 0, 0.5, n_features=2)
    problem = build_problem(tree, X, np.array([0, 0, 1, 1]), features=[1], min_samples_leaf=0)
    assert solve_dp(problem, 1).errors_by_budget == (0, 0)
    problem = build_problem(tree, X, np.array([0, 0, 0, 1]), features=[1], frozen=(), min_samples_leaf=2)
    assert solve_dp(problem, 1).errors_by_budget == (1, 1)


@pytest.mark.parametrize(("table", "errors"), [("iris", (100, 50, 6, 6)), ("wine", (107, 54, 15, 6))])
def test_dummy_cuts_exchanged(table, errors):
    """Oracle 2."""
    problem = build_problem(*dummy_cuts(table), min_samples_leaf=0)
    assert solve_dp(problem, 3).errors_by_budget == errors


@pytest.mark.parametrize("table", ["iris", "wine"])
def test_all_cuts_exchanged_is_the_optimal_tree(table):
    """Oracle 2, against ConTree: k = s on a complete tree of depth 2 (Observation 3.2)."""
    contree = pytest.importorskip("pycontree")
    tree, X, y = dummy_cuts(table)
    optimal = contree.ConTree(max_depth=2)
    optimal.fit(X, y)
    errors = round(len(y) * (1 - optimal.score(X, y)))
    assert solve_dp(build_problem(tree, X, y, min_samples_leaf=0), 3).lower_bound == errors == 6


@pytest.mark.parametrize(
    ("table", "features", "thresholds", "adjusted"),
    [
        ("iris", (3, 2, 2), None, (100, 50, 6, 6)),
        ("iris", (0, 1, 1), None, (100, 54, 37, 35)),
        ("wine", (12, 9, 6), None, (107, 54, 20, 14)),
        ("breast_cancer", (27, 23, 21), None, (212, 46, 27, 27)),
        ("breast_cancer", (0, 1, 4), (15, 20, 0.1), (63, 62, 62, 62)),
    ],
)
def test_fixed_features_adjusted(table, features, thresholds, adjusted):
    """Oracle 3."""
    tree, X, y = dummy_cuts(table, features)
    if thresholds is not None:
        tree = complete_depth_2(features, thresholds, X.shape[1], 2)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    assert solve_dp(problem, 3).errors_by_budget == adjusted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "thresholds", "errors"),
    [((27, 23, 21), None, (212, 44, 27)), ((0, 1, 4), (15, 20, 0.1), (63, 34, 27))],
)
def test_thirty_features_exchanged(features, thresholds, errors):
    """Oracle 3, exchange; any number of features will do."""
    tree, X, y = dummy_cuts("breast_cancer", features)
    if thresholds is not None:
        tree = complete_depth_2(features, thresholds, X.shape[1], 2)
    assert solve_dp(build_problem(tree, X, y, min_samples_leaf=0), 2).errors_by_budget == errors


@pytest.mark.parametrize("sets", [[{0, 1}, {1, 2}, {3, 4}, {2, 3}], [{0}, {1, 2, 5}, {3, 4}, {2, 3}, {1, 5}, {0, 4}]])
def test_hitting_set(sets):
    """Oracle 4 (Theorem 5.3)."""
    universe = 1 + max(max(s) for s in sets)
    smallest = min(sum(bits) for bits in product((0, 1), repeat=universe) if all(any(bits[u] for u in s) for s in sets))
    red = np.array([[0.0 if u in s else 1.0 for u in range(universe)] for s in sets])
    X = np.vstack([red, np.ones((len(sets) + 1, universe))])
    y = np.repeat([1, 0], [len(sets), len(sets) + 1])
    tree = chain(universe, np.arange(universe), -1.0, n_features=universe)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    errors = solve_dp(problem, universe).errors_by_budget
    assert [e == 0 for e in errors].index(True) == smallest


@pytest.mark.parametrize("seed", range(25))
def test_identities(seed):
    """Oracles 5 and 7: more room is never worse, k = s is all there is, weights are duplicates, order is nothing."""
    tree, X, y, _ = random_problem(seed + 2000, max_cuts=5)
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 4, size=len(y))
    times[0] = 1
    found = {}
    for operation in ("adjust", "exchange", "both"):
        settings = {"operation": operation, "min_samples_leaf": 0}
        weighted = build_problem(tree, X, y, sample_weight=times, **settings)
        errors = found[operation] = solve_dp(weighted, tree.n_cuts).errors_by_budget
        assert len(errors) == tree.n_cuts + 1
        assert list(errors) == sorted(errors, reverse=True)
        assert weighted.table.unavoidable_errors <= errors[-1]
        shuffled = rng.permutation(times.sum())
        repeated = build_problem(tree, np.repeat(X, times, 0)[shuffled], np.repeat(y, times)[shuffled], **settings)
        again = solve_dp(repeated, tree.n_cuts)
        assert again.errors_by_budget == errors
        better = repeated.to_tree(again.cuts)
        assert (times * (better.predict(X) != y)).sum() == errors[-1]
        assert better.counts[better.topology.leaves].sum() == pytest.approx(times.sum())
    assert found["both"] == found["exchange"]
    assert all(e <= a for e, a in zip(found["exchange"], found["adjust"], strict=True))


@pytest.mark.parametrize("seed", range(15))
def test_one_example_less_saves_at_most_one_error(seed):
    """Oracle 6."""
    tree, X, y, _ = random_problem(seed + 3000, max_cuts=5)
    if len(y) < 2:
        return
    k = min(2, tree.n_cuts)
    whole, less = (solve_dp(build_problem(tree, X[i:], y[i:], min_samples_leaf=0), k).lower_bound for i in (0, 1))
    assert whole - 1 <= less <= whole


@pytest.mark.parametrize(("d", "domain"), [(1, 8), (2, 5), (3, 3)])
def test_states_are_boxes(d, domain):
    """Theorem 4.1: at most (D + 1)^{2d} states a cut, here with everything changeable."""
    rng = np.random.default_rng(d)
    X = rng.integers(domain, size=(60, d)).astype(float)
    y = rng.integers(2, size=60)
    tree = random_tree(rng, 5, d, 2, domain)
    problem = build_problem(tree, X, y, min_samples_leaf=0)
    assert 0 < solve_dp(problem, 5).n_states <= (domain + 1) ** (2 * d) * 5


def test_states_are_met_once():
    """Two changes above make the same box in many ways: 7 distinct values in one feature have 28 intervals."""
    X, y = np.arange(7.0)[:, None], np.array([0, 1, 0, 1, 0, 1, 0])
    problem = build_problem(chain(4, 0, 3.0, n_features=1), X, y, min_samples_leaf=0)
    found = solve_dp(problem, 4)
    assert found.n_states <= 4 * 28
    assert found.errors_by_budget == (3, 2, 2, 1, 1)


def test_a_chain_of_500_cuts():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, size=(60, 2)).astype(float), rng.integers(2, size=60)
    tree = chain(500, rng.integers(2, size=500), 3 * rng.random(500), n_features=2)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    few, all_of_them = solve_dp(problem, 2), solve_dp(problem, 500)
    assert few.errors_by_budget == all_of_them.errors_by_budget[:3]
    assert problem.n_errors(all_of_them.cuts) == all_of_them.lower_bound < few.lower_bound + 1


def hard_problem():
    rng = np.random.default_rng(1)
    X, y = rng.random((400, 6)), rng.integers(3, size=400)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=5, random_state=0).fit(X, y))
    return build_problem(tree, X, y)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_time_limit(seconds):
    problem = hard_problem()
    found = solve_dp(problem, 4, time_limit=seconds)
    errors = problem.n_errors(found.cuts)
    assert found.status == "time limit"
    assert len(problem.changed(found.cuts)) <= 4
    assert problem.keeps_floors(found.cuts)
    assert problem.table.unavoidable_errors <= found.lower_bound < errors == found.errors_by_budget[-1]
    assert errors <= solve_single(problem, 1).lower_bound
    assert list(found.errors_by_budget) == sorted(found.errors_by_budget, reverse=True)


def test_progress():
    seen = []
    found = solve_dp(hard_problem(), 1, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == found.n_states


def test_a_single_leaf():
    tree, X, y, _ = random_problem(4, max_cuts=0)
    problem = build_problem(tree, X, y)
    found = solve_dp(problem, 0)
    assert (found.errors_by_budget, found.status) == ((problem.n_errors(problem.cuts),), "optimal")
