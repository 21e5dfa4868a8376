"""Monotone changes against a plain search over grids of rows that knows nothing of leaves and regions."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.tree import DecisionTreeClassifier
from tree_instances import complete_depth_2, hand_made, random_tree

from thrifty.solvers.trees import Tree
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.monotone import (
    check_monotonic_cst,
    climb_monotone,
    is_monotone,
    solve_monotone,
    solve_monotone_brute,
)
from thrifty.solvers.trees.small import brute
from thrifty.solvers.trees.sweeps.hillclimb import hill_climb, solve_single


def constrained_problem(seed, max_cuts=5):
    """Classes that rise and fall with most features as the constraints, which come too, say they should."""
    rng = np.random.default_rng(seed)
    n, d, domain, n_classes = rng.integers(12, 41), rng.integers(1, 4), rng.choice([2, 4, 15]), rng.integers(2, 4)
    cst = rng.choice([-1, 0, 1], p=[0.4, 0.1, 0.5], size=d)
    X = rng.integers(domain, size=(n, d)).astype(float)
    truth = np.where(rng.random(d) < 0.7, cst, rng.choice([-1, 1], size=d))
    score = (X - (domain - 1) / 2) @ truth / domain + rng.normal(scale=rng.choice([0.2, 1.0]), size=n)
    missing = rng.random() < 0.4
    if missing:
        X[(rng.random((n, d)) < 0.15) & (rng.random(d) < 0.7)] = np.nan
    tree = random_tree(rng, rng.integers(1, max_cuts + 1), d, n_classes, domain, missing=missing)
    settings = {
        "sample_weight": (None, rng.integers(1, 4, size=n), rng.random(n) + 0.01)[rng.integers(3)],
        "min_samples_leaf": int(rng.integers(0, 4)),
        "operation": str(rng.choice(["adjust", "exchange"])),
    }
    if rng.random() < 0.2:
        settings["frozen"] = (int(rng.choice(tree.topology.cuts)),)
    y = np.clip(np.floor(score + n_classes / 2), 0, n_classes - 1).astype(int)
    return build_problem(tree, X, y, **settings), X, cst


def never_falls(tree, X, cst):
    """Compare the predictions of all rows that the tree could tell apart, and NaN where ``X`` has any."""
    cuts = tree.topology.cuts
    axes = []
    for j in range(tree.n_features):
        at = np.unique(tree.threshold[cuts[tree.feature[cuts] == j]])
        axis = [at[0] - 1, *(at[:-1] + at[1:]) / 2, at[-1] + 1] if len(at) else [0.0]
        axes.append([*axis, np.nan] if np.isnan(X[:, j]).any() else axis)
    grid = np.array(list(product(*axes)))
    code = tree.labels[tree.apply(grid)]
    reached = np.ones((len(grid), len(grid)), dtype=bool)
    for x, sign in zip(grid.T, cst, strict=True):
        a, b = x[:, None], x[None]
        beyond = a == b if sign == 0 else a <= b if sign == 1 else a >= b
        reached &= beyond | (np.isnan(a) & np.isnan(b))
    return not (reached & (code[:, None] > code)).any()


def fewest_errors(problem, X, cst):
    """Of monotone trees within one change, by `never_falls`; infinite if there are none."""
    trees = [problem.cuts]
    for v in problem.topology.cuts:
        trees += [problem.cuts.with_cut(int(v), *test) for test in brute.tests_at(problem, int(v))]
    fewest = np.inf
    for cuts in trees:
        errors = problem.n_errors(cuts)
        if errors < fewest and problem.keeps_floors(cuts) and never_falls(problem.to_tree(cuts), X, cst):
            fewest = errors
    return fewest


@pytest.mark.parametrize("seed", range(150))
def test_monotone_means_what_predictions_on_a_grid_say(seed):
    problem, X, cst = constrained_problem(seed, max_cuts=6)
    rng = np.random.default_rng(seed)
    cuts = problem.cuts
    for _ in range(4):
        assert is_monotone(problem, cuts, cst) == never_falls(problem.to_tree(cuts), X, cst)
        changeable = [int(v) for v in problem.topology.cuts if problem.allowed[v].any()]
        if not changeable:
            break
        v = rng.choice(changeable)
        tests = brute.tests_at(problem, v)
        cuts = cuts.with_cut(v, *tests[rng.integers(len(tests))])


@pytest.mark.parametrize("seed", range(120))
def test_the_best_monotone_change_is_that_of_an_exhaustive_search(seed):
    problem, X, cst = constrained_problem(seed + 1000)
    fewest = fewest_errors(problem, X, cst)
    if fewest == np.inf:
        with pytest.raises(ValueError, match="no tree within k=1 changes"):
            solve_monotone(problem, 1, cst)
        with pytest.raises(ValueError, match="no tree within k=1 changes"):
            climb_monotone(problem, cst)
        return
    found = solve_monotone(problem, 1, cst)
    assert found.errors_by_budget[1] == found.lower_bound == pytest.approx(fewest, abs=1e-9)
    assert problem.n_errors(found.cuts) == found.errors_by_budget[1]
    assert found.status == "optimal"
    check_result(problem, X, cst, found)
    given_is_monotone = never_falls(problem.to_tree(problem.cuts), X, cst)
    assert found.errors_by_budget[0] == (problem.n_errors(problem.cuts) if given_is_monotone else np.inf)
    assert len(problem.changed(found.cuts)) <= 1

    climbed = climb_monotone(problem, cst)
    check_result(problem, X, cst, climbed)
    assert climbed.errors_by_budget == found.errors_by_budget
    assert problem.n_errors(climbed.cuts) <= found.errors_by_budget[1] + 1e-9
    assert climbed.status == "local optimum"
    assert climbed.lower_bound <= problem.n_errors(climbed.cuts) + 1e-9


def check_result(problem, X, cst, solution):
    assert problem.keeps_floors(solution.cuts)
    assert never_falls(problem.to_tree(solution.cuts), X, cst)
    assert all(problem.allowed[v].any() for v in problem.changed(solution.cuts))


def test_the_instances_are_of_every_kind():
    kinds = {"impossible": 0, "repaired": 0, "kept": 0, "refused": 0}
    for seed in range(1000, 1120):
        problem, _, cst = constrained_problem(seed)
        try:
            found = solve_monotone(problem, 1, cst)
        except ValueError:
            kinds["impossible"] += 1
            continue
        kinds["kept" if np.isfinite(found.errors_by_budget[0]) else "repaired"] += 1
        kinds["refused"] += found.errors_by_budget[1] > solve_single(problem, 1).errors_by_budget[1]
    assert min(kinds.values()) >= 4, kinds


@pytest.mark.parametrize("seed", range(40))
def test_brute_force_agrees_and_more_changes_are_no_worse(seed):
    problem, X, cst = constrained_problem(seed + 2000, max_cuts=2)
    try:
        tried = solve_monotone_brute(problem, 2, cst)
    except ValueError:
        with pytest.raises(ValueError, match="no tree within k=1"):
            solve_monotone(problem, 1, cst)
        return
    check_result(problem, X, cst, tried)
    assert tried.errors_by_budget[2] == problem.n_errors(tried.cuts)
    assert tried.errors_by_budget[1] == pytest.approx(fewest_errors(problem, X, cst), abs=1e-9)
    assert list(tried.errors_by_budget) == sorted(tried.errors_by_budget, reverse=True)
    if np.isfinite(tried.errors_by_budget[0]):
        assert solve_monotone(problem, 0, cst).errors_by_budget == tried.errors_by_budget[:1]
    else:
        with pytest.raises(ValueError, match="no tree within k=0"):
            solve_monotone(problem, 0, cst)


@pytest.mark.parametrize("secondary", ["gini", "margin"])
@pytest.mark.parametrize("seed", [*range(640, 670), *range(1050, 1080)])  # among them every kind of tie
def test_without_constraints_it_is_the_search_for_single_changes(seed, secondary):
    """Errors, ties and all."""
    problem, X, _ = constrained_problem(seed)
    free = np.zeros(X.shape[1])
    for ours, theirs in (
        (solve_monotone(problem, 1, free, secondary=secondary), solve_single(problem, 1, secondary=secondary)),
        (climb_monotone(problem, free, secondary=secondary), hill_climb(problem, secondary=secondary)),
    ):
        assert ours.errors_by_budget == pytest.approx(theirs.errors_by_budget, abs=1e-9)
        assert problem.to_tree(ours.cuts).to_dict() == problem.to_tree(theirs.cuts).to_dict()


@pytest.mark.parametrize("seed", range(3))
def test_a_monotone_tree_of_scikit_learn_stays_so(seed):
    X, y = cancer(np.random.default_rng(seed).permutation(30)[:4])
    cst = [1, 1, -1, 0]
    fitted = DecisionTreeClassifier(max_depth=3, monotonic_cst=cst, random_state=seed).fit(X, y)
    problem = build_problem(Tree.from_sklearn(fitted), X, y)
    assert is_monotone(problem, problem.cuts, cst)
    better = problem.to_tree(climb_monotone(problem, cst).cuts)
    assert never_falls(better, X, cst)
    predict = better.to_sklearn(like=fitted).predict
    rng = np.random.default_rng(seed)
    rows = rng.uniform(X.min(axis=0), X.max(axis=0), size=(300, 4))
    for j in np.flatnonzero(cst):
        raised = rows.copy()
        raised[:, j] += rng.exponential(np.ptp(X[:, j]), size=len(rows))
        assert ((predict(raised) - predict(rows)) * cst[j] >= 0).all()


def test_a_tree_of_scikit_learn_that_is_monotone_by_clipping_alone_is_repaired():
    """Two leaves keep the constraint by shares that are not those of their rows; majority classes break it."""
    X, y = cancer(range(30))
    cst = [1] * 10 + [0] * 20
    fitted = DecisionTreeClassifier(max_depth=3, monotonic_cst=cst, random_state=0).fit(X, y)
    tree = Tree.from_sklearn(fitted)
    problem = build_problem(tree, X, y)
    relabelled = problem.to_tree(problem.cuts)
    assert never_falls(tree, X, cst)
    assert not never_falls(relabelled, X, cst)
    with pytest.raises(ValueError, match="no tree within k=0"):
        solve_monotone(problem, 0, cst)
    repaired = solve_monotone(problem, 1, cst)
    assert repaired.errors_by_budget[0] == np.inf
    assert never_falls(problem.to_tree(repaired.cuts), X, cst)


def cancer(columns):
    """Class 1: malignant, which larger cells speak for."""
    X, y = load_breast_cancer(return_X_y=True)
    return X[:, list(columns)], 1 - y


def test_the_best_change_is_refused_for_one_that_is_monotone():
    X = np.arange(13.0)[:, None]
    y = np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1])
    problem = build_problem(complete_depth_2([0, 0, 0], [4.5, 1.5, 11.5], 1, 2), X, y)
    free, kept = solve_single(problem, 1), solve_monotone(problem, 1, [1])
    assert free.errors_by_budget == (4, 2)
    assert problem.to_tree(free.cuts).predict(X).tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]
    assert kept.errors_by_budget == (4, 3)
    assert (np.diff(problem.to_tree(kept.cuts).predict(X)) >= 0).all()


def test_regions_are_those_of_all_numbers():
    """Cuts at 4.2 and 4.8 part no rows, but a row of 4.5 would fall from class 1 to class 0."""
    X = np.array([[0, 1], [0, 9], [1, 1], [1, 9]])
    y = [0, 1, 0, 1]
    assert is_monotone(*of_tree(complete_depth_2([0, 1, 1], [0.5, 4.8, 4.2], 2, 2), X, y), [1, 0])
    assert not is_monotone(*of_tree(complete_depth_2([0, 1, 1], [0.5, 4.2, 4.8], 2, 2), X, y), [1, 0])
    assert is_monotone(*of_tree(complete_depth_2([0, 1, 1], [0.5, 4.2, 4.8], 2, 2), X, y), [0, 1])


def test_a_changed_cut_stands_midway_between_the_values_that_reach_it():
    """Only values 0 and 10 reach the left cut: any rank between them means 5, which is above 3.5."""
    X = np.array([[0, 0], [0, 10], *([1, value] for value in range(11))])
    y = [0, 1, *(value > 3 for value in range(11))]
    problem, cuts = of_tree(complete_depth_2([0, 1, 1], [0.5, 0.5, 3.5], 2, 2), X, y)
    assert not is_monotone(problem, cuts, [1, 0])
    for rank in range(1, 10):
        assert is_monotone(problem, cuts.with_cut(1, 1, rank, False), [1, 0])
    assert solve_monotone(problem, 1, [1, 0]).errors_by_budget == (np.inf, 0)


@pytest.mark.parametrize(("lacking", "expected"), [(None, True), (0, True), (1, False)])
def test_rows_that_lack_the_same_feature_are_compared(lacking, expected):
    """Without column 1, raising column 0 leads from a leaf of class 1 to one of class 0."""
    X = np.array([[0, 2], [0, 9], [1, 2], [1, 9]] * 3, dtype=float)
    y = [1, 0, 1, 0] * 3
    if lacking is not None:
        X[0, lacking] = np.nan
    tree = complete_depth_2([0, 1, 1], [0.5, 3, 5], 2, 2)
    tree = replace(tree, missing_left=[True, True, False, False, False, False, False])
    problem, cuts = of_tree(tree, X, y)
    assert is_monotone(problem, cuts, [1, 0]) == never_falls(problem.to_tree(cuts), X, [1, 0]) == expected


def test_a_side_may_be_left_empty_for_its_region():
    """All rows at cut 2 go right without an error, but only beyond 2.5 may the class there be 0."""
    tree = hand_made(
        left=[1, 3, 5, -1, -1, -1, 7, -1, -1],
        right=[2, 4, 6, -1, -1, -1, 8, -1, -1],
        feature=[0, 1, 1, -1, -1, -1, 0, -1, -1],
        threshold=[0.5, 2.5, 7, 0, 0, 0, 1.5, 0, 0],
    )
    X = [[0, 1], [0, 2], [0, 3], [0, 4], *([f, value] for value in (5, 6, 8, 9) for f in (1, 2, 2.5))]
    y = [1, 1, 0, 0, *[0, 1, 1] * 4]
    problem = build_problem(tree, X, y, frozen=[0, 1, 6], min_samples_leaf=0)
    found = solve_monotone(problem, 1, [1, 0])
    assert found.errors_by_budget == solve_monotone_brute(problem, 1, [1, 0]).errors_by_budget == (2, 0)
    assert 2.5 <= problem.to_tree(found.cuts).threshold[2] < 5


def of_tree(tree, X, y):
    problem = build_problem(tree, X, y)
    return problem, problem.cuts


def test_nothing_to_be_done():
    X, y = np.array([[0.0], [1.0]]), [1, 0]
    problem = build_problem(complete_depth_2([0, 0, 0], [0.5, -1, 2], 1, 2), X, y, frozen=[0, 1, 2])
    for solve in (
        lambda: solve_monotone(problem, 1, [1]),
        lambda: climb_monotone(problem, [1]),
        lambda: solve_monotone_brute(problem, 1, [1]),
    ):
        with pytest.raises(ValueError, match=r"monotonic_cst: no tree within k=1 changes of the one given keeps \[1\]"):
            solve()
    with pytest.raises(ValueError, match="no tree within k=0 changes"):
        solve_monotone(problem, 0, [1])
    assert solve_monotone(problem, 1, [-1]).errors_by_budget == (0, 0)
    with pytest.raises(ValueError, match=r"mode='hillclimb'"):
        solve_monotone(problem, 2, [-1])


def test_constraints_are_checked():
    tree = complete_depth_2([0, 0, 0], [0.5, -1, 2], 2, 2)
    assert check_monotonic_cst(tree, [1, -1.0]).tolist() == [1, -1]
    with pytest.raises(ValueError, match=r"each of 2 features, got shape \(1,\)"):
        check_monotonic_cst(tree, [1])
    with pytest.raises(ValueError, match=r"got \[0, 2\]"):
        check_monotonic_cst(tree, [0, 2])


def test_too_many_trees_are_refused():
    X = np.random.default_rng(0).random((100, 2))
    problem = build_problem(complete_depth_2([0, 1, 1], [0.5, 0.5, 0.5], 2, 2), X, (X[:, 0] > 0.5).astype(int))
    with pytest.raises(ValueError, match="solver: 'brute' tries at most"):
        solve_monotone_brute(problem, 3, [1, 0])
