"""Errors on the flights: every contender on the same days, and the forecasts that need no network."""

from __future__ import annotations

import statistics

from thrifty.bench.claims import Measurement, pooled_deviation
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.se_htgnn.evidence import flights
from thrifty.models.se_htgnn.evidence.contenders import WINDOW, train
from thrifty.models.se_htgnn.metrics import regression_metrics
from thrifty.models.se_htgnn.rivals import naive

LABEL = "New York's flights, T = 7, d = 16"
PAIR = ("SE-HTGNN", "HTGNN")
OTHERS = ("DyHATR-like", "HGT + GRU", "RGCN", "HGT", "GCN", "GAT")

#: A full run gives everyone the same epochs and patience. A quick one gives both about the same seconds, since there is
#: no time for either to be trained to its end: an epoch of HTGNN takes more than three of ours.
EPOCHS, PATIENCE = 20, 8
QUICK_EPOCHS = {"SE-HTGNN": 18, "HTGNN": 6}

Gate = tuple[list[float], list[float]]


def show(ctx: Context, evidence: Evidence) -> Gate | None:
    """Train all, record the claims about errors, and return the gate of the claims about cost."""
    simple = _simple(evidence)
    found = ctx.runs(
        evidence, PAIR, ctx.seeds(quick=2, full=3), lambda name, seed: _one(ctx, name, seed), workload=LABEL
    )
    if ctx.full:
        deeper = ctx.every_seed(evidence, "HTGNN, 2 layers", ctx.seeds(quick=1, full=2),
                                lambda seed: _one(ctx, "HTGNN", seed, 2), workload=LABEL)  # fmt: skip
        found |= {"HTGNN, 2 layers": deeper} if deeper is not None else {}
        for name in OTHERS:
            if not ctx.late(evidence, needs=330):
                found |= ctx.runs(
                    evidence, [name], ctx.seeds(quick=1, full=2), lambda n, seed: _one(ctx, n, seed), workload=LABEL
                )
    for name, runs in found.items():
        metrics = {
            "MAE": Measurement.of([r["mae"] for r in runs], "min"),
            "RMSE": Measurement.of([r["rmse"] for r in runs], "min"),
        }
        metrics["parameters"] = Measurement.of(runs[0]["parameters"], "numbers")
        metrics["an epoch"] = Measurement.of([r["seconds"] for r in runs], "s", timed=True)
        evidence.row(name, metrics, workload=LABEL)
    if "SE-HTGNN" not in found:
        return None
    ours = [r["mae"] for r in found["SE-HTGNN"]]
    evidence.measured("vs-ridge", Measurement.of([mae / simple["ridge on own lags"] for mae in ours], "ratio"),
                      reason=f"ridge: {simple['ridge on own lags']:.2f} minutes")  # fmt: skip
    best = min((name for name in simple if name != "ridge on own lags"), key=lambda name: simple[name])
    evidence.measured(
        "vs-naive", Measurement.of([mae / simple[best] for mae in ours], "ratio"), reason=f"the best of them: {best}"
    )
    if "HTGNN" not in found:
        return None
    theirs = [r["mae"] for r in found["HTGNN"]]
    if ctx.full:
        evidence.measured(
            "mae", gap(ours, theirs), reason=f"{statistics.mean(ours):.2f} and {statistics.mean(theirs):.2f} minutes"
        )
    return ours, theirs


def gap(ours: list[float], theirs: list[float]) -> Measurement:
    """Return by how many pooled standard deviations our mean error is above theirs."""
    return Measurement.of(
        (statistics.mean(ours) - statistics.mean(theirs)) / max(pooled_deviation(ours, theirs), 1e-9), "sd"
    )


def _one(ctx: Context, name: str, seed: int, layers: int = 1) -> dict[str, float]:
    epochs = EPOCHS if ctx.full else QUICK_EPOCHS[name]
    data, split = flights.graph(), flights.split(WINDOW)
    return train(name, data, flights.TARGET, split, seed, epochs=epochs, patience=PATIENCE, layers=layers,
                 device=ctx.device)  # fmt: skip


def _simple(evidence: Evidence) -> dict[str, float]:
    """Return the errors of forecasts without a network."""
    split, y = flights.split(WINDOW), flights.graph().y[flights.TARGET].numpy()
    days, train_days = split.test, split.train
    guesses = {
        "persistence": naive.persistence(y, days, train_days),
        "seasonal naive": naive.seasonal(y, days, train_days),
        "all airports yesterday": naive.yesterday(y, days, train_days),
        "per-node median": naive.per_node_median(y, days, train_days),
        "ridge on own lags": naive.ridge(y, days, train_days, split.validation),
    }
    found = {}
    for name, guess in guesses.items():
        scores = regression_metrics(guess, y[days])
        found[name] = scores["mae"]
        evidence.row(
            name,
            {"MAE": Measurement.of(scores["mae"], "min"), "RMSE": Measurement.of(scores["rmse"], "min")},
            workload=LABEL,
        )
    return found
