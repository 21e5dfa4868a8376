"""The table of four budgets against enumeration, and the trees behind its entries."""

import numpy as np
import pytest
from pruning_oracle import brute_table
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier, export_text
from tree_instances import chain, complete_depth_2, hand_made, random_problem

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.boxes.dp import solve_dp
from thrifty.solvers.trees.boxes.error_table import error_table
from thrifty.solvers.trees.instance.problem import build_problem


def worked_example():
    """The worked example: R R B B R R."""
    tree = complete_depth_2((0, 0, 0), (3, 1, 5), 1, 2)
    tree = hand_made(tree.left, tree.right, tree.feature, tree.threshold, n_features=1, classes=np.array(["B", "R"]))
    return tree, np.arange(1.0, 7.0)[:, None], np.array(["R", "R", "B", "B", "R", "R"])


def random_case(seed):
    tree, X, y, settings = random_problem(seed, max_cuts=4)
    settings.pop("min_weight_fraction_leaf", None)
    settings.pop("operation")
    rng = np.random.default_rng(seed)
    X = np.minimum(X, 2) if tree.n_cuts > 2 else X
    changes = (int(rng.integers(3)), 1) if tree.n_cuts <= 2 else (1, int(rng.integers(2)))
    if changes[1] == 0:
        settings.pop("features", None)
    return tree, X, y, (*changes, int(rng.integers(5)), int(rng.integers(5))), settings


@pytest.mark.parametrize("seed", range(50))
def test_equals_brute_force(seed):
    """All four budgets at once; every entry's tree makes the errors that the entry says, with the edits it allows."""
    tree, X, y, budgets, settings = random_case(seed)
    problem = build_problem(tree, X, y, operation="both" if budgets[1] else "adjust", **settings)
    weight = np.ones(len(y)) if settings["sample_weight"] is None else settings["sample_weight"]
    expected = brute_table(problem, budgets, settings["min_samples_leaf"])
    for memory in (2048, 1e-3):
        table = error_table(tree, X, y, *budgets, memory_limit_mb=memory, **settings)
        assert table.shape == expected.shape
        np.testing.assert_allclose(table, expected, atol=1e-9)
        for index in np.argwhere(np.isfinite(expected))[:: 1 if memory == 2048 else 3]:
            a, e, r, q = map(int, index)
            found = table.tree((a, e, r, q))
            kinds = [edit.kind for edit in found.edits]
            assert (weight * (found.tree.predict(X) != y)).sum() == pytest.approx(found.n_errors, abs=1e-6)
            assert found.n_errors == pytest.approx(expected[a, e, r, q], abs=1e-9)
            assert kinds.count("adjust") <= a
            assert kinds.count("exchange") <= e
            assert sum(edit.removed for edit in found.edits) == r + q == tree.n_cuts - found.tree.n_cuts
            assert r > 0 or "replace" not in kinds
            assert q > 0 or "raise" not in kinds
            assert found.tree.weight[0] == pytest.approx(weight.sum())


def test_worked_example():
    tree, X, y = worked_example()
    table = error_table(tree, X, y, k_adjust=3, n_prune=3, min_samples_leaf=0)
    assert table[:, 0, :, 0].tolist() == [[2, 2, 2, 2], [1, 1, 2, 2], [0, 0, 2, 2], [0, 0, 2, 2]]
    found = table.tree((2, 0, 1, 0))
    assert [(edit.node, edit.kind, edit.threshold) for edit in found.edits] == [
        (0, "adjust", 2.5),
        (1, "replace", 0.0),
        (2, "adjust", 4.5),
    ]
    assert (found.tree.predict(X) == y).all()
    assert table.free_pruning().tolist() == [[3], [1], [1], [1]]


@pytest.mark.parametrize("seed", range(30))
def test_replacement_alone(seed):
    """Oracle 8: everything replaced leaves the majority; without pruning the table is the dynamic programme."""
    tree, X, y, _ = random_problem(seed + 100, max_cuts=6)
    s = tree.n_cuts
    table = error_table(tree, X, y, k_adjust=min(2, s), n_prune=s, n_raise=s, min_samples_leaf=0)
    majority = len(y) - np.bincount(y).max()
    assert table[0, 0, s, 0] == majority
    assert (table[:, 0, s, 0] == majority).all()
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    assert tuple(table[:, 0, 0, 0]) == solve_dp(problem, min(2, s)).errors_by_budget
    removed = np.add.outer(np.arange(s + 1), np.arange(s + 1))
    assert np.isinf(table[:, :, removed > s]).all()
    assert (table[1:] <= table[:-1]).all()


