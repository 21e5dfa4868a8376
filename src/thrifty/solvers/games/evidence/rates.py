"""How gaps fall: by feedback, with time, and in a game of 10^10 actions."""

from __future__ import annotations

import itertools

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.games import ColonelBlotto, solve_cce
from thrifty.solvers.games.evidence.speed import slope

HORIZON = 20_000
#: Feedback of each learner, best first.
ORDER = {"optimistic": "expected", "full": "full", "semi-bandit": "semi-bandit", "bandit": "bandit"}
#: The grid of :func:`tune`, the same for all, and what it chose.
GRID = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SCALES = {"optimistic": 16.0, "full": 16.0, "semi-bandit": 1.0, "bandit": 1.0}


def small() -> ColonelBlotto:
    """Return the game with five soldiers and three battlefields."""
    return ColonelBlotto([5, 5], [1, 2, 3])


def tune() -> dict[str, float]:
    """Choose the step size of every learner on two seeds that the evidence does not use."""
    found = {}
    for who in ORDER:
        gaps = {scale: np.mean([final_gap(scale, who, seed) for seed in (100, 101)]) for scale in GRID}
        found[who] = min(gaps, key=gaps.__getitem__)
    return found


def tuned_gap(who: str, seed: int) -> float:
    """Return a learner's gap at the horizon with the step size that was chosen."""
    return final_gap(SCALES[who], who, seed)


def final_gap(scale: float, who: str, seed: int) -> float:
    """Return a learner's gap at the horizon."""
    return solve_cce(small(), ORDER[who], HORIZON, eta_scale=scale, seed=seed, eval_every=HORIZON, history=False).gap


def show(ctx: Context, evidence: Evidence) -> None:
    """All four learners side by side; the rate of the best; the huge game."""
    _order(ctx, evidence)
    _rate(ctx, evidence)
    _huge(ctx, evidence)


def _order(ctx: Context, evidence: Evidence) -> None:
    seeds = ctx.seeds(quick=1, full=5)
    workload = f"5 soldiers, 3 battlefields, {HORIZON} rounds"
    found = ctx.runs(evidence, ORDER, seeds, tuned_gap, workload=workload)
    for who, gaps in found.items():
        evidence.row(who, {"gap": Measurement.of(gaps, "loss")}, workload=workload)
    if set(found) == set(ORDER):
        in_order = [all(a < b for a, b in itertools.pairwise(run)) for run in zip(*found.values(), strict=True)]
        evidence.measured("gap-order", Measurement.of(float(np.mean(in_order)), "share of seeds"))


def _rate(ctx: Context, evidence: Evidence) -> None:
    ctx.progress(1, 3, "optimistic play to T = 100 000")
    game = ColonelBlotto([10, 10], [1, 2, 3, 4])
    trace = solve_cce(game, "expected", 100_000, eval_every=1000, history=False).trace
    evidence.row(
        "optimistic",
        {
            "gap at T = 1000": Measurement.of(trace.gap[0], "loss"),
            "gap at T = 100 000": Measurement.of(trace.gap[-1], "loss"),
            "time": Measurement.of(trace.seconds[-1], "s", timed=True),
        },
        workload="10 soldiers, 4 battlefields, expected losses",
    )
    evidence.measured("omwu-rate", Measurement.of(slope(trace.rounds, trace.gap), "exponent"))
    evidence.curves(
        "Optimistic play", "rounds", "gap", {"optimistic": (trace.rounds, trace.gap)}, log_x=True, log_y=True
    )


def _huge(ctx: Context, evidence: Evidence) -> None:
    ctx.progress(2, 3, "a game of 10^10 allocations")
    game = ColonelBlotto([50, 50], range(1, 11))
    horizon, ratios, gaps, seconds = 5000, [], [], []
    for seed in ctx.seeds(quick=1, full=3):
        result = solve_cce(game, "semi-bandit", horizon, eval_every=horizon // 20, seed=seed, history=False)
        ratios.append(result.trace.gap[-1] / result.trace.gap[0])
        gaps.append(result.gap)
        seconds.append(result.seconds)
    evidence.row(
        "semi-bandit",
        {
            "gap": Measurement.of(gaps, "loss"),
            "time": Measurement.of(seconds, "s", timed=True),
            "bytes of a list": Measurement.of(np.exp(game.sets[0].log_size) * (10 * 4 + 8) / 1e9, "GB"),
        },
        workload=f"50 soldiers, 10 battlefields, {np.exp(game.sets[0].log_size):.3g} allocations, {horizon} rounds",
    )
    evidence.measured("huge", Measurement.of(ratios, "ratio"))
