"""Accuracy of every way to federate, on sentences and with a language model; arms that may go come last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.leff.evidence import federations, pool, pretrained
from thrifty.training.leff.evidence.contenders import (
    BITFIT,
    CENTRAL,
    FEDAVG,
    FEDLORA,
    FEDPROX,
    FEDRA,
    FLEXLORA,
    FLORA,
    HEAD,
    HETLORA,
    LOCAL,
    OURS,
    SLORA,
    VARIANTS,
)

MB = 1e6
EVEN, SKEWED = 1.0, 0.05
#: What claims compare; then what never goes; then the rest, with one seed.
MAIN: dict[float, tuple[str, ...]] = {EVEN: (FEDAVG, OURS, HEAD), SKEWED: (FEDAVG, OURS, HEAD, FEDLORA)}
BESIDE = (FEDLORA, FEDRA)
ABLATIONS = tuple(name for name in VARIANTS if name != OURS)
LAST = (BITFIT, LOCAL, CENTRAL, FEDPROX, SLORA, FLEXLORA, FLORA, HETLORA)
LANGUAGE = (OURS, FEDAVG, FEDLORA)
#: Seconds that must be left to begin another arm.
AN_ARM = 60
Found = dict[str, list[Any]]


def one(workload: str, name: str, seed: int, data: str | None) -> dict[str, Any]:
    """Make one run: of sentences, where the workload is an alpha, or of the language model."""
    if workload == "lm":
        return pretrained.run(name, seed)
    return federations.run(name, float(workload), seed, data=None if data is None else Path(data))


def show(ctx: Context, evidence: Evidence, gated: dict[str, Measurement]) -> None:
    """Run all arms while the budget lasts.

    Args:
        ctx: Of the run.
        evidence: Where rows and findings go.
        gated: Claims that hold only if accuracy does, and what was measured for them.
    """
    seeds, data = ctx.seeds(quick=1, full=3), None if ctx.data is None else str(ctx.data)
    main = {
        alpha: [(f"{alpha}", name, seed, data) for name in names for seed in seeds] for alpha, names in MAIN.items()
    }
    beside, single = ([(f"{EVEN}", name, ctx.seed, data) for name in names] for names in (BESIDE, (*ABLATIONS, *LAST)))
    language = [("lm", name, ctx.seed, None) for name in LANGUAGE]
    with pool.ahead(one, [*main[EVEN], *beside, *language, *main[SKEWED], *single], ctx.deadline) as run:

        def arms(names: Sequence[str], alpha: float, some: Sequence[int] = seeds) -> Found:
            return _sentences(ctx, evidence, names, alpha, some, lambda *piece: run(f"{alpha}", *piece, data))

        even = arms(MAIN[EVEN], EVEN)
        if OURS in even and FEDAVG in even:
            for claim, measured in gated.items():
                evidence.measured(claim, measured, gate=(_of(even, OURS), _of(even, FEDAVG)))
        _compare(evidence, "accuracy", even)
        arms(BESIDE, EVEN, seeds[:1])
        ctx.progress(5, 6, "SmolLM2")
        _language_model(ctx, evidence, lambda *piece: run("lm", *piece, None))
        skewed = arms(MAIN[SKEWED], SKEWED)
        _compare(evidence, "accuracy-skewed", skewed)
        if OURS in skewed and FEDLORA in skewed:
            above = _points(skewed, OURS, FEDLORA)
            low, high = above.interval()
            evidence.measured("accuracy-skewed-fedlora", above, reason=f"95 % interval {low:.1f} to {high:.1f}")
        for name in (*ABLATIONS, *LAST):
            if ctx.remaining() < AN_ARM:
                evidence.row(name, {}, workload=_workload(EVEN), error="the budget was used up")
            else:
                arms((name,), EVEN, seeds[:1])


def _compare(evidence: Evidence, claim: str, found: Found) -> None:
    if OURS in found and FEDAVG in found:
        evidence.measured(claim, _points(found, OURS, FEDAVG))
    if OURS in found and HEAD in found:
        evidence.measured(f"{claim}-over-head", _points(found, OURS, HEAD))


def _workload(alpha: float) -> str:
    return f"sentences, alpha {alpha:g}"


def _sentences(
    ctx: Context, evidence: Evidence, names: Sequence[str], alpha: float, seeds: Sequence[int],
    run: Callable[[str, int], dict[str, Any]],
) -> Found:  # fmt: skip
    """Federate each contender with each seed, and add its row."""
    found = ctx.runs(evidence, names, seeds, run, workload=_workload(alpha))
    for name, runs in found.items():
        evidence.row(
            name,
            {
                "accuracy": Measurement.of([r["accuracy"] for r in runs], "%"),
                "loss": Measurement.of([r["loss"] for r in runs], "nats"),
                "up a round": Measurement.of([r["up"][-1] / MB for r in runs], "MB"),
                "down a round": Measurement.of([r["down"][-1] / MB for r in runs], "MB"),
                "peak of a weak client": Measurement.of([r["memory"] / MB for r in runs], "MB"),
            },
            workload=_workload(alpha),
        )
    if OURS in found and alpha == EVEN:
        layers = [str(layer + 1) for layer in range(6)]
        bars = {name: (layers, runs[0]["coverage"]) for name, runs in found.items() if "coverage" in runs[0]}
        evidence.curves("How often a layer was averaged, over updates", "layer", "share", bars, kind="bar")
    return found


def _language_model(ctx: Context, evidence: Evidence, run: Callable[[str, int], dict[str, Any]]) -> None:
    with evidence.needs("language-model"):
        workload = "SmolLM2, four domains"
        found = ctx.runs(evidence, LANGUAGE, [ctx.seed], run, workload=workload)
        for name, runs in found.items():
            metrics = {
                "loss before": Measurement.of([r["before"] for r in runs], "nats"),
                "loss": Measurement.of([r["loss"] for r in runs], "nats"),
                "up a round": Measurement.of([r["up"] / MB for r in runs], "MB"),
                "peak of a weak client": Measurement.of([r["memory"] / MB for r in runs], "MB"),
            }
            evidence.row(name, metrics, workload=workload)
        if OURS in found and FEDAVG in found:
            ours, theirs = (Measurement.of([r["loss"] for r in found[name]], "nats") for name in (OURS, FEDAVG))
            evidence.measured("language-model", ours.minus(theirs))


def _of(found: Found, name: str) -> list[float]:
    return [r["accuracy"] for r in found[name]]


def _points(found: Found, ours: str, theirs: str) -> Measurement:
    return Measurement.of(_of(found, ours), "points").minus(Measurement.of(_of(found, theirs), "points"))
