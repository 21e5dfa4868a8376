"""Hitting set as threshold adjustment: the fewest changes without error are a smallest hitting set."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty.solvers.trees import improve_tree
from thrifty.solvers.trees.instance.gadgets import hitting_set_instance
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.small.brute import solve_brute


def smallest_hitting_set(sets, n_elements):
    for size in range(n_elements + 1):
        if any(all(set(chosen) & set(members) for members in sets) for chosen in combinations(range(n_elements), size)):
            return size
    raise AssertionError


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=5))
def test_the_fewest_adjustments_are_a_smallest_hitting_set(sets):
    tree, X, y = hitting_set_instance(sets, n_elements=5)
    smallest = smallest_hitting_set(sets, 5)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    errors = solve_brute(problem, smallest).errors_by_budget
    assert errors[-1] == 0
    assert all(error > 0 for error in errors[:-1])
    assert errors[0] == len(sets)


def test_the_table_is_the_papers():
    tree, X, y = hitting_set_instance([{0, 2}, {1}], n_elements=4)
    assert (tree.n_cuts, tree.max_depth, X.shape) == (4, 4, (5, 4))
    np.testing.assert_array_equal(X[:2], [[0, 1, 0, 1], [1, 0, 1, 1]])
    assert (X[2:] == 1).all()
    assert y.tolist() == ["red", "red", "blue", "blue", "blue"]
    assert (tree.predict(X) == "blue").all()
    assert improve_tree(tree, X, y, operation="adjust", k=1)[1].n_errors == 1


@pytest.mark.parametrize(
    ("sets", "n", "says"),
    [
        ([], None, "at least one set to hit, got none"),
        ([{0}, set()], None, "got an empty one"),
        ([{3}], 3, r"elements in 0\.\.2"),
        ([{-1}], 3, "got others"),
        ([{1, "a"}], None, "sets: expected sets of whole numbers"),
        ([{1}], 2.5, "n_elements: expected .*got 2.5"),
    ],
)
def test_what_is_no_hitting_set_problem_is_refused(sets, n, says):
    with pytest.raises(ValueError, match=says):
        hitting_set_instance(sets, n)