def test_raising():
    """The root's test is noise and its right child's is all that is needed: raising it loses nothing."""
    tree = hand_made([1, -1, 3, -1, -1], [2, -1, 4, -1, -1], [0, -1, 1, -1, -1], [0.5, 0, 0.5, 0, 0])
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [0, 1], [0, 1], [0, 0], [0, 0]], dtype=float)
    y = X[:, 1].astype(int)
    table = error_table(tree, X, y, k_adjust=0, n_prune=1, n_raise=1)
    assert table[0, 0].tolist() == [[3, 0], [4, 4]]
    found = table.tree((0, 0, 0, 1))
    assert [(edit.node, edit.kind, edit.child, edit.removed) for edit in found.edits] == [(0, "raise", 2, 1)]
    assert found.tree.n_samples.tolist() == [8, 4, 4]


def test_it_behaves_as_an_array():
    table = error_table(*worked_example(), k_adjust=1, n_prune=1, min_samples_leaf=0)
    assert (table.ndim, len(table), table.shape) == (4, 2, (2, 1, 2, 1))
    assert np.min(table) == 1
    assert (table + 1).tolist() == (table.errors + 1).tolist()
    assert (table <= table).all()
    assert np.asarray(table, dtype=int).dtype == np.int64
    assert "optimal" in repr(table)


def test_more_budget_than_cuts():
    table = error_table(*worked_example(), k_adjust=5, k_exchange=4, n_prune=4, min_samples_leaf=0)
    assert table.shape == (6, 5, 5, 1)
    assert (table[5, 4, :, 0] == table[3, 3, :, 0]).all()
    assert np.isinf(table[:, :, 4]).all()
    assert table.tree((5, 4, 1, 0)).n_errors == 0
    with pytest.raises(ValueError, match=r"table\[0, 0, 4, 0\] is inf"):
        table.tree((0, 0, 4, 0))
    with pytest.raises(IndexError, match=r"index: expected an entry of a table of shape \(6, 5, 5, 1\), got"):
        table.tree((0, 0, 9, 0))
    for index in ((0, 0), (0.5, 0, 0, 0), None, "0000"):
        with pytest.raises(IndexError, match="index: expected four whole numbers, k_adjust"):
            table.tree(index)


def test_pareto():
    pytest.importorskip("pandas")
    frame = error_table(*worked_example(), k_adjust=2, n_prune=3, min_samples_leaf=0).pareto()
    rows = frame[["k_adjust", "removed", "errors"]].to_numpy().tolist()
    assert rows == [[0, 3, 2], [1, 1, 1], [1, 3, 2], [2, 1, 0], [2, 3, 2]]
    assert (frame["n_prune"] + frame["n_raise"] == frame["removed"]).all()


def test_a_scikit_learn_tree_comes_back():
    X, y = load_iris(return_X_y=True)
    fitted = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    table = error_table(fitted, X, y, k_adjust=1, k_exchange=1, n_prune=3, n_raise=2)
    for index in ((1, 1, 3, 0), (1, 0, 1, 2), (0, 1, 0, 2)):
        found = table.tree(index)
        assert isinstance(found.tree, DecisionTreeClassifier)
        assert (found.tree.predict(X) != y).sum() == found.n_errors == table[index]
        assert found.tree.get_n_leaves() == fitted.get_n_leaves() - index[2] - index[3]
        assert found.tree.tree_.n_node_samples[0] == 150
        assert export_text(found.tree)


@pytest.mark.parametrize("n_prune", [1, 40])
def test_a_chain_of_500_cuts(n_prune):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, size=(60, 2)).astype(float), rng.integers(2, size=60)
    tree = chain(500, rng.integers(2, size=500), 3 * rng.random(500), n_features=2)
    table = error_table(tree, X, y, n_prune=n_prune, min_samples_leaf=0)
    assert table.tree((1, 0, n_prune, 0)).tree.n_cuts == 500 - n_prune


def test_time_limit():
    rng = np.random.default_rng(1)
    X, y = rng.random((300, 5)), rng.integers(3, size=300)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=5, random_state=0).fit(X, y))
    table = error_table(tree, X, y, 1, 1, 5, 5, time_limit=1e-9)
    exact = error_table(tree, X, y, 0, 0, 5, 5)
    assert table.status == "time limit"
    assert (table[0, 0] <= exact[0, 0]).all()
    with pytest.raises(ValueError, match="time_limit: the time ran out"):
        table.tree((0, 0, 0, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k_adjust": -1}, "k_adjust: expected .*got -1"),
        ({"n_prune": 1.5}, "n_prune: expected .*got 1.5"),
        ({"n_raise": True}, "n_raise: expected .*got True"),
        ({"features": [0]}, "k_exchange=0"),
        ({"k_adjust": 10**9}, "expected a table of at most 10,000,000 entries, got 1,000,000,001"),
        ({"n_prune": 10**9}, "n_prune, n_raise: expected a table of at most"),
    ],
)
def test_bad_budgets(settings, message):
    with pytest.raises(ValueError, match=message):
        error_table(*worked_example(), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"time_limit": 0}, "time_limit: .*got 0"), ({"memory_limit_mb": "a"}, "memory_limit_mb: .*got 'a'")],
)
def test_limits_that_no_search_could_keep_to_are_refused(settings, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        error_table(DecisionTreeClassifier(max_depth=2).fit(X, y), X, y, **settings)
