"""The solvers against answers found another way."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from tree_instances import chain, complete_depth_2, hand_made, random_problem

from thrifty.solvers.trees import improve_tree
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.small.brute import solve_brute
from thrifty.solvers.trees.sweeps.hillclimb import hill_climb, solve_single

TABLES = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer}


def errors_by_hand(tree, X, y, weight):
    """Majority errors of a tree, one row at a time, straight from the definitions."""
    held = {}
    for x, label, w in zip(X, y, np.ones(len(y)) if weight is None else weight, strict=True):
        v = 0
        while tree.left[v] != -1:
            value = x[tree.feature[v]]
            goes_left = tree.missing_left[v] if np.isnan(value) else value <= tree.threshold[v]
            v = tree.left[v] if goes_left else tree.right[v]
        leaf = held.setdefault(int(v), {})
        leaf[label] = leaf.get(label, 0) + w
    return sum(sum(leaf.values()) - max(leaf.values()) for leaf in held.values())


@pytest.mark.parametrize("seed", range(150))
def test_sweep_equals_brute_force(seed):
    tree, X, y, settings = random_problem(seed)
    problem = build_problem(tree, X, y, **settings)
    swept, tried = solve_single(problem, 1), solve_brute(problem, 1)
    assert swept.errors_by_budget == pytest.approx(tried.errors_by_budget, abs=1e-9)
    assert problem.n_errors(swept.cuts) == pytest.approx(swept.errors_by_budget[-1], abs=1e-9)
    assert problem.keeps_floors(swept.cuts)
    better = problem.to_tree(swept.cuts)
    assert errors_by_hand(better, X, y, settings["sample_weight"]) == pytest.approx(swept.lower_bound, abs=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_brute_force_equals_definitions(seed):
    """The oracle itself, against rows, thresholds and leaves that never were ranks."""
    tree, X, y, settings = random_problem(seed, max_cuts=3, missing=False)
    weight = settings["sample_weight"]
    problem = build_problem(tree, X, y, operation="exchange", sample_weight=weight, min_samples_leaf=0)
    k = min(2, tree.n_cuts)
    cuts = tree.topology.cuts.tolist()
    best = errors_by_hand(tree, X, y, weight)
    thresholds = {j: [-9.0, *np.unique(X[:, j])] for j in range(tree.n_features)}
    tests = [(j, t) for j in thresholds for t in thresholds[j]]
    if k == 2 and len(tests) > 9:
        tests = tests[:9]  # a subset bounds from above
    for pair in product(cuts, repeat=k):
        for chosen in product(tests, repeat=k):
            changed = {"feature": tree.feature.copy(), "threshold": tree.threshold.copy()}
            for v, (j, t) in zip(pair, chosen, strict=True):
                changed["feature"][v], changed["threshold"][v] = j, t
            other = hand_made(
                tree.left, tree.right, changed["feature"], changed["threshold"], 3, n_features=tree.n_features
            )
            best = min(best, errors_by_hand(other, X, y, weight))
    found = solve_brute(problem, k).errors_by_budget[-1]
    if k < 2 or len(tests) == sum(map(len, thresholds.values())):
        assert found == pytest.approx(best, abs=1e-9)
    assert found <= best + 1e-9


@pytest.mark.parametrize("seed", range(60))
def test_hill_climbing_ends_where_no_change_helps(seed):
    tree, X, y, settings = random_problem(seed + 1000)
    problem = build_problem(tree, X, y, **settings)
    climbed = hill_climb(problem)
    errors = problem.n_errors(climbed.cuts)
    single = solve_single(problem, 1)
    assert climbed.lower_bound - 1e-9 <= errors <= single.lower_bound + 1e-9
    assert climbed.errors_by_budget == pytest.approx((*single.errors_by_budget,), abs=1e-9)
    again = build_problem(problem.to_tree(climbed.cuts), X, y, **settings)
    assert again.n_errors(again.cuts) == pytest.approx(errors, abs=1e-9)
    assert (again.floors.n_rows >= problem.floors.n_rows).all()
    assert solve_brute(again, 1).lower_bound == pytest.approx(errors, abs=1e-9)


@pytest.mark.parametrize(("table", "errors"), [("iris", (100, 50)), ("wine", (107, 54))])
def test_dummy_cuts_exchanged(table, errors):
    """Oracle 2: with k = s that would be the optimal tree of depth 2."""
    X, y = TABLES[table](return_X_y=True)
    below = X[:, 0].min() - 1
    tree = complete_depth_2((0, 0, 0), (below, below, below), X.shape[1], 3)
    _, report = improve_tree(tree, X, y, k=1, min_samples_leaf=0)
    assert report.errors_by_budget == errors


@pytest.mark.parametrize(
    ("table", "features", "thresholds", "adjust", "exchange"),
    [
        ("iris", (3, 2, 2), None, (100, 50), None),
        ("iris", (0, 1, 1), None, (100, 54), None),
        ("wine", (12, 9, 6), None, (107, 54), None),
        ("breast_cancer", (27, 23, 21), None, (212, 46), (212, 44)),
        ("breast_cancer", (0, 1, 4), (15, 20, 0.1), (63, 62), (63, 34)),
    ],
)
def test_fixed_features_adjusted(table, features, thresholds, adjust, exchange):
    """Oracle 3."""
    X, y = TABLES[table](return_X_y=True)
    thresholds = [X[:, j].min() - 1 for j in features] if thresholds is None else thresholds
    tree = complete_depth_2(features, thresholds, X.shape[1], len(np.unique(y)))
    assert improve_tree(tree, X, y, operation="adjust", min_samples_leaf=0)[1].errors_by_budget == adjust
    if exchange is not None:
        assert improve_tree(tree, X, y, min_samples_leaf=0)[1].errors_by_budget == exchange


def test_worked_example():
    """The worked example: R R B B R R."""
    X, y = np.arange(1.0, 7.0)[:, None], np.array(["R", "R", "B", "B", "R", "R"])
    tree = complete_depth_2((0, 0, 0), (3, 1, 5), 1, 2)
    tree = hand_made(tree.left, tree.right, tree.feature, tree.threshold, n_features=1, classes=np.array(["B", "R"]))
    _, report = improve_tree(tree, X, y, operation="adjust", k=3, solver="brute")
    assert report.errors_by_budget == (2, 1, 0, 0)
    assert improve_tree(tree, X, y, operation="adjust", k=1)[1].errors_by_budget == (2, 1)
    assert improve_tree(tree, X, y, operation="adjust", k=0)[1].errors_by_budget == (2,)
    better, report = improve_tree(tree, X, y, operation="adjust", k=2)
    assert report.n_errors == 0 == (better.predict(X) != y).sum()
    assert len(report.operations) == 2
    assert all(saved > 0 for saved in report.difference.errors_saved)


def test_hitting_set():
    """Oracle 4 (Theorem 5.3): the smallest budget without errors is the size of a minimum hitting set."""
    universe, sets = 5, [{0, 1}, {1, 2}, {3, 4}, {2, 3}]
    smallest = min(sum(bits) for bits in product((0, 1), repeat=universe) if all(any(bits[u] for u in s) for s in sets))
    red = np.array([[0.0 if u in s else 1.0 for u in range(universe)] for s in sets])
    X = np.vstack([red, np.ones((len(sets) + 1, universe))])
    y = np.repeat([1, 0], [len(sets), len(sets) + 1])
    tree = chain(universe, np.arange(universe), -1.0, n_features=universe)
    _, report = improve_tree(tree, X, y, operation="adjust", k=3, solver="brute")
    assert [errors == 0 for errors in report.errors_by_budget].index(True) == smallest == 2


@pytest.mark.parametrize("seed", range(30))
def test_identities(seed):
    """Oracle 5: more room is never worse; exchange includes adjustment; k = s is all there is."""
    tree, X, y, _ = random_problem(seed + 2000, max_cuts=3, missing=False)
    found = {}
    for operation in ("adjust", "exchange", "both"):
        problem = build_problem(tree, X, y, operation=operation, min_samples_leaf=0)
        found[operation] = solve_brute(problem, min(2, tree.n_cuts)).errors_by_budget
        assert list(found[operation]) == sorted(found[operation], reverse=True)
        assert problem.table.unavoidable_errors <= found[operation][-1]
    assert found["both"] == found["exchange"]
    assert all(e <= a for e, a in zip(found["exchange"], found["adjust"], strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_one_example_less_saves_at_most_one_error(seed):
    """Oracle 6."""
    tree, X, y, _ = random_problem(seed + 3000)
    if len(y) < 2:
        return
    whole = solve_single(build_problem(tree, X, y, min_samples_leaf=0), 1).lower_bound
    less = solve_single(build_problem(tree, X[1:], y[1:], min_samples_leaf=0), 1).lower_bound
    assert whole - 1 <= less <= whole


@pytest.mark.parametrize("seed", range(30))
def test_weights_are_duplicates_and_order_does_not_matter(seed):
    """Oracle 7."""
    tree, X, y, _ = random_problem(seed + 4000)
    rng = np.random.default_rng(seed)
    times = rng.integers(0, 4, size=len(y))
    times[0] = 1
    shuffled = rng.permutation(times.sum())
    by_weight, _ = improve_tree(tree, X, y, sample_weight=times, mode="hillclimb")
    by_rows, report = improve_tree(
        tree, np.repeat(X, times, axis=0)[shuffled], np.repeat(y, times)[shuffled], mode="hillclimb"
    )
    assert (by_weight.feature == by_rows.feature).all()
    assert (by_weight.threshold == by_rows.threshold).all()
    assert (by_weight.value == by_rows.value).all()
    assert report.n_errors == (times * (by_weight.predict(X) != y)).sum()


@pytest.mark.parametrize("seed", range(20))
def test_names_of_classes_and_features_do_not_matter(seed):
    tree, X, y, _ = random_problem(seed + 5000)
    d, n_classes = tree.n_features, len(tree.classes)
    columns = np.random.default_rng(seed).permutation(d)
    place = np.argsort(columns)
    renamed = hand_made(
        tree.left,
        tree.right,
        np.where(tree.feature < 0, -1, place[tree.feature]),
        tree.threshold,
        n_classes,
        n_features=d,
        missing_left=tree.missing_left,
    )
    reverse = n_classes - 1 - y
    plain, other = improve_tree(tree, X, y)[1], improve_tree(renamed, X[:, columns], reverse)[1]
    assert plain.errors_by_budget == other.errors_by_budget
