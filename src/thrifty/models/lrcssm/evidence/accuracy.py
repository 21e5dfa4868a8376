"""Accuracy on real series: everyone in the same block, over several seeds; and what gates the claims about time."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from thrifty.bench import isolated
from thrifty.bench.claims import Measurement, pooled_deviation
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.lrcssm.evidence import forecasting
from thrifty.models.lrcssm.evidence.contenders import RATES, RECURRENT
from thrifty.models.lrcssm.evidence.training import EPOCHS, STRIDE, accuracy, shared, splits

QUICK, QUICK_SETS = ("LrcSSM", "nn.GRU", "LRU"), {"ItalyPowerDemand": 80}

#: Trained on two sets only, because they are slow: D × D synapses a step, and a loop over time in Python. They go last,
#: and go without if so few seconds are left.
SLOW = {"LRC, dense": ("ItalyPowerDemand", "JapaneseVowels"), "Mamba": ("BasicMotions", "ItalyPowerDemand")}
ROOM = {"LRC, dense": 360.0, "Mamba": 360.0}

#: Longer sets, for those contenders only that a claim needs, and their epochs.
LONG, LONG_SETS = QUICK, {"OSULeaf": 20, "ACSF1": 30, "PigCVP": 30}

#: Sets of the paper's own benchmark, where the folder of extra data holds them, and their epochs.
SHARED_SETS = {"SelfRegulationSCP1_467": 20, "EthanolConcentration_448": 20}

Found = dict[str, list[list[float]]]  # contender to set to seed
Gates = dict[str, tuple[list[float], list[float]]]


def show(ctx: Context, evidence: Evidence) -> Gates:
    """Train all, record claims about quality, and return the gates of the claims about time."""
    sets = EPOCHS if ctx.full else QUICK_SETS
    found = _train(ctx, evidence, tuple(RATES) if ctx.full else QUICK, sets)
    if ctx.full:
        _measure(evidence, found)
        _transform(ctx, evidence, found, list(sets))
        if not ctx.late(evidence, needs=280):
            _train(ctx, evidence, LONG, LONG_SETS)
        if not ctx.late(evidence, "forecasting", needs=200):
            forecasting.show(ctx, evidence)
        _shared(ctx, evidence)
    gates: Gates = {}
    for rival in ("nn.GRU", "LRU"):
        if {"LrcSSM", rival} <= set(found):
            gates[rival] = (over_sets(found["LrcSSM"]), over_sets(found[rival]))
    return gates


def over_sets(accuracies: list[list[float]]) -> list[float]:
    """Return the mean over sets, a seed."""
    return [statistics.mean(of_seed) for of_seed in zip(*accuracies, strict=True)]


def _train(ctx: Context, evidence: Evidence, names: tuple[str, ...], sets: dict[str, int]) -> Found:
    found = {}
    for done, name in enumerate(names):
        ctx.progress(done, len(names), f"{name} on {', '.join(sets)}")
        kinds = {kind: sets[kind] for kind in SLOW.get(name, sets)}
        if ctx.remaining() < ROOM.get(name, 0.0):
            evidence.row(name, {}, workload="accuracy", error="no time was left")
            continue
        result = ctx.attempt(evidence, name, _all_sets, ctx, name, kinds, workload="accuracy")
        if result is None:
            continue
        found[name] = result
        for (kind, epochs), values in zip(kinds.items(), result, strict=True):
            evidence.row(name, {"accuracy": Measurement.of(values, "%")}, workload=_label(kind, epochs))
    return found


def _all_sets(ctx: Context, name: str, sets: dict[str, int]) -> list[list[float]]:
    seeds = ctx.seeds(quick=2, full=3)
    return [[ctx.once(f"{name}, {kind}", seed, _one, name, kind, seed, epochs) for seed in seeds]
            for kind, epochs in sets.items()]  # fmt: skip


def _one(name: str, kind: str, seed: int, epochs: int) -> float:
    return accuracy(name, splits(kind), RATES[name], seed, epochs)


def _one_shared(name: str, kind: str, seed: int, folder: str) -> float:
    return accuracy(name, shared(kind, seed, folder), RATES[name], seed, SHARED_SETS[kind])


def _label(kind: str, epochs: int) -> str:
    thinned = f", 1 step in {STRIDE[kind]}" if kind in STRIDE else ""
    return f"{kind}{thinned}, {epochs} epochs"


def _measure(evidence: Evidence, found: Found) -> None:
    ours = over_sets(found["LrcSSM"])
    recurrent = {name: over_sets(found[name]) for name in RECURRENT if name in found}
    best = max(recurrent, key=lambda name: statistics.mean(recurrent[name]))
    evidence.measured("accuracy", _gap(ours, recurrent[best]), reason=f"the best recurrent rival is {best}")
    if "LRC, dense" in found:
        same = [found["LrcSSM"][list(EPOCHS).index(kind)] for kind in SLOW["LRC, dense"]]
        evidence.measured("accuracy-dense", _gap(over_sets(same), over_sets(found["LRC, dense"])),
                          reason=f"on {', '.join(SLOW['LRC, dense'])}")  # fmt: skip
    if "LrcSSM, certified" in found:
        certified = Measurement.of(over_sets(found["LrcSSM, certified"]), "points")
        evidence.measured("accuracy-certified", certified.minus(Measurement.of(ours, "points")))


def _gap(ours: list[float], theirs: list[float]) -> Measurement:
    gap = statistics.mean(ours) - statistics.mean(theirs)
    sd = pooled_deviation(ours, theirs)
    return Measurement.of(gap / sd if sd > 0 else (0.0 if gap == 0 else 1e3 * gap), "sd")


def _transform(ctx: Context, evidence: Evidence, found: Found, sets: list[str]) -> None:
    """Aeon's MultiRocketHydra, unpacked from its package and run in a process of its own."""
    target = "thrifty.models.lrcssm.evidence.transform:accuracies"
    ctx.progress(0, 1, "MultiRocketHydra")
    scores = ctx.attempt(evidence, "MultiRocketHydra", ctx.once, "MultiRocketHydra", ctx.seed, _call, target, sets)
    if scores is None:
        return
    for kind, value in scores.items():
        evidence.row("MultiRocketHydra", {"accuracy": Measurement.of(value, "%")}, workload=_label(kind, EPOCHS[kind]))
    gap = statistics.mean(over_sets(found["LrcSSM"])) - statistics.mean(scores.values())
    evidence.measured("vs-transform", Measurement.of(gap, "points"))


def _call(target: str, sets: list[str]) -> dict[str, float]:
    found: dict[str, float] = isolated.call(target, sets, timeout=300)
    return found


def _shared(ctx: Context, evidence: Evidence) -> None:
    """Two sets of the paper's own benchmark, where the folder of extra data holds them."""
    folder = os.environ.get("THRIFTY_DATA")
    for kind, epochs in SHARED_SETS.items():
        if not folder or not Path(folder, f"{kind}.npz").exists():
            continue
        for name in ("LrcSSM", "LRU"):
            label = f"{kind}, 1 step in 4, {epochs} epochs"
            if ctx.remaining() < 150:
                evidence.row(name, {}, workload=label, error="no time was left")
                continue
            ctx.progress(0, 1, f"{name} on {kind}")
            seeds = ctx.seeds(quick=1, full=2)
            values = [ctx.once(f"{name}, {kind}", seed, _one_shared, name, kind, seed, folder) for seed in seeds]
            evidence.row(name, {"accuracy": Measurement.of(values, "%")}, workload=label)
