"""How long a search takes, beside the fit of the tree that it improves."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees import improve_tree

#: What one step of a sweep reads of a point: its place in the order, its rank, both leaves, its class and its weight.
BYTES_A_STEP = 4 + 4 + 4 + 4 + 4 + 8


def show(ctx: Context, evidence: Evidence) -> None:
    """One exchange, proven best, on a generated table of 20 000 rows, 10 features and two classes."""
    workload = "generated, 20 000 × 10, depth 4"
    X, y = make_classification(20_000, 10, n_informative=6, n_clusters_per_class=4, flip_y=0.1, random_state=ctx.seed)
    X = X.astype(np.float32)
    tree = DecisionTreeClassifier(max_depth=4, random_state=ctx.seed)
    fitted = tree.fit(X, y)
    ctx.progress(0, 1, "k=1 exchange beside CART")
    _, report = improve_tree(fitted, X, y, operation="exchange", k=1)
    times = ctx.time(
        {
            "k=1 exchange": lambda: improve_tree(fitted, X, y, operation="exchange", k=1),
            "CART": lambda: DecisionTreeClassifier(max_depth=4, random_state=ctx.seed).fit(X, y),
        },
        repeats=7,
        at_most=4.0,
    )
    errors = {"k=1 exchange": report.n_errors, "CART": report.n_errors_before}
    for contender, timing in times.items():
        evidence.row(
            contender,
            {
                "training errors": Measurement.of(errors[contender], "errors"),
                "time": timing.seconds,
                "threads": Measurement.of(timing.threads, "threads", timed=True),
            },
            workload=workload,
        )
    moved = BYTES_A_STEP * X.size * fitted.get_depth()
    slower = times["k=1 exchange"].seconds.median / (moved / (1e9 * ctx.ceilings["bandwidth"].median))
    evidence.measured(
        "vs-cart-fit",
        times["k=1 exchange"].seconds.over(times["CART"].seconds),
        gate=([errors["k=1 exchange"]], [errors["CART"]]),
        limit=f"{slower:.0f} times as long as moving the bytes it reads, in order",
    )
