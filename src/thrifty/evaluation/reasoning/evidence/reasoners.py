"""E2 and E3: reasoners whose behaviour is known, with words that must not matter."""

from __future__ import annotations

import statistics

import numpy as np
from numpy.random import Generator
from scipy.stats import spearmanr

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.logic.orders import best_first_order, random_order
from thrifty.evaluation.reasoning.problems.making import Bundle
from thrifty.evaluation.reasoning.problems.problem import AMOUNTS, OVERLAPS, Cell, Problem
from thrifty.evaluation.reasoning.traces.scores import score

PUBLISHED = {"simple": 1.00, "complex": 0.74, "more_complex": 0.51}
FILLER = ("Let me look at this carefully.", "That was easy.", "Okay, so let me go on.", "Hmm, what else is known here?")


def show(ctx: Context, evidence: Evidence, made: list[Bundle]) -> None:
    """Measure ceiling and floor, what wording changes, and what overlap does."""
    deviation, worst = [], 0.0
    for amount in AMOUNTS:
        problems = [bundle.problems[Cell("disconnected", amount, "no_overlap")] for bundle in made]
        mean = statistics.fmean(score(problem, problem.eager_trace).efficiency for problem in problems)
        evidence.row(
            "exhaustive", {"efficiency": Measurement.of(mean, "efficiency")}, workload=f"disconnected, {amount}"
        )
        deviation.append(abs(mean - PUBLISHED[amount]))
    for bundle in made:
        for problem in bundle.problems.values():
            worst = max(worst, abs(1 - score(problem, problem.gold_trace).efficiency))
    evidence.measured("ceiling-floor", Measurement.of(max(deviation), "efficiency"))
    evidence.measured("optimal-is-one", Measurement.of(worst, "efficiency"))
    _noise(ctx, evidence, made)
    _signature(evidence, made)


def _noise(ctx: Context, evidence: Evidence, made: list[Bundle]) -> None:
    rng = np.random.default_rng(ctx.seed)
    changed, efficiencies, ratios, needed = 0, [], [], []
    for bundle in made:
        for overlap in OVERLAPS:
            problem = bundle.problems[Cell("disconnected", "more_complex", overlap)]
            orders = [problem.eager, problem.breadth_first, random_order(problem.graph, ctx.seed)]
            for order in [*orders, best_first_order(problem.graph), problem.shortest.edges]:
                plain = problem.trace(order)
                noisy = verbose(problem, plain, rng)
                before, after = score(problem, plain), score(problem, noisy)
                changed += before.efficiency != after.efficiency
                efficiencies.append(after.efficiency)
                ratios.append(after.token_ratio)
                needed.append(problem.shortest.length / len(order))
    by_proof = float(spearmanr(efficiencies, needed).statistic)
    by_tokens = float(spearmanr(ratios, needed).statistic)
    evidence.row("efficiency", {"correlation with waste": Measurement.of(by_proof, "correlation")})
    evidence.row("token ratio", {"correlation with waste": Measurement.of(by_tokens, "correlation")})
    evidence.measured("invariant-to-verbosity", Measurement.of(changed, "proofs"))
    evidence.measured(
        "tracks-waste", Measurement.of(by_proof, "correlation"), reason=f"the token ratio's: {by_tokens:.2f}"
    )


def verbose(problem: Problem, trace: str, rng: Generator) -> str:
    """Reword a trace: filler, repeated lines and other openings, none of which is an inference."""
    lines = []
    for line in trace.splitlines():
        body = line.partition(". ")[2]
        if not body or line.startswith("Therefore"):
            lines.append(line)
            continue
        if rng.random() < 0.5:
            lines.append(FILLER[int(rng.integers(len(FILLER)))])
        lines.append(body.replace("So ", "This means that ", 1) if rng.random() < 0.5 else body)
        if rng.random() < 0.3:
            lines.append(f"Again: {body[0].lower() + body[1:] if body.startswith('So ') else body}")
    return "\n".join(lines)


def _signature(evidence: Evidence, made: list[Bundle]) -> None:
    means = []
    for overlap in OVERLAPS:
        problems = [bundle.problems[Cell("disconnected", "more_complex", overlap)] for bundle in made]
        efficiency = [p.shortest.length / len(best_first_order(p.graph)) for p in problems]
        means.append(statistics.fmean(efficiency))
        evidence.row("best first", {"efficiency": Measurement.of(means[-1], "efficiency")}, workload=overlap)
    none, thing, agent, both = means
    least = min(none - thing, none - agent, thing - both, agent - both)
    evidence.measured("semantic-heuristic-signature", Measurement.of(least, "efficiency"))
    evidence.curves(
        "Best first by shared words", "overlap", "efficiency", {"best first": (OVERLAPS, means)}, kind="bar"
    )
