"""The branch and bound against answers found another way."""

from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from tree_instances import chain, complete_depth_2, hand_made, random_problem, random_tree

from thrifty.solvers.trees.bnb.branch_and_bound import solve_branch_and_bound
from thrifty.solvers.trees.bnb.few_changes import fewest_errors
from thrifty.solvers.trees.bnb.memo import Memo
from thrifty.solvers.trees.bnb.nested import Search
from thrifty.solvers.trees.bnb.one_change import best_test
from thrifty.solvers.trees.bnb.scene import build_scene, new_work
from thrifty.solvers.trees.instance.gadgets import hitting_set_instance
from thrifty.solvers.trees.instance.problem import build_problem
from thrifty.solvers.trees.instance.ranks import MISSING
from thrifty.solvers.trees.small import brute
from thrifty.solvers.trees.small.brute import n_trees, solve_brute

TABLES = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer}


def near(errors):
    return pytest.approx(errors, abs=1e-8)


def check_solution(problem, solution, errors_by_budget):
    """All that a proved solution promises."""
    k = len(errors_by_budget) - 1
    assert solution.status == "optimal"
    assert solution.errors_by_budget == near(errors_by_budget)
    assert solution.lower_bound == solution.errors_by_budget[-1] == near(problem.n_errors(solution.cuts))
    assert problem.keeps_floors(solution.cuts)
    fewest = next(a for a in range(k + 1) if errors_by_budget[a] <= errors_by_budget[k] + 1e-8)
    assert len(problem.changed(solution.cuts)) == fewest
    for v in problem.changed(solution.cuts):
        test = int(solution.cuts.feature[v]), int(solution.cuts.rank[v]), bool(solution.cuts.missing_left[v])
        # where the table has no missing values the side for them means nothing, and a search may set it
        assert test[:2] in {(j, r) for j, r, _ in brute.tests_at(problem, v)}


def compare_with_brute_force(seed, most_trees):
    tree, X, y, settings = random_problem(seed)
    problem = build_problem(tree, X, y, **settings)
    for k in range(min(4, tree.n_cuts) + 1):
        if n_trees(problem, k) > most_trees:
            break
        check_solution(problem, solve_branch_and_bound(problem, k), solve_brute(problem, k).errors_by_budget)


@pytest.mark.parametrize("seed", range(1000, 1120))
def test_equals_brute_force(seed):
    """Oracle 1."""
    compare_with_brute_force(seed, 1500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2400))
def test_equals_brute_force_on_larger_problems(seed):
    compare_with_brute_force(seed, 30_000)


def by_recursion(problem, with_floors):
    """F(v, S, k) by its recurrence, on sets of points: a function of a node, a set and a budget."""
    topology, table = problem.topology, problem.table
    tests = {int(v): brute.tests_at(problem, int(v)) for v in topology.cuts}

    def halves(v, points, feature, rank, missing_left):
        at = table.ranks[feature, list(points)]
        left = np.where(at == MISSING, missing_left, at <= rank)
        return frozenset(np.array(list(points), dtype=int)[left].tolist()), frozenset(
            np.array(list(points), dtype=int)[~left].tolist()
        )

    @cache
    def fewest(v, points, k):
        if topology.left[v] == -1:
            held = list(points)
            leaf = topology.leaf_start[v]
            weight = table.weight[held]
            if with_floors and (
                table.n_rows[held].sum() < problem.floors.n_rows[leaf] or weight.sum() < problem.floors.weight[leaf]
            ):
                return np.inf
            counts = np.bincount(table.y[held], weights=weight, minlength=table.n_classes)
            return counts.sum() - counts.max()
        own = (int(problem.cuts.feature[v]), int(problem.cuts.rank[v]), bool(problem.cuts.missing_left[v]))
        best = np.inf
        for test, budget in [(own, k), *((test, k - 1) for test in tests[v] if k > 0)]:
            left, right = halves(v, points, *test)
            for a in range(budget + 1):
                rest = fewest(int(topology.left[v]), left, a)
                if rest < best:
                    best = min(best, rest + fewest(int(topology.right[v]), right, budget - a))
        return best

    return fewest


