"""E1 and E2: how near the denominators come to the truth while towers train, and what the towers then know."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from thrifty.bench.claims import Measurement, pooled_deviation
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.training.amorlip.evidence import pictures
from thrifty.training.amorlip.evidence.contenders import CLIP, OURS, RIVALS, VARIANTS
from thrifty.training.amorlip.evidence.training import train
from thrifty.training.amorlip.evidence.tuning import RATES

#: Steps of a run, by the batch.
STEPS = {32: 800, 8: 1200}
QUICK_STEPS, ABLATION_STEPS = 160, 400

Runs = dict[str, list[dict[str, Any]]]


def show(ctx: Context, evidence: Evidence) -> tuple[Sequence[float], Sequence[float]] | None:
    """Train everybody; return the retrieval of ours and of ClipLoss by seed, which gates the time."""
    data = pictures.load()
    with threads(1):  # small towers: a second thread would mostly wait
        runs = {32: _run(ctx, evidence, data, 32, (OURS, CLIP, *RIVALS[1:]) if ctx.full else (OURS, CLIP))}
        if not ctx.full:
            return None  # too short for the claims: the networks have barely seen a second epoch
        _errors(evidence, runs[32], 32)
        runs[8] = _run(ctx, evidence, data, 8, (OURS, CLIP, *RIVALS[1:]))
        _errors(evidence, runs[8], 8)
        _quality(evidence, runs[32], "")
        _quality(evidence, runs[8], "-b8")
        _equivalent(ctx, evidence, data, runs)
        _ablation(ctx, evidence, data)
    return _column(runs[32], OURS, "r1"), _column(runs[32], CLIP, "r1")


def _run(
    ctx: Context,
    evidence: Evidence,
    data: pictures.Workload,
    batch: int,
    names: Sequence[str],
    *,
    steps: int = 0,
    seeds: int = 3,
) -> Runs:
    steps = steps or (STEPS[batch] if ctx.full else QUICK_STEPS)
    workload = f"emoji, batch {batch}, {steps} steps"

    def compute(name: str, seed: int) -> dict[str, Any]:
        lr = RATES[batch if batch in RATES else 32][_family(name)]
        return train(name, lr, data, batch=batch, steps=steps, seed=seed, probe=True, device=ctx.device)

    found = ctx.runs(evidence, names, ctx.seeds(quick=1, full=seeds), compute, workload=workload)
    for name, runs in found.items():
        metrics = {label: Measurement.of([run[key] for run in runs], "%") for key, label in _SHOWN.items()}
        for estimator in runs[0]["errors"]:
            errors = [run["errors"][estimator] for run in runs]
            metrics[f"error of log Z, {estimator}"] = Measurement.of(errors, "nats²")
        if runs[0]["weight"]:
            metrics["largest Σw"] = Measurement.of([run["weight"] for run in runs], "")
        evidence.row(name, metrics, workload=workload)
    return found


_SHOWN = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "zero_shot": "zero-shot"}


def _family(name: str) -> str:
    """Variants of ours train at its rate."""
    return OURS if name in VARIANTS else name


def _column(runs: Mapping[str, Sequence[Mapping[str, Any]]], name: str, key: str) -> list[float]:
    return [float(run[key]) for run in runs[name]]


def _measure(runs: Mapping[str, Sequence[Mapping[str, Any]]], name: str, key: str, unit: str = "points") -> Measurement:
    return Measurement.of(_column(runs, name, key), unit)


def _errors(evidence: Evidence, runs: Runs, batch: int) -> None:
    if OURS in runs:
        used, own = (
            Measurement.of([run["errors"][name] for run in runs[OURS]], "nats²") for name in ("lambda", "batch")
        )
        evidence.measured(f"log-partition-error-b{batch}", used.over(own))


def _quality(evidence: Evidence, runs: Runs, suffix: str) -> None:
    """Ours less ClipLoss, in pooled standard deviations over seeds; in points, and who is best, in the remark."""
    if not {OURS, CLIP} <= set(runs):
        return
    for claim, key in (("retrieval", "r1"), ("zero-shot", "zero_shot")):
        ours, clip = _column(runs, OURS, key), _column(runs, CLIP, key)
        ahead = _measure(runs, OURS, key).minus(_measure(runs, CLIP, key)).mean
        means = {name: statistics.fmean(_column(runs, name, key)) for name in runs}
        shown = ", ".join(f"{name} {mean:.1f}" for name, mean in sorted(means.items(), key=lambda pair: -pair[1]))
        evidence.measured(
            f"{claim}{suffix}",
            Measurement.of(ahead / max(pooled_deviation(ours, clip), 1e-9), "sd"),
            reason=f"{ahead:+.1f} points; means in %: {shown}",
        )


def _equivalent(ctx: Context, evidence: Evidence, data: pictures.Workload, runs: Mapping[int, Runs]) -> None:
    """The smallest batch at which ours is not below ClipLoss at four times the batch, for equal samples."""
    found = []
    for batch, steps in STEPS.items():
        rival = _run(ctx, evidence, data, 4 * batch, (CLIP,), steps=steps // 4)
        if OURS in runs[batch] and CLIP in rival:
            gap = _measure(runs[batch], OURS, "r1").minus(_measure(rival, CLIP, "r1"))
            found.append((batch, gap.mean))
    matched = [batch for batch, gap in found if gap >= 0]
    said = "; ".join(f"{gap:+.1f} points at {batch} against {4 * batch}, equal samples" for batch, gap in found)
    evidence.measured(
        "batch-equivalent",
        Measurement.of(min(matched) if matched else 4 * max(STEPS), "pairs"),
        reason=said if matched else f"{said}: it matches at neither, so that the larger batch stands here",
    )


def _ablation(ctx: Context, evidence: Evidence, data: pictures.Workload) -> None:
    """Other denominators, objectives and networks, one seed each: what bounds the weights, and what it is worth."""
    if ctx.late(evidence, "stability-ablation", needs=80):
        return
    runs = _run(ctx, evidence, data, 32, (OURS, *VARIANTS), steps=ABLATION_STEPS, seeds=1)
    target = "AmorLIP, target"
    if {target, OURS} <= set(runs):
        evidence.measured(
            "stability-ablation",
            _measure(runs, target, "weight", "").over(_measure(runs, OURS, "weight", "")),
            reason="R@1: " + ", ".join(f"{name} {found[0]['r1']:.1f}" for name, found in runs.items()),
        )
