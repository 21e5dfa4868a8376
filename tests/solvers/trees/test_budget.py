"""The decision for few errors against the dynamic programme."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from tree_instances import chain, complete_depth_2, random_problem

from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.small.budget import MAX_CUTS, MAX_ERRORS, solve_budget, within_errors


def few_errors(seed):
    """A problem whose classes follow the features, so that few errors are within reach."""
    tree, X, y, settings = random_problem(seed, max_cuts=6)
    settings["min_samples_leaf"] = 0
    settings.pop("min_weight_fraction_leaf", None)
    if settings["sample_weight"] is not None:
        settings["sample_weight"] = np.ceil(settings["sample_weight"])
    if seed % 2:
        y = np.minimum((np.nan_to_num(X[:, 0]) > 1) * (np.nan_to_num(X[:, -1]) < 3), len(tree.classes) - 1)
    return build_problem(tree, X, y, **settings)


@pytest.mark.parametrize("seed", range(80))
def test_equals_the_dynamic_programme(seed):
    problem = few_errors(seed)
    for k in range(min(3, problem.tree.n_cuts) + 1):
        fewest = solve_dp(problem, k).lower_bound
        for t in range(MAX_ERRORS + 1):
            cuts = within_errors(problem, k, t)
            assert (cuts is not None) == (fewest <= t)
            if cuts is not None:
                assert problem.n_errors(cuts) <= t
                assert len(problem.changed(cuts)) <= k
        if fewest <= MAX_ERRORS:
            found = solve_budget(problem, k)
            assert (found.status, found.lower_bound) == ("optimal", fewest)
            assert problem.n_errors(found.cuts) == fewest
            assert len(found.errors_by_budget) == k + 1
        else:
            with pytest.raises(ValueError, match="solver: 'budget' stops at 3 errors"):
                solve_budget(problem, k)


def test_iris():
    """No tree of depth 2 makes fewer than 6 errors, so none makes 3."""
    X, y = load_iris(return_X_y=True)
    problem = build_problem(complete_depth_2((0, 0, 0), (0, 0, 0), 4, 3), X, y, min_samples_leaf=0)
    assert within_errors(problem, 3, 3) is None


def problem_with(*, n_cuts=2, **settings):
    X, y = np.arange(6.0)[:, None], np.array([0, 0, 1, 1, 0, 0])
    return build_problem(chain(n_cuts, 0, 2.0, n_features=1), X, y, **{"min_samples_leaf": 0, **settings})


@pytest.mark.parametrize(
    ("problem", "t", "message"),
    [
        (problem_with(n_cuts=MAX_CUTS + 1), 0, "got 'budget' for 11"),
        (problem_with(), MAX_ERRORS + 1, "t: expected .*got 4"),
        (problem_with(), -1, "t: expected .*got -1"),
        (problem_with(min_samples_leaf=1), 0, "min_samples_leaf=0"),
        (problem_with(sample_weight=[0.5] * 6), 0, "whole numbers"),
    ],
)
def test_what_it_does_not_take(problem, t, message):
    with pytest.raises(ValueError, match=message):
        within_errors(problem, 1, t)