@pytest.mark.parametrize("seed", range(25))
def test_equals_recursion_for_every_budget(seed):
    """Budgets up to the number of cuts, where trees are too many to be tried one by one."""
    rng = np.random.default_rng(seed)
    tree, X, y, settings = random_problem(seed, max_cuts=5)
    few = rng.permutation(len(y))[:10]
    if settings["sample_weight"] is not None:
        settings["sample_weight"] = settings["sample_weight"][few]
    problem = build_problem(tree, X[few], y[few], **settings)
    fewest = by_recursion(problem, with_floors=True)
    everything = frozenset(range(problem.table.n_points))
    errors = [fewest(0, everything, k) for k in range(tree.n_cuts + 1)]
    check_solution(problem, solve_branch_and_bound(problem, tree.n_cuts, n_jobs=2), errors)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_on_any_set_and_for_any_threshold(seed):
    """A question may be asked of any points, and what is not answered exactly is bounded."""
    rng = np.random.default_rng(seed)
    tree, X, y, settings = random_problem(seed, max_cuts=4)
    few = rng.permutation(len(y))[:12]
    if settings["sample_weight"] is not None:
        settings["sample_weight"] = settings["sample_weight"][few]
    problem = build_problem(tree, X[few], y[few], **settings)
    relaxed, allowed = by_recursion(problem, with_floors=False), by_recursion(problem, with_floors=True)
    scene = build_scene(problem)
    search = Search(scene, new_work(scene, problem.table.n_classes), Memo(2**20))
    for v in tree.topology.cuts.tolist():
        # points that agree in every feature go everywhere together
        points = np.flatnonzero((rng.random(problem.table.n_points) < 0.8)[problem.table.group])
        order = np.ascontiguousarray([row[np.isin(row, points)] for row in problem.table.order])
        if len(points) == 0 or scene.n_changeable[v] == 0:
            continue
        held = frozenset(points.tolist())
        for k in range(4):
            exact, bound = allowed(v, held, k), relaxed(v, held, k)
            for threshold in (np.inf, bound + 1, bound, bound / 2):
                answer = search.run(search.fewest(v, order, k, threshold))
                assert answer.lower <= bound + 1e-8
                assert answer.lower >= min(bound, threshold) - 1e-8 or scene.data.has_floors
                assert answer.value >= exact - 1e-8
                assert answer.value == near(exact) or exact >= threshold - 1e-8


