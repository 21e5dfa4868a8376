"""Sets of points, their keys, and the sums along a sweep."""

import numpy as np
import pytest
from tree_instances import random_problem

from thrifty.solvers.trees.boxes.boxes import (
    EVERYTHING,
    boxes_of,
    find_or_add,
    least_errors,
    no_children,
    one_box,
    point_table,
    some_boxes,
)
from thrifty.solvers.trees.boxes.sides import in_order, side_sum
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.instance.ranks import MISSING


def table_of(seed):
    tree, X, y, _ = random_problem(seed)
    return build_problem(tree, X, y).table


def test_a_child_is_found_again():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 2**64, size=(300, 2), dtype=np.uint64)
    keys[:100, 0] = 7  # all in one slot, told apart by the other half
    children = no_children(300, 1)
    numbers = [find_or_add(key1, key2, children) for key1, key2 in keys]
    assert numbers == [(i, True) for i in range(300)]
    assert [find_or_add(key1, key2, children) for key1, key2 in keys] == [(i, False) for i in range(300)]


@pytest.mark.parametrize("seed", range(10))
def test_children_are_written_down(seed):
    table = table_of(seed)
    points = point_table(table)
    parent = np.arange(0, table.n_points, 2, dtype=np.int32)
    boxes = one_box(parent, np.ones(1, dtype=bool))
    j, rank = table.n_features - 1, int(table.domain_sizes[-1]) // 2
    for left in (True, False):
        children = no_children(2, 1)
        at = table.ranks[j, parent]
        inside = np.where(at == MISSING, True, at <= rank) == left
        for number, (feature, size) in enumerate([(j, inside.sum()), (EVERYTHING, len(parent))]):
            assert find_or_add(np.uint64(number), np.uint64(0), children) == (number, True)
            children.parent[number], children.feature[number], children.rank[number] = 0, feature, rank
            children.missing_left[number], children.size[number], children.need[number] = True, size, True
        written = boxes_of(children, boxes, points, left=left)
        assert written.points[: written.start[1]].tolist() == parent[inside].tolist()
        second = some_boxes(written, 1, 2)
        assert second.points.tolist() == parent.tolist()
        assert second.start.tolist() == [0, len(parent)]


def test_unavoidable_errors():
    for seed in range(10):
        table = table_of(seed)
        points = point_table(table)
        everything = one_box(np.arange(table.n_points, dtype=np.int32), np.ones(1, dtype=bool))
        assert least_errors(everything, points.unavoidable)[0] == pytest.approx(table.unavoidable_errors)


def test_both_ways_of_ordering_agree():
    rng = np.random.default_rng(0)
    order = rng.permutation(1000).astype(np.int32)
    place = np.argsort(order).astype(np.int32)
    for m in (0, 1, 5, 30, 400, 1000):
        points = np.sort(rng.choice(1000, size=m, replace=False)).astype(np.int32)
        assert in_order(points, place, order).tolist() == points[np.argsort(place[points])].tolist()


def test_sides_add_up():
    totals = np.concatenate([[0], np.cumsum([1, 2, 4, 8, 16])])  # the last two have missing values
    sides = {(side, with_missing): side_sum(totals, side, 1, 3, 5, with_missing)
             for side in (0, 1) for with_missing in (True, False)}  # fmt: skip
    assert sides == {(0, True): 25, (0, False): 1, (1, True): 30, (1, False): 6}
