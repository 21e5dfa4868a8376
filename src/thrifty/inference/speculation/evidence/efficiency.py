"""Experiment 1: target efficiency over the batch, from sparse to dense, and the experts that wake."""

from __future__ import annotations

import math

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.inference.speculation.activation import expected_active_experts
from thrifty.inference.speculation.evidence.models import EXPERTS
from thrifty.inference.speculation.evidence.sweep import efficiency, sweep
from thrifty.inference.speculation.rows import Row

#: Tokens of a request in a verification (three drafts and the last token).
WIDTH = 4
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SPARSE, DENSE = (4, 8, 16), 32


def show(ctx: Context, evidence: Evidence) -> None:
    """Measure the efficiency of verification, and whether it rises and falls as the theory has it."""
    if ctx.full:
        runs = [sweep(ctx, seed, (1, 2, *SPARSE, DENSE), BATCHES, (WIDTH,), 3) for seed in ctx.seeds(quick=1, full=3)]
    else:
        quick = (1, 8, 128)
        runs = [sweep(ctx, ctx.seed, (8,), quick, (WIDTH,), 2) | sweep(ctx, ctx.seed, (DENSE,), quick, (WIDTH,), 1)]
    for k in runs[0]:
        curves = [efficiency(run[k], WIDTH) for run in runs]
        metrics = {
            f"batch {batch}": Measurement.of([curve[batch] for curve in curves], "ratio", timed=True)
            for batch in curves[0]
        }
        evidence.row(_name(k), metrics, workload="target efficiency, 4 tokens a request")
    _rise_and_fall(evidence, runs)
    _peaks(ctx, evidence, runs)
    _awake(evidence, runs)
    first = {_name(k): efficiency(rows, WIDTH) for k, rows in runs[0].items()}
    points = {name: (curve, curve.values()) for name, curve in first.items()}
    evidence.curves("Target efficiency, 4 tokens a request", "batch size", "efficiency", points, log_x=True)


def _rise_and_fall(evidence: Evidence, runs: list[dict[int, list[Row]]]) -> None:
    rises, falls, dense = [], [], []
    for run in runs:
        curves = {k: list(efficiency(run[k], WIDTH).values()) for k in (*SPARSE, DENSE) if k in run}
        sparse = [curve for k, curve in curves.items() if k != DENSE]
        rises.append(min(max(curve) / curve[0] for curve in sparse))
        falls.append(max(curve[-1] / max(curve) for curve in sparse))
        dense.append(max(b / a for a, b in zip(curves[DENSE], curves[DENSE][1:], strict=False)))
    evidence.measured("rises-then-falls", Measurement.of(rises, "ratio", timed=True))
    evidence.measured("then-falls", Measurement.of(falls, "ratio", timed=True))
    evidence.measured("dense-only-falls", Measurement.of(dense, "ratio", timed=True))


def _peaks(ctx: Context, evidence: Evidence, runs: list[dict[int, list[Row]]]) -> None:
    if not ctx.full:
        return
    doublings = []
    for run in runs:
        peaks = {}
        for k in (2, *SPARSE):
            curve = efficiency(run[k], WIDTH)
            peaks[k] = max(curve, key=lambda batch, curve=curve: curve[batch])  # type: ignore[misc]
        doublings.append(math.log2(peaks[2] / peaks[16]) / 3)
        evidence.row("ours", {f"K={k}": Measurement.of(p, "batch") for k, p in peaks.items()}, workload="peak batch")
    evidence.measured("sparser-is-broader", Measurement.of(doublings, "doublings", timed=True))


def _awake(evidence: Evidence, runs: list[dict[int, list[Row]]]) -> None:
    """Compare the experts that woke with equation 8."""
    errors = [
        abs(row.active_experts / float(expected_active_experts(row.batch_size * row.width(""), EXPERTS, row.top_k)) - 1)
        for run in runs for rows in run.values() for row in rows if row.active_experts
    ]  # fmt: skip
    evidence.measured("active-experts", Measurement.of(max(errors), "relative"))


def _name(k: int) -> str:
    return f"K={k} of {EXPERTS}" if k < EXPERTS else f"dense (K={EXPERTS} of {EXPERTS})"
