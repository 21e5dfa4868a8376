"""Pretrained models (full mode): sentiment by a sentence encoder, and tweets by SmolLM2-135M."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import all_threads, threads
from thrifty.data.influence.evidence import comparison, models, workloads
from thrifty.data.influence.evidence.byte_run import in_words
from thrifty.data.influence.evidence.comparison import CONTENDERS, EXACT, OURS, RANDOM, RDS, Scene

#: Seeds below which an interval of the mean says nothing.
FEWEST = 3

#: The propagation is read with so many times the landmarks, too, and the loss with the most.
TIMES = (1, 2, 4)


def show_encoder(ctx: Context, evidence: Evidence) -> None:
    """Four seeds of the encoder."""
    with evidence.needs("encoder-order", "encoder-vs-rds"):
        losses = _runs(ctx, evidence, "encoder", 4, partial(workloads.encoder_scene, data=ctx.data))
        evidence.measured("encoder-order", losses[OURS].minus(losses[RANDOM]))
        apart = losses[OURS].minus(losses[RDS])
        if len(apart.values) < FEWEST:
            reason = f"the budget was enough for {len(apart.values)} seeds, too few for an interval"
            evidence.cannot_show("encoder-vs-rds", reason)
            return
        evidence.measured("encoder-vs-rds", Measurement.of(apart.interval()[0], "nats"), reason=in_words(apart))


def show_smollm2(ctx: Context, evidence: Evidence) -> None:
    """Three seeds of SmolLM2, as far as the budget goes."""
    with evidence.needs("smollm2-order", "smollm2-vs-rds", "smollm2-exact-vs-rds"):
        losses = _runs(ctx, evidence, "smollm2", 3, partial(workloads.smollm2_scene, data=ctx.data))
        evidence.measured("smollm2-order", losses[OURS].minus(losses[RANDOM]))
        for claim, contender in (("smollm2-vs-rds", OURS), ("smollm2-exact-vs-rds", EXACT)):
            apart = losses[contender].minus(losses[RDS])
            reason = in_words(apart) if len(apart.values) >= FEWEST else None
            evidence.measured(claim, apart, reason=reason)


def _runs(
    ctx: Context, evidence: Evidence, name: str, count: int, make: Callable[[int], Scene]
) -> dict[str, Measurement]:
    """Run seeds while the budget lasts, add the rows, and return the losses."""
    found: list[dict[str, Any]] = []
    longest = 0.0
    for done, seed in enumerate(ctx.seeds(quick=1, full=count)):
        if found and ctx.remaining() < 1.2 * longest:
            break
        ctx.progress(done, count, f"{name}: selecting and fine-tuning")
        before = ctx.remaining()
        with threads(all_threads()):
            found.append(ctx.once(name, seed, _one, make, seed))
        longest = max(longest, before - ctx.remaining())
    workload = f"{name}, {found[0]['pool']} sentences, {found[0]['landmarks']} landmarks"
    losses = {contender: Measurement.of([run["loss"][contender] for run in found], "nats") for contender in CONTENDERS}
    for contender in CONTENDERS:
        metrics = {
            "test loss": losses[contender],
            "overlap with exact": Measurement.of([run["overlap"][contender] for run in found], "share"),
            "backward passes": Measurement.of([run["passes"].get(contender, 0) for run in found], "examples"),
        }
        if contender in {OURS, RDS}:
            values = [run["correlation"][contender == RDS] for run in found]
            metrics["propagation"] = Measurement.of(values, "correlation")
        evidence.row(contender, metrics, workload=workload)
    for i, times in enumerate(TIMES):
        values = [run["rising"][i] for run in found]
        count = times * found[0]["landmarks"]
        metrics = {"propagation": Measurement.of(values, "correlation")}
        if times == TIMES[-1]:
            metrics["test loss"] = Measurement.of([run["with more"] for run in found], "nats")
        evidence.row(f"{OURS}, {count} landmarks drawn anew", metrics, workload=workload)
    start = Measurement.of([run["start"] for run in found], "nats")
    evidence.row("no fine-tuning", {"test loss": start}, workload=workload)
    return losses


def _one(make: Callable[[int], Scene], seed: int) -> dict[str, Any]:
    scene = make(seed)
    scores = comparison.score(scene)
    chosen = comparison.selections(scene, scores)
    return {
        "pool": len(scene.pool),
        "landmarks": scene.landmarks,
        "loss": comparison.losses(scene, chosen),
        "start": models.test_loss(scene.model, scene.test),
        "overlap": {name: comparison.overlap(result, chosen[EXACT]) for name, result in chosen.items()},
        "passes": comparison.passes(chosen),
        "correlation": comparison.propagation(scene, scores),
        "with more": comparison.loss_with(scene, scores, TIMES[-1] * scene.landmarks),
        "rising": comparison.rising(scene, scores, tuple(times * scene.landmarks for times in TIMES)),
    }
