"""The byte model: several seeds of the comparison, and everything that is read off them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.influence.evidence import comparison, models, workloads
from thrifty.data.influence.evidence.comparison import CONTENDERS, EXACT, LESS, OURS, RANDOM, RDS
from thrifty.data.influence.evidence.speed import Gate

#: What quick mode cuts: the pool (and landmarks with it), the test set, pre-training.
QUICK: dict[str, Any] = {"pool": 200, "landmarks": 80, "test": 120, "pretrain": 100, "pretrain_batch": 16}

#: Numbers of landmarks at which the correlation is read.
COUNTS = (64, 128, 256)


def show(ctx: Context, evidence: Evidence) -> Gate:
    """Run the seeds; return the gate of every claim about a cost: our test losses, and RDS+'s."""
    seeds = ctx.seeds(quick=1, full=4)
    runs = []
    for done, seed in enumerate(seeds):
        tell = partial(ctx.progress, done, len(seeds))
        runs.append(ctx.once("byte model", seed, one_seed, ctx, seed, tell))

    def column(name: str) -> Measurement:
        return Measurement.of([run["loss"][name] for run in runs], "nats")

    workload = f"byte Llama, {runs[0]['pool']} sentences, {runs[0]['landmarks']} landmarks"
    contenders = tuple(name for name in CONTENDERS if name in runs[0]["loss"])
    for name in contenders:
        metrics = {
            "test loss": column(name),
            "tweets chosen": Measurement.of([run["tweets"][name] for run in runs], "share"),
            "backward passes": Measurement.of([run["passes"].get(name, 0) for run in runs], "examples"),
        }
        if ctx.full:
            metrics["overlap with exact"] = Measurement.of([run["overlap"][name] for run in runs], "share")
        evidence.row(name, metrics, workload=workload)
    start = {"test loss": Measurement.of([run["start"] for run in runs], "nats")}
    evidence.row("no fine-tuning", start, workload=workload)
    gate: Gate = (column(OURS).values, column(RDS).values)
    passes = [run["passes"][OURS] / run["passes"][EXACT] for run in runs]
    evidence.measured("backward-passes", Measurement.of(passes, "ratio"), gate=gate)
    evidence.measured("below-random", column(OURS).minus(column(RANDOM)))
    if ctx.full:
        _full(evidence, runs, column)
    medians = {"median over seeds": (contenders, [column(name).median for name in contenders])}
    title = "Test loss of the task after fine-tuning on a tenth of the pool"
    evidence.curves(title, "", "nats", medians, kind="bar")
    return gate


def one_seed(ctx: Context, seed: int, tell: Callable[[str], object]) -> dict[str, Any]:
    """Return what one seed gives, as JSON can carry it; quick mode leaves out the exact gradients."""
    tell("pre-training and warming up the byte model")
    scene = workloads.byte_scene(seed, data=ctx.data, **({} if ctx.full else QUICK))
    tell("scoring from landmarks")
    scores = comparison.score(scene, exactly=ctx.full)
    chosen = comparison.selections(scene, scores)
    losses = comparison.losses(scene, chosen, lambda name: tell(f"{name}: fine-tuning"))
    tasks = len(scene.pool) // 4  # the task's own domain comes first in the pool
    found: dict[str, Any] = {
        "pool": len(scene.pool),
        "landmarks": scene.landmarks,
        "loss": losses,
        "start": models.test_loss(scene.model, scene.test),
        "tweets": {name: float((result.indices < tasks).mean()) for name, result in chosen.items()},
        "passes": {EXACT: len(scene.pool) + len(scene.target)} | comparison.passes(chosen),
    }
    if scores.exact is not None:
        found["overlap"] = {name: comparison.overlap(result, chosen[EXACT]) for name, result in chosen.items()}
        found["weighted"] = comparison.weighted_loss(scene, chosen[OURS])
        found["correlation"] = comparison.propagation(scene, scores)
        found["rising"] = comparison.rising(scene, scores, COUNTS)
    return found


def _full(evidence: Evidence, runs: Sequence[dict[str, Any]], column: Callable[[str], Measurement]) -> None:
    effect = Measurement.of([run["weighted"] for run in runs], "nats").minus(column(OURS))
    evidence.measured("weights-effect", effect)
    ours, theirs = (Measurement.of([run["correlation"][i] for run in runs], "correlation") for i in (0, 1))
    evidence.measured("propagation-quality", ours)
    evidence.measured("propagation-vs-rds", theirs.minus(ours))
    below, exact = column(OURS).minus(column(RANDOM)), column(EXACT).minus(column(OURS))
    wins = sum(value < 0 for value in below.values)
    reason = f"{in_words(below)}, {wins} of {len(runs)} seeds below"
    evidence.measured("loss-order", Measurement.of(below.interval()[1], "nats"), reason=reason)
    reason = "each seed: " + ", ".join(f"{value:+.4f}" for value in exact.values)
    evidence.measured("loss-order-exact", Measurement.of(exact.mean, "nats"), reason=reason)
    for claim, rival in (("vs-rds", RDS), ("vs-less", LESS)):
        above = column(OURS).minus(column(rival))
        evidence.measured(claim, Measurement.of(above.interval()[0], "nats"), reason=in_words(above))
    means = [statistics.mean(run["rising"][i] for run in runs) for i in range(len(COUNTS))]
    gains = [b - a for a, b in pairwise(means)]
    reason = ", ".join(f"{count}: {mean:.3f}" for count, mean in zip(COUNTS, means, strict=True))
    evidence.measured("propagation-rises", Measurement.of(min(gains), "correlation"), reason=reason)
    points = {"mean over seeds": (COUNTS, means)}
    evidence.curves("What landmarks buy", "landmarks", "correlation with exact scores", points, log_x=True)


def in_words(difference: Measurement) -> str:
    """Return the mean of a difference and its interval, for a finding's remark."""
    low, high = difference.interval()
    return f"mean {difference.mean:+.4f}, 95 % interval [{low:.4f}, {high:.4f}]"
