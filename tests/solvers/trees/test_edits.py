"""Edit scripts: applying what was found gives the other tree, and nothing smaller does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.model.edits import Edit, apply_edits, edits_between


def random_tree(rng, n_cuts, n_features=3, missing=False):
    """A random shape with random tests, nodes in preorder."""
    left, right = [-1], [-1]
    for _ in range(n_cuts):
        leaf = int(rng.choice(np.flatnonzero(np.array(left) < 0)))
        left[leaf], right[leaf] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
    cut = np.array(left) >= 0
    share = rng.random(len(left))
    return Tree(
        left=left,
        right=right,
        feature=np.where(cut, rng.integers(n_features, size=len(left)), -1),
        threshold=np.where(cut, rng.integers(9, size=len(left)) / 2, 0.0),
        value=np.column_stack([share, 1 - share]),
        weight=np.ones(len(left)),
        n_samples=np.ones(len(left), dtype=int),
        classes=np.array(["a", "b"]),
        n_features=n_features,
        missing_left=rng.random(len(left)) < 0.5 if missing else None,
    )


def random_edits(rng, tree, n):
    edits = []
    for v in rng.permutation(tree.topology.cuts)[:n].tolist():
        size = int(tree.topology.subtree_cuts[v])
        match rng.integers(4):
            case 0:
                edits.append(Edit(v, "replace", size))
            case 1:
                child = int(rng.choice([tree.left[v], tree.right[v]]))
                edits.append(Edit(v, "raise", size - int(tree.topology.subtree_cuts[child]), child=child))
            case _:
                side = None if tree.missing_left is None else bool(rng.integers(2))
                edits.append(Edit(v, "exchange", 0, int(rng.integers(3)), float(rng.integers(9)), side))
    return edits


def walk(tree):
    order = tree.topology.preorder
    side = None if tree.missing_left is None else (tree.missing_left & (tree.left >= 0))[order].tolist()
    return tree.feature[order].tolist(), tree.threshold[order].tolist(), side


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), n_cuts=st.integers(0, 15), n_edits=st.integers(0, 4), missing=st.booleans())
def test_what_was_found_makes_the_one_tree_of_the_other(seed, n_cuts, n_edits, missing):
    rng = np.random.default_rng(seed)
    before = random_tree(rng, n_cuts, missing=missing)
    made = random_edits(rng, before, n_edits)
    after = apply_edits(before, made)
    found = edits_between(before, after)
    assert walk(apply_edits(before, found)) == walk(after)
    assert sum(edit.removed for edit in found) == before.n_cuts - after.n_cuts
    changed = [edit for edit in found if edit.kind in ("adjust", "exchange")]
    assert len(changed) <= sum(edit.kind == "exchange" for edit in made)
    assert len({edit.node for edit in found}) == len(found)


def test_kinds_and_numbers():
    before = random_tree(np.random.default_rng(0), 6)
    v = int(before.topology.cuts[1])
    feature, threshold = before.feature.copy(), before.threshold.copy()
    threshold[v] += 1
    assert edits_between(before, replace(before, threshold=threshold)) == (
        Edit(v, "adjust", 0, int(feature[v]), float(threshold[v])),
    )
    feature[v] = (feature[v] + 1) % 3
    assert [e.kind for e in edits_between(before, replace(before, feature=feature))] == ["exchange"]
    assert edits_between(before, before) == ()


def test_long_chains_do_not_recurse():
    n = 2000
    left = np.full(2 * n + 1, -1)
    right = np.full(2 * n + 1, -1)
    left[: 2 * n : 2], right[: 2 * n : 2] = np.arange(1, 2 * n, 2), np.arange(2, 2 * n + 1, 2)
    cut = left >= 0
    chain = Tree(
        left=left, right=right, feature=np.where(cut, 0, -1), threshold=np.where(cut, np.arange(2 * n + 1.0), 0),
        value=np.ones((2 * n + 1, 1)), weight=np.ones(2 * n + 1), n_samples=np.ones(2 * n + 1, dtype=int),
        classes=["a"], n_features=1,
    )  # fmt: skip
    moved = replace(chain, threshold=chain.threshold + cut)
    assert len(edits_between(chain, moved)) == n
    shorter = apply_edits(chain, [Edit(2 * (n - 3), "replace", 3)])
    assert edits_between(chain, shorter) == (Edit(2 * (n - 3), "replace", 3, label=0),)


def test_what_cannot_be_made_is_refused():
    rng = np.random.default_rng(1)
    small, large = random_tree(rng, 2), random_tree(rng, 5)
    with pytest.raises(ValueError, match=r"after: expected .*\(2 cuts\).*got one of 5 cuts"):
        edits_between(small, large)
    with pytest.raises(ValueError, match="same columns, got 3 features before, 4 features after"):
        edits_between(small, random_tree(rng, 2, n_features=4))
    with pytest.raises(ValueError, match="treats missing values as the tree before"):
        edits_between(small, random_tree(rng, 2, missing=True))
