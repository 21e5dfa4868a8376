"""A user's table for a tree."""

import numpy as np
import pytest

from thrifty._common.tables import one_hot, split_target, typed
from thrifty.solvers.trees.model.weka import tree_from_weka
from thrifty.solvers.trees.shell.columns import columns_for, labels_for, matrix_for

TABLE = {"age": typed(["1", "2", ""]), "colour": typed(["red", "blue", "?"]), "grade": typed(["1", "2", ""])}


def test_the_same_columns_as_one_hot():
    X, names = one_hot(TABLE)
    assert names == ("age", "colour=blue", "colour=red", "grade")
    np.testing.assert_array_equal(columns_for(names, TABLE), X)
    np.testing.assert_array_equal(columns_for(names[::-1], TABLE), X[:, ::-1])


def test_values_that_this_table_lacks_are_zero_and_numbers_may_be_values():
    X = columns_for(["colour=green", "grade=1", "grade=2.0", "grade=high"], TABLE)
    np.testing.assert_array_equal(X[:2], [[0, 1, 0, 0], [0, 0, 1, 0]])
    assert np.isnan(X[2]).all()


def test_names_that_hold_an_equals_sign():
    X = columns_for(["a=b=c", "x=1"], {"a=b": typed(["c", "d"]), "x=1": np.array([5.0, 6.0])})
    np.testing.assert_array_equal(X, [[1, 5], [0, 6]])


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="--data: expected a column 'height', .*got age, colour, grade"):
        columns_for(["height"], TABLE)
    with pytest.raises(ValueError, match="--data: expected numbers in column 'colour', .*got text such as 'red'"):
        columns_for(["colour"], TABLE)


def test_trees_without_names_take_all_columns_in_order():
    from dataclasses import replace

    tree = replace(tree_from_weka("x <= 1: a (1.0)\nx > 1: b (1.0)"), feature_names=None)
    np.testing.assert_array_equal(matrix_for(tree, {"z": np.array([3.0])}), [[3.0]])
    with pytest.raises(ValueError, match="--data: expected 1 columns, .*got 4: age, colour=blue"):
        matrix_for(tree, TABLE)


def test_target():
    features, y = split_target({**TABLE, "y": typed(["1", "0", "1"])}, "y")
    assert list(features) == ["age", "colour", "grade"]
    assert y.dtype == np.int64
    assert split_target({"x": np.ones(2), "y": typed(["1.5", "2"])}, "y")[1].tolist() == [1.5, 2.0]
    assert split_target({"x": np.ones(2), "y": typed(["yes", "no"])}, "y")[1].tolist() == ["yes", "no"]
    with pytest.raises(ValueError, match="a column among age, colour, grade, got 'z'"):
        split_target(TABLE, "z")
    with pytest.raises(ValueError, match=r"got 1 without \(the first is row 3\)"):
        split_target(TABLE, "colour")
    with pytest.raises(ValueError, match="got 'y' as its only column"):
        split_target({"y": np.ones(2)}, "y")


def test_labels_take_the_type_of_the_trees_classes():
    assert labels_for(np.array(["0", "1"]), np.array([1, 0])).tolist() == ["1", "0"]
    assert labels_for(np.array(["0.5", "1"]), np.array([0.5, 1.0])).tolist() == ["0.5", "1"]
    assert labels_for(np.array([False, True]), np.array(["True", "False"])).tolist() == [True, False]
    assert labels_for(np.array(["a", "b"]), np.array(["b"])).tolist() == ["b"]
