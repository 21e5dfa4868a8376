"""Pretrained models (full mode): sentiment by a sentence encoder, and tweets by SmolLM2-135M."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import all_threads, threads
from thrifty.data.influence.evidence import comparison, models, workloads
from thrifty.data.influence.evidence.byte_run import differences, interval
from thrifty.data.influence.evidence.comparison import CONTENDERS, EXACT, OURS, RANDOM, RDS, Scene

#: Seeds below which an interval of the mean says nothing.
FEWEST = 3


def show_encoder(ctx: Context, evidence: Evidence) -> None:
    """Four seeds of the encoder."""
    runs = _runs(ctx, evidence, "encoder", 4, partial(workloads.encoder_scene, data=ctx.data))
    if not runs:
        return
    ours, rds, random = (runs[name] for name in (OURS, RDS, RANDOM))
    evidence.measured("encoder-order", Measurement.of(differences(ours, random), "nats"))
    if len(ours) < FEWEST:
        evidence.cannot_show("encoder-vs-rds", f"the budget was enough for {len(ours)} seeds, too few for an interval")
        return
    low, high = interval(differences(ours, rds))
    reason = f"95 % interval [{low:.4f}, {high:.4f}]"
    evidence.measured("encoder-vs-rds", Measurement.of(low, "nats"), reason=reason)


def show_smollm2(ctx: Context, evidence: Evidence) -> None:
    """One seed of SmolLM2."""
    runs = _runs(ctx, evidence, "smollm2", 1, partial(workloads.smollm2_scene, data=ctx.data))
    if not runs:
        return
    evidence.measured("smollm2-order", Measurement.of(differences(runs[OURS], runs[RANDOM]), "nats"))
    evidence.measured("smollm2-vs-rds", Measurement.of(differences(runs[OURS], runs[RDS]), "nats"))


def _runs(
    ctx: Context, evidence: Evidence, name: str, count: int, make: Callable[[int], Scene]
) -> dict[str, list[float]]:
    """Run seeds while the budget lasts, add the rows, and return the losses."""
    claims = [f"{name}-order", f"{name}-vs-rds"]
    found: list[dict[str, Any]] = []
    longest = 0.0
    for done, seed in enumerate(ctx.seeds(quick=1, full=count)):
        if found and ctx.remaining() < 1.2 * longest:
            break
        ctx.progress(done, count, f"{name}: selecting and fine-tuning")
        before = ctx.remaining()
        try:
            with threads(all_threads()):
                found.append(ctx.once(name, seed, partial(_one, make, seed)))
        except (UnavailableError, ImportError) as error:
            for claim in claims:
                evidence.cannot_show(claim, str(error))
            return {}
        longest = max(longest, before - ctx.remaining())
    for contender in CONTENDERS:
        metrics = {
            "test loss": Measurement.of([run["loss"][contender] for run in found], "nats"),
            "overlap with exact": Measurement.of([run["overlap"][contender] for run in found], "share"),
            "backward passes": Measurement.of([run["passes"].get(contender, 0) for run in found], "examples"),
        }
        if contender == OURS:
            metrics["propagation"] = Measurement.of([run["correlation"][0] for run in found], "correlation")
        if contender == RDS:
            metrics["propagation"] = Measurement.of([run["correlation"][1] for run in found], "correlation")
        evidence.row(
            contender, metrics, workload=f"{name}, {found[0]['pool']} sentences, {found[0]['landmarks']} landmarks"
        )
    return {contender: [run["loss"][contender] for run in found] for contender in CONTENDERS}


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
        "passes": {
            name: result.report["backward_passes"]
            for name, result in chosen.items()
            if "backward_passes" in result.report
        },
        "correlation": comparison.propagation(scene, scores),
    }
