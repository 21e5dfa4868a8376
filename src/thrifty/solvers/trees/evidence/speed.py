"""How long an exact search takes: beside the fit of the tree, and beside the paper's dynamic programme."""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_iris, make_classification
from sklearn.tree import DecisionTreeClassifier

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import keel
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees import Tree, error_table, improve_tree
from thrifty.solvers.trees.bnb.branch_and_bound import solve_branch_and_bound
from thrifty.solvers.trees.instance.problem import Operation, build_problem
from thrifty.solvers.trees.rivals import plain_dynamic_programme

#: What one step of a sweep reads of a point: its place in the order, its rank, both leaves, its class and its weight.
BYTES_A_STEP = 4 + 4 + 4 + 4 + 4 + 8

#: Tables with the leaves of the CART trees whose cuts the paper's J48 trees have.
LARGE = (("pima", 97), ("banana", 187))
PROVEN_WITHIN = 10.0  # seconds

#: An instance that the plain dynamic programme finishes, and the seconds after which it is stopped all the same.
SMALL = ("australian", 6)
PLAIN_LIMIT = 30.0


def compile_kernels() -> None:
    """Run every solver once on a small table, with thresholds and tests, so that no timing includes compiling."""
    X, y = load_iris(return_X_y=True)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    operations: tuple[Operation, ...] = ("adjust", "exchange")
    for operation in operations:
        for k in (1, 2):
            improve_tree(tree, X, y, operation=operation, k=k)
    improve_tree(tree, X, y, mode="hillclimb")
    error_table(tree, X, y, k_adjust=1, k_exchange=1, n_prune=1)


def show(ctx: Context, evidence: Evidence) -> None:
    """One change beside a CART fit, two beside the plain programme, two on large trees against the clock."""
    _beside_cart(ctx, evidence)
    _beside_plain(ctx, evidence)
    _on_large_trees(ctx, evidence)


def _beside_cart(ctx: Context, evidence: Evidence) -> None:
    X, y = make_classification(20_000, 10, n_informative=6, n_clusters_per_class=4, flip_y=0.1, random_state=ctx.seed)
    X = X.astype(np.float32)
    fitted = DecisionTreeClassifier(max_depth=4, random_state=ctx.seed).fit(X, y)
    ctx.progress(0, 3, "k=1 exchange beside CART")
    _, report = improve_tree(fitted, X, y, operation="exchange", k=1)
    times = ctx.time(
        {
            "k=1 exchange": lambda: improve_tree(fitted, X, y, operation="exchange", k=1),
            "CART": lambda: DecisionTreeClassifier(max_depth=4, random_state=ctx.seed).fit(X, y),
        },
        repeats=7,
        at_most=3.0,
    )
    errors = {"k=1 exchange": report.n_errors, "CART": report.n_errors_before}
    for contender, timing in times.items():
        evidence.row(
            contender,
            {"training errors": Measurement.of(errors[contender], "errors"), **timing.metrics()},
            workload="generated, 20 000 × 10, depth 4",
        )
    moved = BYTES_A_STEP * X.size * fitted.get_depth()
    slower = times["k=1 exchange"].seconds.median / (moved / (1e9 * ctx.ceilings["bandwidth"].median))
    evidence.measured(
        "vs-cart-fit",
        times["k=1 exchange"].seconds.over(times["CART"].seconds),
        gate=([errors["k=1 exchange"]], [errors["CART"]]),
        limit=f"{slower:.0f} times as long as moving the bytes it reads, in order",
    )


def _beside_plain(ctx: Context, evidence: Evidence) -> None:
    name, leaves = SMALL
    table = keel.load(name)
    X = table.X.astype(np.float32)
    tree = Tree.from_sklearn(DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=ctx.seed).fit(X, table.y))
    ctx.progress(1, 3, f"two adjustments on {name}, beside the plain dynamic programme")
    problem = build_problem(tree, X, table.y, operation="adjust", min_samples_leaf=0)
    solution = solve_branch_and_bound(problem, 2)
    ours = ctx.time({"ours": lambda: solve_branch_and_bound(problem, 2)}, repeats=7, at_most=2.0)["ours"].seconds
    began = time.perf_counter()
    try:
        errors: float = plain_dynamic_programme(problem, 2, time_limit=PLAIN_LIMIT)
        note = None
    except TimeoutError:
        errors, note = solution.lower_bound, f"stopped after {PLAIN_LIMIT:g} s: it takes longer than this"
    plain = time.perf_counter() - began
    workload = f"{name}, CART with {leaves - 1} cuts, two adjustments"
    evidence.row(
        "branch and bound", {"errors": Measurement.of(solution.lower_bound, "errors"), "time": ours}, workload=workload
    )
    evidence.row(
        "plain dynamic programme",
        {"errors": Measurement.of(errors, "errors"), "time": Measurement.of(plain, "s", timed=True)},
        workload=workload,
        error=note,
    )
    ratios = [plain / seconds for seconds in ours.values]
    evidence.measured(
        "dp-speedup", Measurement.of(ratios, "ratio", timed=True), gate=([solution.lower_bound], [errors]), reason=note
    )


def _on_large_trees(ctx: Context, evidence: Evidence) -> None:
    proven = 0
    ctx.progress(2, 3, "two changes on large trees")
    operations: tuple[Operation, ...] = ("adjust", "exchange")
    for name, leaves in LARGE:
        table = keel.load(name)
        tree = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=ctx.seed).fit(table.X, table.y)
        for operation in operations:
            _, report = improve_tree(
                tree, table.X, table.y, operation=operation, k=2, time_limit=PROVEN_WITHIN, n_jobs=-1
            )
            proven += report.status == "optimal"
            evidence.row(
                f"branch and bound, {operation}",
                {
                    "errors, k = 0": Measurement.of(report.errors_by_budget[0], "errors"),
                    "k = 1": Measurement.of(report.errors_by_budget[1], "errors"),
                    "k = 2": Measurement.of(report.errors_by_budget[2], "errors"),
                    "time": Measurement.of(report.seconds, "s", timed=True),
                },
                workload=f"{name}, CART with {leaves - 1} cuts, k = 2",
            )
    evidence.measured("k2-in-seconds", Measurement.of(proven, "of 4 proven", timed=True))
