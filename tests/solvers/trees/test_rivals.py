"""The rivals do what they are said to do."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.tree import DecisionTreeClassifier
from tree_instances import hand_made, random_problem

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.rivals import plain_dynamic_programme, tao


@pytest.mark.parametrize("seed", range(40))
def test_alternation_never_hurts(seed):
    tree, X, y, settings = random_problem(seed)
    weight = np.ones(len(y)) if settings["sample_weight"] is None else settings["sample_weight"]
    problem = build_problem(tree, X, y, sample_weight=weight)
    better = tao(tree, X, y, sample_weight=weight)
    after = (weight * (better.predict(X) != y)).sum()
    assert after <= problem.n_errors(problem.cuts) + 1e-9
    assert (better.left == tree.left).all()
    again = tao(better, X, y, sample_weight=weight)
    assert (weight * (again.predict(X) != y)).sum() == pytest.approx(after)


def test_each_cut_gets_the_best_test_for_fixed_labels():
    """One cut: alternation with its leaves' classes fixed finds the stump of fewest errors."""
    X = np.array([[0, 5], [1, 4], [2, 9], [3, 1], [4, 8], [5, 7]], dtype=float)
    y = np.array([0, 0, 1, 0, 1, 1])
    stump = hand_made([1, -1, -1], [2, -1, -1], [0, -1, -1], [0.5, 0, 0], n_features=2)
    better = tao(stump, X, y)
    assert (better.feature[0], better.threshold[0]) == (1, 6.0)
    assert (better.predict(X) == y).all()


@pytest.mark.parametrize(("table", "errors"), [(load_iris, 4), (load_wine, 4), (load_digits, 919)])
def test_alternation_improves_fitted_trees(table, errors):
    X, y = table(return_X_y=True)
    fitted = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    better = tao(fitted, X, y)
    assert isinstance(better, DecisionTreeClassifier)
    assert (fitted.predict(X) != y).sum() == errors > (better.predict(X) != y).sum()
    assert better.get_n_leaves() == fitted.get_n_leaves()


@pytest.mark.parametrize("seed", range(40))
def test_the_plain_programme_is_right(seed):
    tree, X, y, settings = random_problem(seed, max_cuts=4, missing=False)
    settings["min_samples_leaf"] = 0
    settings.pop("min_weight_fraction_leaf", None)
    problem = build_problem(tree, X, y, **settings)
    k = min(2, tree.n_cuts)
    assert plain_dynamic_programme(problem, k, time_limit=60) == pytest.approx(solve_dp(problem, k).lower_bound)


def test_the_plain_programme_stops():
    X, y = load_wine(return_X_y=True)
    tree = Tree.from_sklearn(DecisionTreeClassifier(random_state=0).fit(X, y))
    with pytest.raises(TimeoutError, match=r"0\.05 seconds"):
        plain_dynamic_programme(build_problem(tree, X, y), 2, time_limit=0.05)


@pytest.mark.parametrize("rounds", [0, -1, 1.5, None])
def test_rounds_that_are_none_are_refused(rounds):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="max_rounds: expected"):
        tao(DecisionTreeClassifier(max_depth=2).fit(X, y), X, y, max_rounds=rounds)
