"""E1: bundles of problems through the gate, and the time that they take."""

from __future__ import annotations

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.problems.gate import faults
from thrifty.evaluation.reasoning.problems.generator import Bundle, bundles
from thrifty.evaluation.reasoning.rivals import gradient_bundles

RIVAL = "gradient ascent with rejection"


def show(ctx: Context, evidence: Evidence) -> list[Bundle]:
    """Make bundles, count faults, and time both samplers; returns the bundles for what follows."""
    made = list(bundles(100 if ctx.full else 25, ctx.seed))
    wrong = sum(len(faults(problem)) for bundle in made for problem in bundle.problems.values())
    again = sum(bundle.rejected for bundle in made)
    evidence.row(
        "ours",
        {"problems": Measurement.of(28 * len(made), "problems"), "drawn again": Measurement.of(again, "bundles")},
    )
    evidence.measured("gate", Measurement.of(wrong, "faults"))
    n = 5 if ctx.full else 1
    times = ctx.timed(
        evidence,
        {"ours": lambda: list(bundles(n, ctx.seed + 1)), RIVAL: lambda: list(gradient_bundles(n, ctx.seed + 1))},
        workload="a bundle of 28",
        quick=3.0,
        full=60.0,
    )
    other = [len(faults(p)) for b in gradient_bundles(n, ctx.seed + 1) for p in b.problems.values()]
    gate = ([float(wrong)], [float(sum(other))])
    evidence.measured("generator-speed", times["ours"].over(times[RIVAL]), gate=gate)
    return made
