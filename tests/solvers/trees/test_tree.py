"""The tree itself: what is refused, how it walks, and that a file gives back what was saved."""

import json
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest
from tree_instances import chain, complete_depth_2, hand_made, random_tree

from thrifty.solvers.trees import Tree

STUMP = {"left": [1, -1, -1], "right": [2, -1, -1], "feature": [0, -1, -1], "threshold": [0.5, 0, 0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": [3, -1, -1]}, r"left\[0\]: expected .*got 3"),
        ({"left": [-2, -1, -1]}, r"left\[0\]: expected .*got -2"),
        ({"left": [0, -1, -1]}, "expected one parent a node"),
        ({"left": [2, -1, -1]}, "expected one parent a node"),
        ({"left": [-1, -1, -1]}, "expected two children, or none"),
        ({"left": [-1, -1, -1], "right": [-1, -1, -1]}, "every node below the root"),
        ({"left": [1.5, -1, -1]}, "left: expected int32, got values"),
        ({"left": ["a", -1, -1]}, "left: expected int32, got"),
        ({"feature": [1, -1, -1]}, r"feature\[0\]: expected .*got 1"),
        ({"feature": [-1, -1, -1]}, r"feature\[0\]: expected .*got -1"),
        ({"threshold": [np.inf, 0, 0]}, r"threshold\[0\]: expected .*got inf"),
        ({"threshold": [0, 0]}, "threshold: expected shape"),
        ({"value": [[0.5, 0.5], [1, 1], [0.5, 0.5]]}, r"value\[1\]"),
        ({"value": [[0.5, 0.5], [1.5, -0.5], [0.5, 0.5]]}, r"value\[1\]"),
        ({"weight": [1, 1, -1]}, r"weight\[2\]"),
        ({"n_samples": [1, -1, 2]}, r"n_samples\[1\]"),
        ({"classes": [0, 0]}, "each once"),
        ({"classes": [0, 1, 2]}, "value: expected shape"),
        ({"dtype": "float16"}, "dtype: expected one of .*got 'float16'"),
        ({"feature_names": ("a", "b")}, "feature_names: expected 1, got 2"),
        ({"missing_left": [True]}, "missing_left: expected shape"),
    ],
)
def test_what_is_no_tree_is_refused(change, message):
    arrays = {
        **STUMP,
        "value": np.full((3, 2), 0.5),
        "weight": np.ones(3),
        "n_samples": [2, 1, 1],
        "classes": [0, 1],
        "n_features": 1,
    }
    Tree(**arrays)
    with pytest.raises(ValueError, match=message):
        Tree(**{**arrays, **change})


def test_nothing_changes_a_tree():
    threshold = np.array([0.5, 0.0, 0.0])
    tree = hand_made(**{**STUMP, "threshold": threshold})
    threshold[0] = 7.0
    assert tree.threshold[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        tree.threshold[0] = 1.0
    with pytest.raises(FrozenInstanceError):
        tree.n_features = 3


def test_topology_numbers_leaves_from_left_to_right():
    #      0
    #    4   3
    #   1 2
    tree = hand_made([4, -1, -1, -1, 1], [3, -1, -1, -1, 2], [0, -1, -1, -1, 0], [5, 0, 0, 0, 2])
    topology = tree.topology
    assert topology.preorder.tolist() == [0, 4, 1, 2, 3]
    assert topology.cuts.tolist() == [0, 4]
    assert topology.leaves.tolist() == [1, 2, 3]
    assert topology.leaf_start.tolist() == [0, 0, 1, 2, 0]
    assert topology.leaf_stop.tolist() == [3, 1, 2, 3, 2]
    assert topology.subtree_cuts.tolist() == [2, 0, 0, 0, 1]
    assert topology.depth.tolist() == [0, 2, 2, 1, 1]
    assert topology.ancestors(1) == [4, 0]
    assert topology.subtree(4).tolist() == [4, 1, 2]
    assert topology.sum_up(np.array([1, 10, 100])).tolist() == [111, 1, 10, 100, 11]
    assert (tree.n_cuts, tree.max_depth) == (2, 2)
    assert tree.apply([[1], [2], [2.5], [5], [6]]).tolist() == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_json_gives_back_the_same_tree(seed, tmp_path):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(8)), 3, 3, 5, missing=bool(seed % 2))
    tree.save(tmp_path / "tree.json")
    again = Tree.load(tmp_path / "tree.json")
    for name in ("left", "right", "feature", "threshold", "value", "weight", "n_samples", "classes", "missing_left"):
        assert np.array_equal(getattr(tree, name), getattr(again, name)), name
    X = rng.integers(5, size=(30, 3)).astype(float)
    assert (tree.predict_proba(X) == again.predict_proba(X)).all()
    assert (again.dtype, again.n_features, again.feature_names) == (tree.dtype, tree.n_features, tree.feature_names)
    with pytest.raises(FileExistsError):
        tree.save(tmp_path / "tree.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "other"}, "schema 'thrifty.tree' version 1, got 'other'"),
        ({"version": 2}, "version 2"),
        ({"extra": 1}, "got also 'extra'"),
        ({"left": None}, "left: expected a list, got a NoneType"),
        ({"left": [[1], 2]}, "left: expected a rectangular list"),
        ({"left": [2**40, -1, -1]}, "left: expected int32, got values"),
        ({"left": [9, -1, -1]}, "expected a child in"),
        ({"threshold": ["inf", 0, 0]}, "threshold"),
        ({"missing_left": [1, 0, 0]}, "missing_left: expected true and false"),
        ({"n_features": "2"}, "n_features: expected .*got '2'"),
        ({"n_features": 0}, "n_features: expected .*got 0"),
        ({"feature_names": [1]}, "feature_names: expected a list of strings"),
        ({"dtype": 5}, "dtype: expected .*got 5"),
    ],
)
def test_a_file_that_is_no_tree_is_refused(change, message, tmp_path):
    document = hand_made(**STUMP, missing_left=[True, False, False]).to_dict()
    assert Tree.from_dict(json.loads(json.dumps(document))).n_cuts == 1
    with pytest.raises(ValueError, match=message):
        Tree.from_dict({**document, **change})
    lacking = {key: entry for key, entry in document.items() if key != "weight"}
    with pytest.raises(ValueError, match="got none of 'weight'"):
        Tree.from_dict(lacking)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json"):
        Tree.load(tmp_path / "broken.json")


