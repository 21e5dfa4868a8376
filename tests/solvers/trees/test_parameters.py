"""The parameters of an instance, and the bounds on what a search visits."""

import json
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.instance import diversity as diversity_module
from thrifty.solvers.trees.instance.diversity import delta_max
from thrifty.solvers.trees.instance.effort import all_boxes, max_boxes, max_sweeps, paper_bound
from thrifty.solvers.trees.instance.parameters import instance_parameters
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.instance.ranks import rank_table
from thrifty.solvers.trees.model.weka import tree_from_weka

CHAIN = "x <= 3\n|   x <= 1: r (1.0)\n|   x > 1: r (2.0)\nx > 3\n|   x <= 5: b (2.0)\n|   x > 5: r (1.0)"
X = np.arange(1.0, 7)[:, None]
Y = np.array(list("rrbbrr"))


def table_of(X, y):
    return rank_table(X, y.astype(np.int32), np.ones(len(y)), 3, np.arange(X.shape[1], dtype=np.int32))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 40), d=st.integers(1, 6), levels=st.integers(1, 5))
def test_delta_max_against_all_pairs(seed, n, d, levels):
    rng = np.random.default_rng(seed)
    X = rng.integers(levels, size=(n, d)).astype(float)
    X[rng.random((n, d)) < 0.1] = np.nan
    y = rng.integers(3, size=n)
    codes = np.nan_to_num(X, nan=-1)
    pairs = [(codes[a] != codes[b]).sum() for a, b in combinations(range(n), 2) if y[a] != y[b]]
    assert delta_max(table_of(X, y)) == max(pairs, default=0)


def test_delta_max_does_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.integers(2, size=(700, 30)).astype(float), rng.integers(2, size=700)
    whole = delta_max(table_of(X, y))
    monkeypatch.setattr(diversity_module, "_STEPS_A_CALL", 1)
    assert delta_max(table_of(X, y)) == whole


def test_the_worked_example():
    tree = tree_from_weka(CHAIN)
    found = instance_parameters(tree, X, Y, operation="adjust", k=2, delta_max=True)
    assert (found.n_rows, found.n_features, found.domain_size, found.n_cuts, found.depth) == (6, 1, 6, 3, 2)
    assert (found.n_unchanged, found.n_errors, found.n_errors_given, found.unavoidable_errors) == (1, 2, 2, 0)
    assert (found.n_thresholds, found.delta_max, found.is_reasonable) == (3, 1, True)
    assert found.solver == "bnb"
    assert found.paper_bound == pytest.approx(2 * np.log10(7))
    text = found.describe()
    assert "6 rows" not in text
    assert "rows (n)" in text
    assert "a promise that holds" in text
    assert json.loads(json.dumps(found.to_dict()))["domain_sizes"] == [6]


def test_unreasonable_trees_and_hopeless_bounds_say_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 40)), rng.integers(2, size=60)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=6, random_state=0).fit(X, y))
    left = X[:, tree.feature[0]] <= tree.threshold[0]  # the leaves on the right stay empty
    found = instance_parameters(tree, X[left], rng.permutation(y[left]), k=2)
    assert not found.is_reasonable
    assert found.solver == "bnb"
    assert "no: a leaf is empty" in found.describe()
    assert "no promise at all" in found.why


def test_a_single_leaf_and_one_change():
    tree = tree_from_weka(": a (2.0)", classes=["a", "b"], feature_names=["x", "z"])
    found = instance_parameters(tree, [[1, 1], [2, 1]], ["a", "b"], k=0)
    assert (found.n_cuts, found.domain_sizes, found.n_thresholds, found.solver) == (0, (2, 1), 0, "sweep")
    iris, y = load_iris(return_X_y=True)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=2, random_state=0).fit(iris, y))
    assert instance_parameters(tree, iris, y, k=1).max_sweeps == 2 * 4
    assert instance_parameters(tree, iris, y, k=1, operation="adjust").max_sweeps == 2


