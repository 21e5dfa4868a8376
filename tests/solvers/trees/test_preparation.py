"""The paper's preparation of a table."""

import numpy as np
import pytest

from thrifty._common.tables import typed
from thrifty.solvers.trees.instance.preparation import prepare


def test_one_hot_largest_class_and_no_contradictions():
    columns = {"c": typed(["r", "r", "b", "b", "b", "g"]), "x": typed(["1", "1", "2", "2", "3", ""])}
    table = prepare(columns, ["p", "q", "p", "p", "q", "s"])
    assert table.feature_names == ("c=b", "c=g", "c=r", "x")
    assert table.largest_class == "p"
    assert table.rows.tolist() == [2, 3, 4, 5], "the first two agree in all features and not in class"
    assert table.n_removed == 2
    assert table.y.tolist() == [1, 1, 0, 0]
    np.testing.assert_array_equal(table.X[0], [1, 0, 0, 2])
    assert np.isnan(table.X[3, 3])


def test_classes_of_the_rest_do_not_contradict_each_other():
    table = prepare({"x": np.array([1.0, 1.0, 2.0, 2.0])}, [3, 4, 5, 5])
    assert (table.largest_class, table.y.tolist()) == (5, [0, 0, 1, 1])


def test_missing_values_agree_with_each_other():
    table = prepare({"x": np.array([np.nan, np.nan, 1.0])}, [0, 1, 1])
    assert table.rows.tolist() == [2]


def test_equally_large_classes_take_the_first():
    assert prepare({"x": np.arange(4.0)}, ["b", "a", "b", "a"]).largest_class == "a"


def test_what_cannot_be_prepared_is_refused():
    with pytest.raises(ValueError, match="columns: expected 3 rows, .*got 2 in 'x'"):
        prepare({"x": np.zeros(2)}, [0, 1, 1])
    with pytest.raises(ValueError, match="got none of 2"):
        prepare({"x": np.zeros(2)}, [0, 1])