@pytest.mark.parametrize("seed", [8, *range(45, 60)])
def test_three_changes_in_one_part_of_a_subtree(seed):
    """The errors of the other parts count towards the threshold of the whole, and of the whole only."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(4, size=(14, 2)).astype(float), rng.integers(2, size=14)
    tree = random_tree(rng, 6, 2, 2, 4)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    exact = by_recursion(problem, with_floors=False)(0, frozenset(range(problem.table.n_points)), 3)
    scene = build_scene(problem)
    search = Search(scene, new_work(scene, 2), Memo(0))
    for threshold in (np.inf, exact + 1):
        assert search.run(search.fewest(0, problem.table.order, 3, threshold)) == (exact, exact, None)


@pytest.mark.parametrize("seed", range(10))
def test_a_search_that_was_stopped_still_bounds(seed):
    tree, X, y, settings = random_problem(seed + 300, max_cuts=4, missing=False)
    few = slice(0, 10)
    problem = build_problem(tree, X[few], y[few], operation=settings["operation"], min_samples_leaf=0)
    scene = build_scene(problem)
    search = Search(scene, new_work(scene, problem.table.n_classes), Memo(0))
    fewest = by_recursion(problem, with_floors=False)
    scene.stop[0] = 1
    for k in range(min(4, tree.n_cuts) + 1):
        exact = fewest(0, frozenset(range(problem.table.n_points)), k)
        answers = [search.run(search.fewest(0, problem.table.order, k, np.inf))]
        if k < 2:
            answers.append(search.start(0, problem.table.order, k).answer)
        for answer in answers:
            assert answer.lower <= exact <= answer.value


def test_no_points_make_no_errors_whatever_was_counted_before():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0])
    problem = build_problem(complete_depth_2((0, 0, 0), (1, 0, 2), 1, 2), X, y, operation="adjust", min_samples_leaf=0)
    scene = build_scene(problem)
    work = new_work(scene, 2)
    for u in (0, 1, 2):
        a, b = int(scene.shape.left[u]), int(scene.shape.right[u])
        bounds = (int(scene.shape.leaf_start[u]), int(scene.shape.leaf_stop[a]), int(scene.shape.leaf_stop[u]))
        work.leaves.counts[:] = 5.0
        work.leaves.largest[:] = 5.0
        points = problem.table.order[0]
        cut, sides = (*bounds, False, False), (scene.leaf_of[a], scene.leaf_of[b])
        assert best_test(points, 0, scene.ranks[0], cut, *sides, np.inf, scene.data, work.leaves)[:2] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("table", "errors"), [("iris", (100, 50, 6, 6)), ("wine", (107, 54, 15, 6)), ("breast_cancer", (212, 44, 27, 22))]
)
def test_dummy_cuts_exchanged(table, errors):
    """Oracle 2: with k = s that is the optimal tree of depth 2 (ConTree: 6, 6 and 22 errors)."""
    X, y = TABLES[table](return_X_y=True)
    below = X[:, 0].min() - 1
    tree = complete_depth_2((0, 0, 0), (below, below, below), X.shape[1], len(np.unique(y)))
    problem = build_problem(tree, X, y, min_samples_leaf=0)
    check_solution(problem, solve_branch_and_bound(problem, 3), errors)


@pytest.mark.parametrize(
    ("table", "features", "thresholds", "adjust", "exchange"),
    [
        ("iris", (3, 2, 2), None, (100, 50, 6, 6), None),
        ("iris", (0, 1, 1), None, (100, 54, 37, 35), None),
        ("wine", (12, 9, 6), None, (107, 54, 20, 14), None),
        ("breast_cancer", (27, 23, 21), None, (212, 46, 27, 27), (212, 44, 27)),
        ("breast_cancer", (0, 1, 4), (15, 20, 0.1), (63, 62, 62, 62), (63, 34, 27)),
    ],
)
def test_fixed_features_adjusted(table, features, thresholds, adjust, exchange):
    """Oracle 3."""
    X, y = TABLES[table](return_X_y=True)
    thresholds = [X[:, j].min() - 1 for j in features] if thresholds is None else thresholds
    tree = complete_depth_2(features, thresholds, X.shape[1], len(np.unique(y)))
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    check_solution(problem, solve_branch_and_bound(problem, 3), adjust)
    if exchange is not None:
        problem = build_problem(tree, X, y, min_samples_leaf=0)
        check_solution(problem, solve_branch_and_bound(problem, 2), exchange)


def test_worked_example():
    """The worked example: R R B B R R."""
    X, y = np.arange(1.0, 7.0)[:, None], np.array([1, 1, 0, 0, 1, 1])
    problem = build_problem(complete_depth_2((0, 0, 0), (3, 1, 5), 1, 2), X, y, operation="adjust")
    solution = solve_branch_and_bound(problem, 3)
    check_solution(problem, solution, (2, 1, 0, 0))
    better = problem.to_tree(solution.cuts)
    assert better.threshold[[1, 2]].tolist() == [2.5, 4.5]
    assert (better.predict(X) == y).all()


@pytest.mark.parametrize("seed", range(6))
def test_hitting_set(seed):
    """Oracle 4 (Theorem 5.3): the smallest budget without errors is the size of a smallest hitting set."""
    rng = np.random.default_rng(seed)
    sets = [set(rng.choice(7, size=rng.integers(1, 4), replace=False).tolist()) for _ in range(6)]
    smallest = min(
        (bits.bit_count() for bits in range(2**7) if all(any(bits >> u & 1 for u in s) for s in sets)), default=0
    )
    tree, X, y = hitting_set_instance(sets, n_elements=7)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    errors = solve_branch_and_bound(problem, 7).errors_by_budget
    assert [error == 0 for error in errors].index(True) == smallest


@pytest.mark.parametrize("seed", range(30))
def test_identities(seed):
    """Oracle 5."""
    tree, X, y, settings = random_problem(seed, max_cuts=5)
    settings = {"sample_weight": settings["sample_weight"], "min_samples_leaf": settings["min_samples_leaf"]}
    adjusting = build_problem(tree, X, y, operation="adjust", **settings)
    exchanging = build_problem(tree, X, y, operation="exchange", **settings)
    adjusted = solve_branch_and_bound(adjusting, tree.n_cuts)
    exchanged = solve_branch_and_bound(exchanging, tree.n_cuts)
    tolerance = adjusting.table.tolerance
    for solution in (adjusted, exchanged):
        assert (np.diff(solution.errors_by_budget) <= tolerance).all()
    assert (np.array(exchanged.errors_by_budget) <= np.array(adjusted.errors_by_budget) + tolerance).all()
    wrong = exchanging.to_tree(exchanged.cuts).predict(X) != y
    weight = np.ones(len(y)) if settings["sample_weight"] is None else settings["sample_weight"]
    assert weight[wrong].sum() == near(exchanged.errors_by_budget[-1])


@pytest.mark.parametrize("seed", range(15))
def test_one_example_less_saves_at_most_one_error(seed):
    """Oracle 6, without floors, which follow the table."""
    tree, X, y, settings = random_problem(seed, max_cuts=4, missing=False)
    settings = {"operation": settings["operation"], "min_samples_leaf": 0}
    k = min(2, tree.n_cuts)
    if len(y) < 2:
        return
    before = solve_branch_and_bound(build_problem(tree, X, y, **settings), k).errors_by_budget
    gone = np.arange(len(y)) != seed % len(y)
    after = solve_branch_and_bound(build_problem(tree, X[gone], y[gone], **settings), k).errors_by_budget
    assert all(0 <= was - now <= 1 for was, now in zip(before, after, strict=True))


@pytest.mark.parametrize("seed", range(15))
def test_weights_are_duplicates_and_order_does_not_matter(seed):
    """Oracle 7."""
    rng = np.random.default_rng(seed)
    tree, X, y, settings = random_problem(seed, max_cuts=4)
    settings = {"operation": settings["operation"], "min_samples_leaf": 0}
    k = min(3, tree.n_cuts)
    copies = rng.integers(1, 4, size=len(y))
    weighted = solve_branch_and_bound(build_problem(tree, X, y, sample_weight=copies, **settings), k)
    rows = rng.permutation(np.repeat(np.arange(len(y)), copies))
    problem = build_problem(tree, X[rows], y[rows], **settings)
    repeated = solve_branch_and_bound(problem, k)
    assert weighted.errors_by_budget == repeated.errors_by_budget
    for name in ("feature", "rank", "missing_left"):
        cuts = tree.topology.cuts
        assert (getattr(weighted.cuts, name)[cuts] == getattr(repeated.cuts, name)[cuts]).all()


@pytest.mark.parametrize("seed", range(10))
def test_names_of_classes_and_features_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    tree, X, y, settings = random_problem(seed, max_cuts=4)
    settings = {"operation": settings["operation"], "min_samples_leaf": settings["min_samples_leaf"]}
    k = min(3, tree.n_cuts)
    columns, names = rng.permutation(X.shape[1]), rng.permutation(len(tree.classes))
    place = np.argsort(columns)
    other = hand_made(
        tree.left,
        tree.right,
        np.where(tree.feature >= 0, place[tree.feature], -1),
        tree.threshold,
        n_classes=len(tree.classes),
        n_features=tree.n_features,
        missing_left=tree.missing_left,
    )
    errors = solve_branch_and_bound(build_problem(tree, X, y, **settings), k).errors_by_budget
    renamed = build_problem(other, X[:, columns], names[y], **settings)
    assert solve_branch_and_bound(renamed, k).errors_by_budget == errors


@pytest.mark.parametrize(("k", "time_limit"), [(2, None), (3, 0.5)])
def test_a_chain_of_500_cuts(k, time_limit):
    rng = np.random.default_rng(0)
    X = rng.random((150, 3)).round(2)
    y = rng.integers(2, size=150)
    tree = chain(500, np.arange(500) % 3, rng.random(500) / 20, n_features=3)
    problem = build_problem(tree, X, y, operation="adjust", min_samples_leaf=0)
    solution = solve_branch_and_bound(problem, k, time_limit=time_limit)
    assert solution.status == "optimal" or time_limit is not None
    assert list(solution.errors_by_budget) == sorted(solution.errors_by_budget, reverse=True)
    assert problem.n_errors(solution.cuts) == solution.errors_by_budget[-1] < solution.errors_by_budget[0]


def test_the_kernel_for_two_changes_and_the_search_agree():
    """`fewest_errors` walks the tree in one kernel, `solve_branch_and_bound` by questions."""
    X, y = load_breast_cancer(return_X_y=True)
    from sklearn.tree import DecisionTreeClassifier

    from thrifty.solvers.trees import Tree

    tree = Tree.from_sklearn(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X[:, :6], y))
    for operation in ("adjust", "exchange"):
        problem = build_problem(tree, X[:, :6], y, operation=operation)
        scene = build_scene(problem)
        work = new_work(scene, 2)
        kernel = fewest_errors(0, problem.table.order, problem.table.n_points, 2, np.inf, scene, work)
        assert kernel == (solve_branch_and_bound(problem, 2).errors_by_budget[-1],) * 2
