"""Index arithmetic of the budgets against enumeration."""

import numpy as np
import pytest
from pruning_oracle import all_prunings
from tree_instances import complete_depth_2, random_tree

from thrifty.solvers.trees.boxes.splits import CHANGE, KEEP, Kind, all_splits


def kinds(tree, *budgets):
    allowed = np.zeros((tree.n_nodes, 1), dtype=bool)
    allowed[tree.topology.cuts] = True
    return tuple(Kind("adjust", budget, allowed, False) for budget in budgets)


@pytest.mark.parametrize("seed", range(20))
def test_numbers_of_cuts_that_can_be_removed(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, rng.integers(1, 6), 2, 2, 3)
    s = tree.n_cuts
    root = all_splits(tree.topology, kinds(tree, 0), s, s)[0]
    possible = set().union(*(charges for _, charges in all_prunings(tree)))
    reached = {(r, q) for r, q in np.ndindex(s + 1, s + 1) if root.shape_only.reshape(s + 1, s + 1)[r, q] == 0}
    assert reached == possible


def test_two_kinds_of_change():
    tree = complete_depth_2((0, 0, 0), (0, 0, 0), 1, 2)
    splits = all_splits(tree.topology, kinds(tree, 2, 1), 0, 0)
    root, child, leaf = splits[0], splits[1], splits[3]
    assert (root.shape, child.shape, leaf.shape) == ((3, 2, 1, 1), (2, 2, 1, 1), (1, 1, 1, 1))
    kept = root.triples[root.start[KEEP] : root.start[KEEP + 1]]
    assert {tuple(row) for row in kept} == {
        (2 * (a + b) + c + d, 2 * a + c, 2 * b + d)
        for a, b, c, d in np.ndindex(2, 2, 2, 2)
        if c + d < 2
    }  # fmt: skip
    changed = root.triples[root.start[CHANGE] : root.start[CHANGE + 1]]
    assert (0, 0) not in {(here, left) for here, left, _ in changed}
    assert root.unit.tolist() == [2, 1]
    assert root.needs_left.tolist() == [[0, 1, 2, 3], [2, 3, 4, 5], [1, -1, 3, -1]]
    assert root.up_to(2).tolist() == [True, False, True, False, False, False]


def test_cuts_that_may_not_change():
    tree = complete_depth_2((0, 0, 0), (0, 0, 0), 1, 2)
    (kind,) = kinds(tree, 3)
    kind.allowed[[0, 2]] = False
    splits = all_splits(tree.topology, (kind,), 0, 0)
    assert [split.shape[0] for split in splits[:3]] == [2, 2, 1]
    assert [int(split.unit[0]) for split in splits[:3]] == [-1, 1, -1]
