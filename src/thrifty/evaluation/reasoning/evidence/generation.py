"""E1: bundles of problems through the gate, and the time that they take."""

from __future__ import annotations

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.problems.gate import faults
from thrifty.evaluation.reasoning.problems.generator import bundles
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.making import Bundle, Draft, Plan, Sampler
from thrifty.evaluation.reasoning.problems.trees import InfeasibleError
from thrifty.evaluation.reasoning.rivals import SAMPLER, gradient_bundles

OURS, RIVAL = "ours", "gradient ascent with rejection"


def show(ctx: Context, evidence: Evidence) -> list[Bundle]:
    """Make bundles, count faults, and time both samplers; returns the bundles for what follows."""
    made = list(bundles(200 if ctx.full else 50, ctx.seed))
    wrong = sum(len(faults(problem)) for bundle in made for problem in bundle.problems.values())
    evidence.row(
        OURS,
        {
            "problems": Measurement.of(28 * len(made), "problems"),
            "drawn again": Measurement.of(sum(bundle.rejected for bundle in made), "bundles"),
        },
    )
    evidence.measured("gate", Measurement.of(wrong, "faults"))

    n = 60 if ctx.full else 20
    searched = list(gradient_bundles(n, ctx.seed + 1))
    again = sum(bundle.rejected for bundle in searched)
    evidence.row(RIVAL, {"drawn again": Measurement.of(again, "bundles")}, workload=f"{n} bundles")
    other = sum(len(faults(problem)) for bundle in searched for problem in bundle.problems.values())
    gate = ([float(wrong)], [float(other)])

    whole = {OURS: lambda: list(bundles(n, ctx.seed + 1)), RIVAL: lambda: list(gradient_bundles(n, ctx.seed + 1))}
    times = ctx.timed(evidence, whole, workload=f"{n} bundles of 28", quick=4.0, full=30.0)
    evidence.measured("generator-speed", times[OURS].over(times[RIVAL]), gate=gate)
    alone = {OURS: lambda: quantities(n, ctx.seed + 1, Sampler()), RIVAL: lambda: quantities(n, ctx.seed + 1, SAMPLER)}
    times = ctx.timed(evidence, alone, workload=f"quantities of {n} bundles", quick=2.0, full=10.0)
    evidence.measured("sampling-speed", times[OURS].over(times[RIVAL]), gate=gate)
    return made


def quantities(n: int, seed: int, sampler: Sampler) -> None:
    """Draw the trees of bundles, with quantities within their bounds, and no text."""
    plan = Plan(seed, "question", (2, 3), 3, Lexicon.default())
    for number in range(n):
        attempt = 0
        while True:
            try:
                Draft(plan, number, attempt, sampler)
                break
            except InfeasibleError:
                attempt += 1