def test_a_tree_without_avoidable_errors_needs_no_search():
    tree = tree_from_weka("x <= 1: a (2.0)\nx > 1: b (2.0)")
    found = instance_parameters(tree, [[1], [1], [2], [2]], ["a", "b", "b", "b"])
    assert (found.n_errors, found.unavoidable_errors) == (1, 1)
    assert found.describe().endswith("those that every tree makes.")


def test_counts_past_all_floats_are_null():
    depth = 120
    lines = []
    for d in range(depth):
        last = d == depth - 1
        lines += [f"{'|   ' * d}x <= {d}: a (1.0)", f"{'|   ' * d}x > {d}{': b (1.0)' if last else ''}"]
    tree = tree_from_weka("\n".join(lines), feature_names=["x", "y", "z"])
    X, y = np.random.default_rng(0).normal(size=(400, 3)), ["a", "b"] * 200
    found = instance_parameters(tree, X, y, k=depth)
    assert np.isinf(found.max_sweeps)
    assert found.to_dict()["max_sweeps"] is None
    json.dumps(found.to_dict(), allow_nan=False)
    assert instance_parameters(tree, X, y, k=depth // 2 - 1).solver == "bnb"


def boxes_by_force(problem, k):
    """Distinct (node, box) pairs that at most k changed cuts give, by trying all trees."""
    topology, table = problem.topology, problem.table
    tests = {
        int(v): [(j, r) for j in np.flatnonzero(problem.allowed[v]) for r in range(-1, len(table.values[j]))]
        for v in topology.cuts
    }
    found = set()
    for size in range(k + 1):
        for chosen in combinations(tests, size):
            for new in product(*(tests[v] for v in chosen)):
                test = {int(v): (int(problem.cuts.feature[v]), int(problem.cuts.rank[v])) for v in topology.cuts}
                test |= dict(zip(chosen, new, strict=True))
                pending = [(0, tuple((-1, len(values) - 1) for values in table.values))]
                while pending:
                    v, box = pending.pop()
                    if any(low >= high for low, high in box):
                        found.add((v, None))
                        box = None
                    else:
                        found.add((v, box))
                    if topology.left[v] < 0 or box is None:
                        continue
                    j, r = test[v]
                    low, high = box[j]
                    pending.append((int(topology.left[v]), (*box[:j], (low, min(high, r)), *box[j + 1 :])))
                    pending.append((int(topology.right[v]), (*box[:j], (max(low, r), high), *box[j + 1 :])))
    return len(found)


@pytest.mark.parametrize("operation", ["adjust", "exchange"])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_no_more_boxes_than_the_bound(operation, k):
    rng = np.random.default_rng(3)
    X, y = rng.integers(3, size=(25, 2)).astype(float), rng.integers(2, size=25)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y))
    problem = build_problem(tree, X, y, operation=operation, min_samples_leaf=0)
    found, bound = boxes_by_force(problem, k), max_boxes(problem, k)
    assert found <= bound <= problem.topology.n_nodes * all_boxes(problem)
    assert all_boxes(problem) <= 10 ** paper_bound(problem)
    if k == 0:
        assert bound == problem.topology.n_nodes


def test_sweeps_of_two_changes_are_those_below_every_position():
    problem = build_problem(tree_from_weka(CHAIN), X, Y, operation="adjust")
    assert max_sweeps(problem, 1) == 3
    assert max_sweeps(problem, 2) == 3 + 7 * 2, "each cut once, and both children at each of 7 positions of the root"


def test_bad_budgets_are_refused():
    tree = tree_from_weka(CHAIN)
    with pytest.raises(ValueError, match="k: expected .*got -1"):
        instance_parameters(tree, X, Y, k=-1)
    with pytest.raises(ValueError, match="operation: expected .*got 'swap'"):
        instance_parameters(tree, X, Y, operation="swap")


def test_a_tree_of_scikit_learn_is_measured_as_it_is():
    table, classes = load_iris(return_X_y=True)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(table, classes)
    assert instance_parameters(tree, table, classes) == instance_parameters(Tree.from_sklearn(tree), table, classes)
    with pytest.raises(TypeError, match="tree: expected .*got a str"):
        instance_parameters("tree", table, classes)
