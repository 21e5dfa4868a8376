"""Experiment D: seconds a query, one model, one table (breast cancer, 30 columns)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import Timing, all_threads
from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid
from thrifty.solvers.ellice.evidence import contenders, tables
from thrifty.solvers.ellice.evidence.settings import LINEAR
from thrifty.solvers.ellice.evidence.tables import L2, Case
from thrifty.solvers.ellice.rivals import roar, trex

EPSILON = 0.01
#: Stability that T:Rex is asked for; the middle of its grid in the frontier experiment.
TAU = 0.8
#: Of the rivals that fear a change of every weight.
DELTA = 0.05
#: Half a minute a person: the call that answers is the only one, and is timed.
ONCE = ("DiCE gradient",)


def show(ctx: Context, evidence: Evidence) -> None:
    """Time every contender on as many persons as it takes to be fair to it: ours on all, the slow ones on a few."""
    case = tables.case(ctx, "breast_cancer", ctx.seed, 10_000)
    many = np.vstack([case.rejected, case.X[case.model.predict(case.X) == 0]])
    few = many[:2]
    near = RashomonEllipsoid(EPSILON, L2).fit(case.model, case.X, case.y)
    exact = ElliCE(case.model, epsilon=EPSILON, l2=L2, bounds=None).fit(case.X, case.y)
    boxed = ElliCE(case.model, epsilon=EPSILON, l2=L2).fit(case.X, case.y)
    data = ElliCE(case.model, epsilon=EPSILON, l2=L2, method="data").fit(case.X, case.y)
    weights = torch.as_tensor(case.theta[:-1])

    def logit(rows: torch.Tensor) -> torch.Tensor:
        return rows @ weights + float(case.theta[-1])

    def frame(explainer: ElliCE) -> Callable[[np.ndarray], np.ndarray]:
        return lambda rows: explainer.explain(rows).counterfactuals.to_numpy(float)

    calls: dict[str, tuple[Callable[[np.ndarray], Any], np.ndarray]] = {
        "ElliCE exact": (frame(exact), many),
        "ElliCE exact, data bounds": (frame(boxed), many[:20]),
        "ElliCE data": (frame(data), many),
        "T:Rex (k=1000)": (lambda rows: trex(rows, logit, TAU), many[: 5 if ctx.full else 2]),
        "ROAR": (lambda rows: roar(rows, case.theta, DELTA, price=LINEAR.roar[0]), many[:20]),
    }
    for name, make, rows in (
        ("ellice 0.1.4", lambda: contenders.library(case.model, case.X, case.y, EPSILON, L2), few),
        (
            "ellice 0.1.4 data",
            lambda: contenders.library(case.model, case.X, case.y, EPSILON, L2, method="data_supported"),
            few,
        ),
        ("DiCE random", lambda: contenders.dice(case.model, case.X, case.y), few[:1]),
        ("DiCE gradient", lambda: contenders.dice(case.model, case.X, case.y, method="gradient"), few[:1]),
    ):
        if name.startswith("DiCE") and not ctx.full:
            continue  # half a second a person, and several
        made = ctx.attempt(evidence, name, make, workload="speed")
        if made is not None:
            calls[name] = (made, rows)
    ctx.progress(0, 1, "speed")
    answers, once = {}, {}
    for name, (call, rows) in list(calls.items()):
        began = time.perf_counter()
        answers[name] = ctx.attempt(evidence, name, call, rows, workload="speed")
        if name in ONCE:
            once[name] = Timing(Measurement.of(time.perf_counter() - began, "s", timed=True), all_threads())
        if answers[name] is None:
            del calls[name]
    repeated = {name: call for name, call in calls.items() if name not in ONCE}
    timed = ctx.time(
        {name: partial(call, rows) for name, (call, rows) in repeated.items()},
        repeats=7 if ctx.full else 3,
        at_most=60.0 if ctx.full else 2.0,
    ) | {name: timing for name, timing in once.items() if name in calls}
    seconds, missed = {}, {}  # of every person, whether the certificate is missed: the slow ones answer the first few
    for name, timing in timed.items():
        rows = calls[name][1]
        seconds[name] = Measurement.of([1e3 * value / len(rows) for value in timing.seconds.values], "ms", timed=True)
        answer = np.asarray(answers[name])
        fine = np.isfinite(answer).all(axis=1)
        fine[fine] = near.robust_logit(answer[fine]) >= 0
        missed[name] = ~fine
        evidence.row(
            name,
            {
                **replace(timing, seconds=seconds[name]).metrics("time a query"),
                "certified": Measurement.of(float(fine.mean()), ""),
                "mean L2": Measurement.of(float(np.nanmean(np.linalg.norm(answer - rows, axis=1))), ""),
            },
            workload="speed",
        )
    if ctx.full:
        for method in ("ROAR", "RNCE", "PROPLACE"):
            _rocelib(ctx, evidence, method, case, few)
    for claim, ours, rival in (
        ("speed-vs-library", "ElliCE exact", "ellice 0.1.4"),
        ("data-speed-vs-library", "ElliCE data", "ellice 0.1.4 data"),
        ("speed-vs-trex", "ElliCE exact", "T:Rex (k=1000)"),
    ):
        if ours in seconds and rival in seconds:
            both = min(len(missed[ours]), len(missed[rival]))
            gate = [missed[ours][:both].mean()], [missed[rival][:both].mean()]
            evidence.measured(claim, seconds[rival].over(seconds[ours]), gate=gate)
    for claim, rival in (("speed-vs-dice", "DiCE random"), ("speed-vs-roar", "ROAR")):
        if rival in seconds:
            evidence.measured(claim, seconds[rival].over(seconds["ElliCE exact"]))


def _rocelib(ctx: Context, evidence: Evidence, method: str, case: Case, rows: np.ndarray) -> None:
    """Add a rival as ``rocelib`` has it, timed in its own process (ROAR there solves a linear programme a step)."""
    name = f"{method} (rocelib 0.2.3)"
    options = {} if method == "ROAR" else {"bias_delta": DELTA}
    found = ctx.attempt(
        evidence,
        name,
        lambda: contenders.rocelib(method, case.theta, rows, case.X, DELTA, **options),
        workload="speed",
    )
    if found is not None:
        answers, seconds = found
        metrics = {
            "time a query": Measurement.of(1e3 * seconds / len(rows), "ms", timed=True),
            "mean L2": Measurement.of(float(np.linalg.norm(answers - rows, axis=1).mean()), ""),
        }
        evidence.row(name, metrics, workload="speed")