def test_tables_that_do_not_fit_are_refused():
    tree = hand_made(**STUMP, feature_names=("width",))
    with pytest.raises(ValueError, match="X: expected 1 features, .*got 2"):
        tree.predict([[1, 2]])
    with pytest.raises(ValueError, match="no missing values .*got NaN in width"):
        tree.predict([[np.nan]])
    with pytest.raises(ValueError, match="infinity"):
        tree.predict([[np.inf]])
    with pytest.raises(ValueError, match="expected 'width' as column 0, got 'height'"):
        tree.predict(pd.DataFrame({"height": [1.0]}))
    single = hand_made(**STUMP, dtype="float32")
    with pytest.raises(ValueError, match="within float32"):
        single.predict([[1e300]])


def test_missing_values_follow_each_cut():
    tree = hand_made(**STUMP, missing_left=[True, False, False])
    assert tree.apply([[np.nan], [0.0], [1.0]]).tolist() == [1, 1, 2]
    tree = hand_made(**STUMP, missing_left=[False, False, False])
    assert tree.apply([[np.nan], [0.0], [1.0]]).tolist() == [2, 1, 2]


def test_float32_decides_ties_as_float32():
    """0.1 is below its own float32 rounding, so the two precisions part at that threshold."""
    threshold = [0.1, 0, 0]
    assert hand_made(**{**STUMP, "threshold": threshold}, dtype="float64").apply([[0.1]]).tolist() == [1]
    assert hand_made(**{**STUMP, "threshold": threshold}, dtype="float32").apply([[0.1]]).tolist() == [2]


def test_majority_keeps_the_old_class_in_a_tie_and_the_parents_in_an_empty_leaf():
    tree = complete_depth_2((0, 0, 0), (1, 1, 1), 1, 3)
    old = np.array(tree.value)
    old[3] = [0.1, 0.8, 0.1]  # class 1 before
    old[5] = [0.1, 0.1, 0.8]
    tree = hand_made(tree.left, tree.right, tree.feature, tree.threshold, n_classes=3).relabel(
        np.ones((7, 3)), np.ones(7)
    )
    tree = replace(tree, value=old)
    counts = np.zeros((7, 3))
    counts[3] = [2, 2, 0]  # a tie with the old class in it
    counts[5] = [2, 2, 0]  # a tie without
    counts[6] = [0, 0, 9]
    counts[1], counts[2] = counts[3], counts[5] + counts[6]
    counts[0] = counts[1] + counts[2]
    new = tree.relabel(counts, counts.sum(axis=1).astype(int))
    assert new.labels[[3, 4, 5, 6]].tolist() == [1, 0, 0, 2]  # leaf 4 is empty: as its parent, whose first is 0
    assert new.weight[4] == 0
    assert np.allclose(new.value.sum(axis=1), 1)
    with pytest.raises(ValueError, match="positive weight"):
        tree.relabel(np.zeros((7, 3)), np.zeros(7, dtype=int))


def test_is_reasonable():
    X, y = [[0], [1]], [0, 1]
    tree = hand_made(**STUMP, missing_left=None)
    right = replace(tree, value=[[0.5, 0.5], [1, 0], [0, 1]])
    assert right.is_reasonable(X, y)
    assert not right.is_reasonable(X, [1, 0])
    assert not right.is_reasonable([[0], [0]], y)


def test_a_chain_of_thousands_of_cuts_works_everywhere(tmp_path):
    n_cuts = 3000
    tree = chain(n_cuts, 0, np.arange(n_cuts))
    X = np.arange(n_cuts + 1.0)[:, None]
    assert tree.max_depth == tree.n_cuts == n_cuts
    assert (np.sort(tree.apply(X)) == np.sort(tree.topology.leaves)).all()
    tree.save(tmp_path / "chain.json")
    assert Tree.load(tmp_path / "chain.json").max_depth == n_cuts
