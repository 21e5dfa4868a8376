"""The kernels against plain re-evaluation, and the ranks under them."""

import numpy as np
import pytest
from tree_instances import random_problem

from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.instance.ranks import MISSING, midpoint, rank_table
from thrifty.solvers.trees.model.labels import leaf_errors
from thrifty.solvers.trees.sweeps.moves import Place, Positions, fill_both
from thrifty.solvers.trees.sweeps.sweep import Points, empty_leaves, partition, side_leaves


@pytest.mark.parametrize("seed", range(40))
def test_sweep_arrays_equal_evaluation_at_every_position(seed):
    """Oracle 9, at every cut and feature."""
    tree, X, y, settings = random_problem(seed)
    problem = build_problem(tree, X, y, **settings)
    table, topology, cuts = problem.table, problem.topology, problem.cuts
    n = table.n_points
    points = Points(table.ranks, table.y, table.weight, table.n_rows)
    leaf = problem.leaf_of(cuts)
    leaves = empty_leaves(topology.n_leaves, table.n_classes)
    for v in topology.cuts:
        first, last = topology.leaf_start[v], topology.leaf_stop[v]
        here = np.flatnonzero((leaf >= first) & (leaf < last)).astype(np.int32)
        leaf_left, leaf_right = problem.leaf_of(cuts, topology.left[v]), problem.leaf_of(cuts, topology.right[v])
        place = Place(0, 0.0, False, False, first, topology.leaf_stop[topology.left[v]], last, errors=0.0, gini=0.0)
        for j in range(table.n_features):
            order = here[np.argsort(table.ranks[j, here], kind="stable")]
            m = int((table.ranks[j, order] != MISSING).sum())
            work = Positions(*(np.empty(n + 1) for _ in range(4)))
            fill_both(order, m, 0, False, False, place, points, leaf_left, leaf_right, leaves, problem.floors, work)
            for p in range(m + 1):
                assert work.error_left[p] == pytest.approx(plain_errors(problem, order[:p], leaf_left), abs=1e-9)
                assert work.error_right[m - p] == pytest.approx(plain_errors(problem, order[p:m], leaf_right), abs=1e-9)


def plain_errors(problem, points, leaf):
    table = problem.table
    counts = np.zeros((problem.topology.n_leaves, table.n_classes))
    np.add.at(counts, (leaf[points], table.y[points]), table.weight[points])
    return leaf_errors(counts).sum()


@pytest.mark.parametrize("seed", range(20))
def test_leaves_by_walking_and_bottom_up_agree(seed):
    tree, X, y, settings = random_problem(seed + 100)
    problem = build_problem(tree, X, y, **settings)
    topology, cuts, n = problem.topology, problem.cuts, problem.table.n_points
    everywhere = problem.leaf_table(cuts)
    for v in range(tree.n_nodes):
        assert (everywhere[v] == problem.leaf_of(cuts, v)).all()
    leaf, left, right = everywhere[0], np.full(n, -1, dtype=np.int32), np.full(n, -1, dtype=np.int32)
    sent = np.zeros(n, dtype=bool)
    for v in topology.cuts:
        here = np.flatnonzero((leaf >= topology.leaf_start[v]) & (leaf < topology.leaf_stop[v])).astype(np.int32)
        n_left = side_leaves(
            v, topology.left, topology.right, topology.leaf_start, cuts.feature, cuts.rank,
            cuts.missing_left, problem.table.ranks, here, leaf, left, right, sent,
        )  # fmt: skip
        assert (left[here] == everywhere[topology.left[v]][here]).all()
        assert (right[here] == everywhere[topology.right[v]][here]).all()
        assert n_left == sent[here].sum() == (leaf[here] == left[here])[sent[here]].sum()


def test_partition_is_stable():
    order = np.array([[4, 2, 0, 3, 1], [0, 1, 2, 3, 4]], dtype=np.int32)
    sent_left = np.array([True, False, True, False, False])
    partition(order, 1, 5, sent_left, np.empty(5, dtype=np.int32))
    assert order.tolist() == [[4, 2, 0, 3, 1], [0, 2, 1, 3, 4]]


def test_equal_rows_of_a_class_become_one_point():
    X = np.array([[1.0, 5.0], [1.0, 5.0], [1.0, 5.0], [0.0, np.nan], [0.0, np.nan], [2.0, 5.0]])
    codes = np.array([0, 1, 0, 2, 2, 1], dtype=np.int32)
    table = rank_table(X, codes, np.array([1.0, 2.0, 3.0, 1.0, 1.0, 0.0]), 3, np.array([0, 1]))
    assert table.n_points == 3
    assert table.weight.tolist() == [2, 4, 2]
    assert table.n_rows.tolist() == [2, 2, 1]
    assert table.y.tolist() == [2, 0, 1]
    assert table.group.tolist() == [0, 1, 1]
    assert table.ranks.tolist() == [[0, 1, 1], [MISSING, 0, 0]]
    assert table.order.tolist() == [[0, 1, 2], [1, 2, 0]]
    assert table.unavoidable_errors == 2
    assert [distinct.tolist() for distinct in table.values] == [[0, 1], [5]]  # rows without weight leave no value


@pytest.mark.parametrize("seed", range(10))
def test_orders_are_sorted(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(6, size=(50, 3)).astype(float)
    X[rng.random(X.shape) < 0.2] = np.nan
    table = rank_table(X, rng.integers(3, size=50).astype(np.int32), np.ones(50), 3, np.arange(3))
    for ranks, order in zip(table.ranks, table.order, strict=True):
        assert (np.argsort(ranks, kind="stable") == order).all()
    assert table.n_rows.sum() == 50


def test_thresholds_lie_between_values_and_are_finite():
    X = np.array([[0.0], [1.0], [4.0]])
    table = rank_table(X, np.zeros(3, dtype=np.int32), np.ones(3), 1, np.array([0]))
    assert [table.threshold_at(0, rank) for rank in (-1, 0, 1, 2)] == [-1.0, 0.5, 2.5, 5.0]
    assert table.threshold_between(0, 0, 2) == 2.0
    assert [table.rank_of(0, threshold) for threshold in (-1.0, 0.0, 0.5, 4.0, 9.0)] == [-1, 0, 0, 2, 2]
    odd = np.nextafter(1.0, 2.0)  # its mean with either neighbour rounds to the neighbour
    assert midpoint(1.0, odd) == 1.0
    assert midpoint(odd, np.nextafter(odd, 2.0)) == odd
    assert midpoint(-1.7e308, 1.7e308) == 0.0
    huge = rank_table(np.array([[1e17], [2e17]]), np.zeros(2, dtype=np.int32), np.ones(2), 1, np.array([0]))
    assert huge.threshold_at(0, -1) < 1e17
    assert np.isfinite(huge.threshold_at(0, 1))
