"""Pruning and local search together: how few errors a tree of each smaller size can make after k changes."""

from __future__ import annotations

from sklearn.tree import DecisionTreeClassifier

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import keel
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees.boxes.error_table import error_table

TABLES = ("heart", "pima")
LEAVES = 12


def show(ctx: Context, evidence: Evidence) -> None:
    """Fronts of errors over removed cuts, for 0, 1 and 2 adjusted thresholds, on a CART tree of 11 cuts.

    The measure is at heavy pruning, with two cuts left: errors after one exchange over errors of pruning alone.
    """
    shares = []
    for done, name in enumerate(TABLES):
        ctx.progress(done, len(TABLES), f"pruning and search, {name}")
        table = keel.load(name)
        tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, random_state=ctx.seed).fit(table.X, table.y)
        n_cuts = LEAVES - 1
        workload = f"{name}, CART with {n_cuts} cuts"
        adjusted = error_table(tree, table.X, table.y, k_adjust=2, n_prune=n_cuts, min_samples_leaf=0)
        exchanged = error_table(tree, table.X, table.y, k_adjust=0, k_exchange=1, n_prune=n_cuts, min_samples_leaf=0)
        curves = {
            "pruning alone": adjusted.errors[0, 0, :, 0],
            "and 1 threshold": adjusted.errors[1, 0, :, 0],
            "and 2 thresholds": adjusted.errors[2, 0, :, 0],
            "and 1 exchange": exchanged.errors[0, 1, :, 0],
        }
        free = {
            "pruning alone": adjusted.free_pruning()[0, 0],
            "and 1 threshold": adjusted.free_pruning()[1, 0],
            "and 2 thresholds": adjusted.free_pruning()[2, 0],
            "and 1 exchange": exchanged.free_pruning()[0, 1],
        }
        for contender, errors in curves.items():
            evidence.row(
                contender,
                {
                    "errors, no cut removed": Measurement.of(errors[0], "errors"),
                    "errors, half removed": Measurement.of(errors[n_cuts // 2], "errors"),
                    "errors, 2 cuts left": Measurement.of(errors[n_cuts - 2], "errors"),
                    "cuts that go at no error": Measurement.of(int(free[contender]), "cuts"),
                },
                workload=workload,
            )
        points = {contender: (range(n_cuts + 1), errors) for contender, errors in curves.items()}
        evidence.curves(f"Errors over size, {workload}", "cuts removed", "training errors", points)
        shares.append(curves["and 1 exchange"][n_cuts - 2] / curves["pruning alone"][n_cuts - 2])
    evidence.measured("pruning-front", Measurement.of(shares, "ratio"))
