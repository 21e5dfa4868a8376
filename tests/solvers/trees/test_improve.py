"""`improve_tree` as users call it: what it keeps, how it chooses, what it refuses."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tree_instances import chain, complete_depth_2, hand_made, random_problem

from thrifty.solvers.trees import Tree, improve_tree
from thrifty.solvers.trees.bnb.branch_and_bound import MOST_THREADS, n_threads

STUMP = {"left": [1, -1, -1], "right": [2, -1, -1], "feature": [0, -1, -1], "threshold": [0.5, 0, 0]}


@pytest.fixture
def iris_tree():
    X, y = load_iris(return_X_y=True)
    return DecisionTreeClassifier(max_depth=2, max_features=1, random_state=3).fit(X, y), X, y


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": -1}, "k: expected .*got -1"),
        ({"k": 1.0}, "k: expected .*got 1.0"),
        ({"k": True}, "k: expected .*got True"),
        ({"time_limit": -1}, "time_limit: expected .*got -1"),
        ({"time_limit": float("nan")}, "time_limit: expected .*got nan"),
        ({"time_limit": "a"}, "time_limit: expected .*got 'a'"),
        ({"memory_limit_mb": None}, "memory_limit_mb: expected .*got None"),
        ({"n_jobs": 0}, "n_jobs: expected .*got 0"),
        ({"max_rounds": 1.5}, "max_rounds: expected .*got 1.5"),
        ({"n_prune": 9}, "n_prune"),
        ({"min_weight_fraction_leaf": "a"}, "min_weight_fraction_leaf: expected .*got 'a'"),
        ({"sample_weight": ["heavy"] * 150}, "sample_weight: expected .*got what is none"),
        ({"features": 3}, "features: expected .*got 3"),
        ({"features": "petal"}, "features: expected .*got 'petal'"),
        ({"features": [0.5]}, r"features: expected .*got \[0.5\]"),
        ({"features": {0: 3}}, "features: expected .*got 3"),
        ({"frozen": None}, "frozen: expected .*got None"),
        ({"k": 2, "solver": "sweep"}, "k: expected 0 or 1 with solver='sweep'.*got 2"),
        ({"k": 2, "mode": "hillclimb"}, "k: expected 1 with mode='hillclimb'.*got 2"),
        ({"mode": "hillclimb", "solver": "brute"}, "solver: expected 'auto' with mode='hillclimb'.*got 'brute'"),
        ({"k": 3, "solver": "brute"}, "solver: 'brute' tries at most"),
        ({"mode": "fast"}, "mode: expected .*got 'fast'"),
        ({"solver": "cplex"}, "solver: expected .*got 'cplex'"),
        ({"secondary": "none"}, "secondary: expected .*got 'none'"),
        ({"operation": "prune"}, "operation: expected .*got 'prune'"),
        ({"min_samples_leaf": -1}, "min_samples_leaf: expected .*got -1"),
        ({"min_samples_leaf": 0.1}, "min_samples_leaf: expected .*got 0.1"),
        ({"min_weight_fraction_leaf": 0.6}, "min_weight_fraction_leaf: expected .*got 0.6"),
        ({"features": [4]}, r"features: expected .*got \[4\]"),
        ({"features": ["petal"]}, r"features: expected .*got \['petal'\]"),
        ({"features": {99: [0]}}, r"features: expected .*got \[99\]"),
        ({"features": [0], "operation": "adjust"}, "features: expected None"),
        ({"frozen": [99]}, r"frozen: expected .*got \[99\]"),
        ({"sample_weight": -np.ones(150)}, "negative"),
        ({"sample_weight": np.full(150, np.nan)}, "infinite or missing one"),
        ({"sample_weight": np.zeros(150)}, "zero everywhere"),
        ({"sample_weight": np.full(150, 1e308)}, "sample_weight: expected weights that add up to less than 1e"),
        ({"n_prune": None}, "n_prune: expected .*got None"),
        ({"n_raise": []}, r"n_raise: expected .*got \[\]"),
        ({"sample_weight": np.ones(3)}, r"sample_weight: expected .*got shape \(3,\)"),
    ],
)
def test_bad_settings_are_named(iris_tree, settings, message):
    with pytest.raises(ValueError, match=message):
        improve_tree(*iris_tree, **settings)


def test_numbers_beyond_all_sense_do_no_harm(iris_tree):
    """More rows than can be counted allow no change; more threads than can be started are as good as many."""
    assert not improve_tree(*iris_tree, min_samples_leaf=10**30)[1].operations
    assert n_threads(10**9) == MOST_THREADS


def test_bad_tables_and_trees_are_named(iris_tree):
    tree, X, y = iris_tree
    with pytest.raises(ValueError, match="X: expected 4 features, .*got 3"):
        improve_tree(tree, X[:, :3], y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        improve_tree(tree, X, y[:-1])
    with pytest.raises(ValueError, match=r"y: expected .*got also \[7\]"):
        improve_tree(tree, X, np.where(y == 2, 7, y))
    with pytest.raises(ValueError, match="infinity"):
        improve_tree(tree, np.where(X > 6, np.inf, X), y)
    with pytest.raises(TypeError, match="DecisionTreeRegressor"):
        improve_tree(DecisionTreeRegressor().fit(X, y), X, y)
    with pytest.raises(NotFittedError):
        improve_tree(DecisionTreeClassifier(), X, y)
    without = replace(Tree.from_sklearn(tree), missing_left=None)
    with pytest.raises(ValueError, match=r"no missing values .*got NaN in x\[2\]"):
        improve_tree(without, np.where(np.arange(4) == 2, np.nan, X), y)
    named = DecisionTreeClassifier(max_depth=1).fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.raises(ValueError, match="X: expected 'a' as column 0, got 'z'"):
        improve_tree(named, pd.DataFrame(X, columns=list("zbcd")), y)


def test_a_budget_beyond_the_cuts_is_cut_down():
    tree = hand_made(**STUMP)
    with pytest.warns(UserWarning, match="k: expected at most 1, .*got 5"):
        _, report = improve_tree(tree, [[0], [1], [2]], [0, 0, 1], k=5)
    assert report.errors_by_budget == (1, 0)


@pytest.mark.parametrize("mode", ["exact", "hillclimb"])
@pytest.mark.parametrize(
    ("X", "y"), [([[1.0]], [0]), ([[1.0], [1.0]], [0, 1]), ([[1.0], [2.0]], [1, 1]), ([[1.0], [2.0]], [0, 1])]
)
def test_tables_that_leave_nothing_to_do(X, y, mode):
    """A single leaf; one row; one class; constant features."""
    leaf = hand_made([-1], [-1], [-1], [0], n_features=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, report = improve_tree(leaf, X, y, mode=mode)
    assert report.operations == ()
    assert report.status == "optimal"
    better, report = improve_tree(hand_made(**{**STUMP, "threshold": [1.5, 0, 0]}), X, y, mode=mode)
    assert report.operations == ()
    assert (better.predict(X) != y).sum() == report.n_errors


def test_both_types_of_tree_come_back_as_they_went_in(iris_tree):
    tree, X, y = iris_tree
    ours = Tree.from_sklearn(tree)
    better, report = improve_tree(tree, X, y)
    better_ours, report_ours = improve_tree(ours, X, y)
    assert isinstance(better, DecisionTreeClassifier)
    assert isinstance(better_ours, Tree)
    assert (better.predict_proba(X) == better_ours.predict_proba(X)).all()
    assert report.errors_by_budget == report_ours.errors_by_budget
    assert report.n_errors == (better.predict(X) != y).sum() < report.n_errors_before
    assert report.n_errors_before == (tree.predict(X) != y).sum()


def test_the_report_says_what_changed(iris_tree):
    tree, X, y = iris_tree
    better, report = improve_tree(tree, X, y)
    (change,) = report.operations
    assert change.threshold == better.tree_.threshold[change.node] != tree.tree_.threshold[change.node]
    assert change.feature == better.tree_.feature[change.node]
    assert report.difference.errors_saved == (report.n_errors_relabelled - report.n_errors,)
    assert f"cut {change.node}: x[" in str(report)
    assert f"−{report.n_errors_relabelled - report.n_errors:d} errors" in str(report)
    untouched = [v for v in range(tree.tree_.node_count) if v != change.node]
    assert (better.tree_.threshold[untouched] == tree.tree_.threshold[untouched]).all()
    assert report.lower_bound == report.n_errors


def test_frozen_cuts_and_allowed_features_are_kept(iris_tree):
    tree, X, y = iris_tree
    cuts = Tree.from_sklearn(tree).topology.cuts.tolist()
    better, report = improve_tree(tree, X, y, frozen=cuts)
    assert report.operations == ()
    assert (better.tree_.threshold == tree.tree_.threshold).all()
    for features in ([1], {cuts[0]: [1], cuts[1]: [1], cuts[2]: [1]}):
        _, report = improve_tree(tree, X, y, mode="hillclimb", features=features)
        assert all(change.feature == 1 for change in report.operations)
    _, report = improve_tree(tree, X, y, mode="hillclimb", operation="adjust")
    assert all(change.kind == "adjust" for change in report.operations)
    _, both = improve_tree(tree, X, y, features=[1], operation="both")
    _, adjust = improve_tree(tree, X, y, operation="adjust")
    _, exchange = improve_tree(tree, X, y, features=[1])
    assert both.n_errors == min(adjust.n_errors, exchange.n_errors)


def test_leaves_keep_their_rows():
    X, y = np.arange(10.0)[:, None], np.repeat([0, 1], [1, 9])
    tree = hand_made(**{**STUMP, "threshold": [4.5, 0, 0]})
    for rows, errors in ((0, 0), (1, 0), (2, 1)):
        better, report = improve_tree(tree, X, y, min_samples_leaf=rows)
        assert report.n_errors == errors
        assert np.bincount(better.apply(X), minlength=3)[1:].min() >= rows
    _, report = improve_tree(tree, X, y, min_weight_fraction_leaf=0.2)
    assert report.n_errors == 1


def test_a_leaf_below_the_floor_may_stay_but_not_shrink():
    X, y = np.arange(10.0)[:, None], np.array([0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    tree = hand_made(**{**STUMP, "threshold": [1.5, 0, 0]})
    _, report = improve_tree(tree, X, y, min_samples_leaf=5)
    assert report.operations == ()
    tree = hand_made(**{**STUMP, "threshold": [-1, 0, 0]})  # an empty leaf may fill
    assert improve_tree(tree, X, y, min_samples_leaf=5)[1].n_errors == 0


def test_exchange_tries_both_ways_for_missing_values():
    X = np.array([[np.nan], [np.nan], [0.0], [1.0]])
    y = np.array([0, 0, 1, 0])
    tree = hand_made(**STUMP, missing_left=[True, False, False])
    better, report = improve_tree(tree, X, y)
    assert report.n_errors_relabelled == 1
    assert report.n_errors == 0
    assert not better.missing_left[0]
    assert better.threshold[0] == 0.5
    assert "missing values go right" in str(report)
    assert improve_tree(tree, X, y, operation="adjust")[1].n_errors == 1


def test_secondary_criteria():
    X = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 35.0, 36.0])[:, None]
    y = np.array([0, 0, 1, 0, 0, 1, 1])
    tree = hand_made(**{**STUMP, "threshold": [0.5, 0, 0]})
    gini, report = improve_tree(tree, X, y, min_samples_leaf=0)
    assert report.errors_by_budget == (3, 1)
    assert gini.threshold[0] == 20.0
    X = np.array([0.0, 1.0, 3.0, 4.0])[:, None]  # 0 1 | 0 1: cuts at 0.5 and 3.5 tie in errors and impurity
    y = np.array([0, 1, 0, 1])
    near_low = improve_tree(hand_made(**{**STUMP, "threshold": [-9, 0, 0]}), X, y)[0]
    near_high = improve_tree(hand_made(**{**STUMP, "threshold": [9, 0, 0]}), X, y)[0]
    assert (near_low.threshold[0], near_high.threshold[0]) == (0.5, 3.5)
    X = np.array([0.0, 1.0, 3.0, 5.0])[:, None]  # the same with a wider gap at 4
    assert improve_tree(hand_made(**{**STUMP, "threshold": [-9, 0, 0]}), X, y)[0].threshold[0] == 4.0


def test_margin_before_gini():
    # One error each: 0 0 | 1 0 1 1 1 across a wide gap, or 0 0 1 0 | 1 1 1, which is purer
    X = np.array([0.0, 1.0, 8.0, 9.0, 10.0, 11.0, 12.0])[:, None]
    y = np.array([0, 0, 1, 0, 1, 1, 1])
    tree = hand_made(**{**STUMP, "threshold": [-9, 0, 0]})
    assert improve_tree(tree, X, y, secondary="margin")[0].threshold[0] == 4.5
    assert improve_tree(tree, X, y, secondary="gini")[0].threshold[0] == 9.5


def test_float32_rows_are_counted_where_the_tree_sends_them():
    """In float64 both 0.1s are the same; a float32 tree sends the rounded one right."""
    X, y = np.array([[0.1], [0.0], [1.0]]), np.array([1, 0, 1])
    tree = hand_made(**{**STUMP, "threshold": [0.1, 0, 0]}, dtype="float32")
    with pytest.warns(UserWarning, match="rounded to float32"):
        better, report = improve_tree(tree, X, y)
    assert report.n_errors_relabelled == 0 == (better.predict(X) != y).sum()
    double = hand_made(**{**STUMP, "threshold": [0.1, 0, 0]})
    assert improve_tree(double, X, y)[1].n_errors_relabelled == 1


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_values_one_float32_apart_stay_apart(scale):
    low = np.float32(0.3) * np.float32(scale)
    high = np.nextafter(low, np.float32(np.inf))
    X, y = np.array([[low], [high]], dtype=np.float32), np.array([0, 1])
    tree = hand_made(**{**STUMP, "threshold": [9 * scale, 0, 0]}, dtype="float32")
    better, report = improve_tree(tree, X, y, min_samples_leaf=0)
    assert report.n_errors == 0 == (better.to_sklearn().predict(X) != y).sum()


@pytest.mark.parametrize("seed", range(25))
def test_no_setting_makes_more_errors_or_touches_the_input(seed):
    tree, X, y, settings = random_problem(seed + 7000)
    before = tree.to_dict()
    weight = np.ones(len(y)) if settings["sample_weight"] is None else settings["sample_weight"]
    for secondary in ("gini", "margin"):
        better, report = improve_tree(tree, X, y, mode="hillclimb", secondary=secondary, **settings)
        assert report.n_errors == pytest.approx((weight * (better.predict(X) != y)).sum(), abs=1e-9)
        assert report.n_errors <= report.n_errors_relabelled <= report.n_errors_before + 1e-9
        assert Tree.from_dict(better.to_dict()).n_cuts == tree.n_cuts
    assert tree.to_dict() == before


def test_a_deep_chain_is_improved():
    n_cuts = 600
    X = np.arange(2.0 * n_cuts)[:, None]
    y = (np.arange(2 * n_cuts) // 2) % 2
    thresholds = 2.0 * np.arange(n_cuts) + 1.5
    thresholds[300] -= 1
    tree = chain(n_cuts, 0, thresholds, dtype="float32").to_sklearn()
    for mode in ("exact", "hillclimb"):
        better, report = improve_tree(tree, X, y, mode=mode)
        assert (report.n_errors_relabelled, report.n_errors) == (1, 0)
        assert (better.predict(X) == y).all()


def test_empty_leaves_take_their_parents_class():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 1])
    tree = complete_depth_2((0, 0, 0), (0.5, -9.0, 9.0), 1, 2)
    better, report = improve_tree(tree, X, y, k=0)
    assert not report.is_reasonable
    assert better.labels.tolist() == [1, 0, 1, 0, 0, 1, 1]
    assert better.n_samples.tolist() == [3, 1, 2, 0, 1, 2, 0]
