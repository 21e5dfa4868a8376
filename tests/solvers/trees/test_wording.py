"""The difference in words, and how many digits a number takes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees import Tree, improve_tree
from thrifty.solvers.trees.model.edits import Edit, apply_edits
from thrifty.solvers.trees.model.weka import tree_from_weka
from thrifty.solvers.trees.model.wording import describe_difference, errors_in_words, short_number

CHAIN = """
width <= 1: a (1.0)
width > 1
|   height <= 1: b (1.0)
|   height > 1
|   |   width <= 2: a (1.0)
|   |   width > 2: b (1.0)
"""
X = np.array([[0, 0], [2, 0], [2, 2], [3, 2], [1.25, 2], [1.25, 0]])
Y = np.array(["a", "b", "a", "b", "a", "b"])


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([], "no cut differs"),
        ([Edit(0, "adjust", 0, 0, 1.5, False)], "cut 0: width ≤ 1 → width ≤ 1.5, +1 error"),
        ([Edit(4, "exchange", 0, 1, 1.5, True)], "cut 4: width ≤ 2 → height ≤ 1.5, +1 error"),
        ([Edit(4, "exchange", 0, 1, 1.5, False)], "cut 4: width ≤ 2 → height ≤ 1.5, +1 error"),
        (
            [Edit(4, "adjust", 0, 0, 2.0, False)],
            "cut 4: width ≤ 2 → width ≤ 2 (missing values go right), ±0 errors",
        ),
        ([Edit(4, "replace", 1)], "cut 4: width ≤ 2 → a leaf (a), +1 error"),
        ([Edit(2, "replace", 2)], "cut 2: height ≤ 1 and the cut below it → a leaf (b), +2 errors"),
        ([Edit(2, "raise", 1, child=4)], "cut 2: height ≤ 1 → its right branch, +2 errors"),
        ([Edit(0, "raise", 1, child=2)], "cut 0: width ≤ 1 → its right branch, +1 error"),
        (
            [Edit(0, "raise", 1, child=2), Edit(4, "replace", 1)],
            "cut 0: width ≤ 1 → its right branch, +1 error\ncut 4: width ≤ 2 → a leaf (a), +1 error",
        ),
    ],
)
def test_every_kind_of_change_reads_as_meant(edits, words):
    tree = tree_from_weka(CHAIN)
    found = str(describe_difference(tree, apply_edits(tree, edits), X, Y))
    assert found == words


def test_the_missing_direction_is_told_where_values_may_be_missing():
    tree = tree_from_weka(CHAIN)
    after = apply_edits(tree, [Edit(4, "exchange", 0, 1, 1.5, False)])
    assert str(describe_difference(tree, after)).endswith("height ≤ 1.5 (missing values go right)")
    gaps = X.astype(float)
    gaps[2, 1] = np.nan
    assert "(missing values go right)" in str(describe_difference(tree, after, gaps, Y))


def test_a_raised_branch_names_the_side_that_goes():
    tree = tree_from_weka("x <= 4\n|   x <= 2\n|   |   x <= 1: a (1.0)\n|   |   x > 1: b (1.0)\n"
                          "|   x > 2: a (1.0)\nx > 4\n|   x <= 5: a (1.0)\n|   x > 5: b (1.0)")  # fmt: skip
    after = apply_edits(tree, [Edit(0, "raise", 3, child=int(tree.right[0]))])
    assert str(describe_difference(tree, after)) == "cut 0: x ≤ 4 and the 2 cuts on its left → its right branch"


def test_the_example_of_the_documentation():
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.columns = [name.removesuffix(" (cm)") for name in X.columns]
    names = load_iris().target_names[y]
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=2, random_state=3).fit(X, names))
    v = int(tree.topology.cuts[1])
    feature, threshold = tree.feature.copy(), tree.threshold.copy()
    feature[v], threshold[v] = 1, np.float32(3.05)
    spoilt = replace(tree, threshold=threshold, feature=feature)
    better, report = improve_tree(spoilt, X, names, k=1)
    found = describe_difference(spoilt, better, X, names)
    assert str(found) == "cut 2: sepal width ≤ 3.05 → petal width ≤ 1.75, −35 errors"
    assert found == report.difference
    assert (found.n_errors_before, found.n_errors) == (41, 6)
    document = json.loads(json.dumps(found.to_dict()))
    assert document["changes"][0]["in_words"] == str(found)
    assert str(describe_difference(spoilt, better)) == "cut 2: sepal width ≤ 3.05 → petal width ≤ 1.75"


def test_changes_that_help_only_together_say_so():
    tree = tree_from_weka(
        "x <= 0\n|   y <= 0: a (1.0)\n|   y > 0: b (1.0)\nx > 0\n|   y <= 0: a (1.0)\n|   y > 0: b (1.0)"
    )
    rows = np.array([[1, 1], [1, 3], [3, 1], [3, 3]])
    classes = np.array(["a", "b", "b", "a"])
    after = apply_edits(tree, [Edit(v, "adjust", 0, int(tree.feature[v]), 2.0, True) for v in tree.topology.cuts])
    text = str(describe_difference(tree, after, rows, classes))
    assert text.count("\n") == 3
    assert text.endswith("together −2 errors (each line: what undoing that change alone costs)")


@pytest.mark.parametrize(
    ("change", "words"),
    [(-3, "−3 errors"), (1, "+1 error"), (-1.0, "−1 error"), (0.0, "±0 errors"), (-2.5, "−2.5 errors")],
)
def test_errors_in_words(change, words):
    assert errors_in_words(change) == words


@pytest.mark.parametrize(
    ("x", "others", "words"),
    [
        (0.800000011920929, [0.6, 1.0], "0.8"),
        (2.4500000476837158, [1.9, 3.0], "2.45"),
        (17.45, [17.4499, 17.4501], "17.45"),
        (1 / 3, [0.3, 0.4], "0.333"),
        (1 / 3, [1 / 3 + 1e-9, 0.0], "0.33333333333"),
        (123456.5, [123456, 123457], "123456.5"),
        (-1.0, [0.0], "-1"),
        (2.5e-7, [2e-7, 3e-7], "2.5e-7"),
        (0.0, [-1, 1], "0"),
    ],
)
def test_as_few_digits_as_tell_it_apart(x, others, words):
    assert short_number(x, np.array(others)) == words


@given(st.floats(-1e300, 1e300), st.lists(st.floats(allow_nan=True), min_size=1))
def test_a_printed_number_is_on_the_same_side_of_every_other(x, others):
    others = np.array(others)
    printed = float(short_number(x, others))
    apart = others[others != x]
    np.testing.assert_array_equal(printed < apart, x < apart)
    assert float(short_number(x, others, np.float64)) == x


def test_a_threshold_that_is_a_value_reads_back_as_that_value():
    before = tree_from_weka("x <= 0.30000001192092896: a (1.0)\nx > 0.30000001192092896: b (1.0)")
    after = replace(before, threshold=[7.0, 0, 0])
    table = np.array([[np.float32(0.3)], [9.0]], dtype=np.float64)
    words = str(describe_difference(before, after, table, np.array(["a", "b"])))
    assert words.startswith("cut 0: x ≤ 0.30000001192092896 → x ≤ 7,")
    before, after = (replace(tree, dtype="float32") for tree in (before, after))
    assert str(describe_difference(before, after, table, np.array(["a", "b"]))).startswith("cut 0: x ≤ 0.3 →")


def test_trees_of_scikit_learn_are_compared_as_they_are():
    X, y = load_iris(return_X_y=True)
    before = DecisionTreeClassifier(max_depth=2, max_features=1, random_state=3).fit(X, y)
    after, report = improve_tree(before, X, y)
    assert report.difference.edits
    assert describe_difference(before, after, X, y) == report.difference
    with pytest.raises(TypeError, match="expected a DecisionTreeClassifier"):
        describe_difference(before, None)
