"""The byte model: several seeds of the comparison, and everything that is read off them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from scipy import stats

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence, Plot, Series
from thrifty.data.influence.evidence import comparison, models, workloads
from thrifty.data.influence.evidence.comparison import CONTENDERS, EXACT, OURS, RANDOM, RDS
from thrifty.data.influence.evidence.speed import Gate

#: Standard deviation, between seeds of the tuning split, of (our loss - RDS+'s): ``tuning.tune``.
SPREAD = 0.03

#: What quick mode cuts: pre-training and the test set.
QUICK: dict[str, Any] = {"test": 120, "pretrain": 100, "pretrain_batch": 16}

#: Numbers of landmarks at which the correlation is read.
COUNTS = (64, 128, 256)


def show(ctx: Context, evidence: Evidence) -> Gate:
    """Run the seeds; return the gate of every claim about a cost: is our test loss above RDS+'s beyond the spread?"""
    seeds = ctx.seeds(quick=1, full=4)
    runs = []
    for done, seed in enumerate(seeds):
        tell = partial(ctx.progress, done, len(seeds))
        runs.append(ctx.once("byte model", seed, partial(one_seed, ctx, seed, tell)))

    def column(name: str) -> list[float]:
        return [run["loss"][name] for run in runs]

    workload = f"byte Llama, {runs[0]['pool']} sentences, {runs[0]['landmarks']} landmarks"
    contenders = tuple(name for name in CONTENDERS if name in runs[0]["loss"])
    for name in contenders:
        metrics = {
            "test loss": Measurement.of(column(name), "nats"),
            "tweets chosen": Measurement.of([run["tweets"][name] for run in runs], "share"),
            "backward passes": Measurement.of([run["passes"].get(name, 0) for run in runs], "examples"),
        }
        if ctx.full:
            metrics["overlap with exact"] = Measurement.of([run["overlap"][name] for run in runs], "share")
        evidence.row(name, metrics, workload=workload)
    start = {"test loss": Measurement.of([run["start"] for run in runs], "nats")}
    evidence.row("no fine-tuning", start, workload=workload)
    apart = differences(column(OURS), column(RDS))
    gate: Gate = ([statistics.mean(apart) - half_width(apart)], [0.0])
    passes = [run["passes"][OURS] / run["passes"][EXACT] for run in runs]
    evidence.measured("backward-passes", Measurement.of(passes, "ratio"), gate=gate)
    evidence.measured("below-random", Measurement.of(differences(column(OURS), column(RANDOM)), "nats"))
    if ctx.full:
        _full(evidence, runs, column)
    evidence.plot(
        Plot(
            "Test loss of the task after fine-tuning on a tenth of the pool",
            "bar",
            "",
            "nats",
            (Series("median over seeds", contenders, tuple(statistics.median(column(name)) for name in contenders)),),
        )
    )
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
        "passes": {EXACT: len(scene.pool) + len(scene.target), OURS: scores.ours.backward_passes},
    }
    if scores.exact is not None:
        found["passes"][EXACT] = scores.exact.backward_passes
        found["overlap"] = {name: comparison.overlap(result, chosen[EXACT]) for name, result in chosen.items()}
        found["weighted"] = comparison.weighted_loss(scene, chosen[OURS])
        found["correlation"] = comparison.propagation(scene, scores)
        found["rising"] = comparison.rising(scene, scores, COUNTS)
    return found


def _full(evidence: Evidence, runs: Sequence[dict[str, Any]], column: Callable[[str], list[float]]) -> None:
    effect = differences([run["weighted"] for run in runs], column(OURS))
    evidence.measured("weights-effect", Measurement.of(effect, "nats"))
    ours, theirs = zip(*(run["correlation"] for run in runs), strict=True)
    evidence.measured("propagation-quality", Measurement.of(ours, "correlation"))
    evidence.measured("propagation-vs-rds", Measurement.of(differences(theirs, ours), "correlation"))
    below, above = differences(column(OURS), column(RANDOM)), differences(column(OURS), column(RDS))
    exact = differences(column(EXACT), column(OURS))
    low, high = interval(below)
    wins = sum(value < 0 for value in below)
    reason = (
        f"mean {statistics.mean(below):.4f}, 95 % interval [{low:.4f}, {high:.4f}], {wins} of {len(below)} seeds below"
    )
    evidence.measured("loss-order", Measurement.of(high, "nats"), reason=reason)
    reason = "each seed: " + ", ".join(f"{value:+.4f}" for value in exact)
    evidence.measured("loss-order-exact", Measurement.of(statistics.mean(exact), "nats"), reason=reason)
    low, high = interval(above)
    reason = f"mean {statistics.mean(above):+.4f}, 95 % interval [{low:.4f}, {high:.4f}]"
    evidence.measured("vs-rds", Measurement.of(low, "nats"), reason=reason)
    means = [statistics.mean(run["rising"][i] for run in runs) for i in range(len(COUNTS))]
    gains = [b - a for a, b in pairwise(means)]
    reason = ", ".join(f"{count}: {mean:.3f}" for count, mean in zip(COUNTS, means, strict=True))
    evidence.measured("propagation-rises", Measurement.of(min(gains), "correlation"), reason=reason)
    series = Series("mean over seeds", tuple(float(count) for count in COUNTS), tuple(means))
    evidence.plot(
        Plot("What landmarks buy", "line", "landmarks", "correlation with exact scores", (series,), log_x=True)
    )


def differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Subtract run by run."""
    return [a - b for a, b in zip(ours, theirs, strict=True)]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean (Student's t)."""
    centre, half = statistics.mean(values), half_width(values)
    return centre - half, centre + half


def half_width(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean; of a single run, by the spread that the tuning split has."""
    if len(values) == 1:
        return 2 * SPREAD
    return float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
