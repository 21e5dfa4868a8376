"""Accuracy on real series: everyone in the same block, over several seeds; and what gates the claims about time."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from thrifty.bench import carried
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.lrcssm.evidence import forecasting
from thrifty.models.lrcssm.evidence.contenders import RATES, RECURRENT
from thrifty.models.lrcssm.evidence.training import STRIDE, accuracy, shared, splits

QUICK = ("LrcSSM", "nn.GRU", "LRU")

#: Trained on the two quick sets only: a loop over time in Python.
SLOW = ("Mamba",)
QUICK_SETS = ("BasicMotions", "ItalyPowerDemand")
SMALL_SETS = ("BasicMotions", "ItalyPowerDemand", "JapaneseVowels", "GunPoint")

#: Read at every second, fourth or eighth step, by those contenders only that a claim needs.
LONG_SETS = ("OSULeaf", "ACSF1", "PigCVP")
LONG = ("LrcSSM", "nn.GRU", "LRU")
EPOCHS, LONG_EPOCHS = {"quick": 15, "full": 30}, 20

Found = dict[str, list[list[float]]]  # contender to set to seed
Gates = dict[str, tuple[list[float], list[float]]]


def show(ctx: Context, evidence: Evidence) -> Gates:
    """Train all, record claims about quality, and return the gates of the claims about time."""
    sets = SMALL_SETS if ctx.full else QUICK_SETS
    found = _train(ctx, evidence, tuple(RATES) if ctx.full else QUICK, sets, EPOCHS[ctx.mode])
    if ctx.full:
        _measure(evidence, found)
        _transform(ctx, evidence, found, sets)
        if ctx.remaining() > 400:
            _train(ctx, evidence, LONG, LONG_SETS, LONG_EPOCHS)
        if ctx.remaining() > 240:
            forecasting.show(ctx, evidence)
        _shared(ctx, evidence)
    gates: Gates = {}
    for rival in ("nn.GRU", "LRU"):
        if {"LrcSSM", rival} <= set(found):
            ours, theirs = over_sets(found["LrcSSM"]), over_sets(found[rival])
            gates[rival] = ([statistics.mean(ours)], [statistics.mean(theirs) - deviation(ours, theirs)])
    return gates


def over_sets(accuracies: list[list[float]]) -> list[float]:
    """Return the mean over sets, a seed."""
    return [statistics.mean(of_seed) for of_seed in zip(*accuracies, strict=True)]


def deviation(ours: list[float], theirs: list[float]) -> float:
    """Return the pooled standard deviation over seeds of two contenders."""
    return float(((statistics.variance(ours) + statistics.variance(theirs)) / 2) ** 0.5)


def _train(ctx: Context, evidence: Evidence, names: tuple[str, ...], sets: tuple[str, ...], epochs: int) -> Found:
    seeds, found = ctx.seeds(quick=2, full=3), {}
    for done, name in enumerate(names):
        ctx.progress(done, len(names), f"{name} on {', '.join(sets)}")

        kinds = QUICK_SETS if name in SLOW else sets

        def all_sets(name: str = name, kinds: tuple[str, ...] = kinds) -> list[list[float]]:
            return [[_once(ctx, name, kind, seed, epochs) for seed in seeds] for kind in kinds]

        result = ctx.attempt(evidence, name, all_sets, workload="accuracy")
        if result is None:
            continue
        found[name] = result
        for kind, values in zip(kinds, result, strict=True):
            thinned = f", every {STRIDE[kind]}th step" if kind in STRIDE else ""
            evidence.row(name, {"accuracy": Measurement.of(values, "%")}, workload=f"{kind}{thinned}, {epochs} epochs")
    return found


def _once(ctx: Context, name: str, kind: str, seed: int, epochs: int) -> float:
    value: float = ctx.once(f"{name}, {kind}", seed, lambda: accuracy(name, splits(kind), RATES[name], seed, epochs))
    return value


def _once_shared(ctx: Context, name: str, kind: str, seed: int, folder: str) -> float:
    value: float = ctx.once(
        f"{name}, {kind}", seed, lambda: accuracy(name, shared(kind, seed, folder), RATES[name], seed, 20)
    )
    return value


def _measure(evidence: Evidence, found: Found) -> None:
    ours = over_sets(found["LrcSSM"])
    recurrent = {name: over_sets(found[name]) for name in RECURRENT if name in found}
    best = max(recurrent, key=lambda name: statistics.mean(recurrent[name]))
    evidence.measured("accuracy", _gap(ours, recurrent[best]), reason=f"the best recurrent rival is {best}")
    if "LRC, dense" in found:
        evidence.measured("accuracy-dense", _gap(ours, over_sets(found["LRC, dense"])))
    if "LrcSSM, certified" in found:
        certified = over_sets(found["LrcSSM, certified"])
        points = [a - b for a, b in zip(certified, ours, strict=True)]
        evidence.measured("accuracy-certified", Measurement.of(points, "points"))


def _gap(ours: list[float], theirs: list[float]) -> Measurement:
    gap = statistics.mean(ours) - statistics.mean(theirs)
    sd = deviation(ours, theirs)
    return Measurement.of(gap / sd if sd > 0 else (0.0 if gap == 0 else 1e3 * gap), "sd")


def _transform(ctx: Context, evidence: Evidence, found: Found, sets: tuple[str, ...]) -> None:
    """Aeon's MultiRocketHydra, unpacked from its package and run in a process of its own."""

    def run() -> dict[str, float]:
        script = Path(__file__).with_name("run_transform.py")
        folder = carried.archive("aeon")
        command = [sys.executable, str(script), str(folder), *sets]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it gave no reason"])[-1])
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result

    ctx.progress(0, 1, "MultiRocketHydra")
    scores = ctx.attempt(evidence, "MultiRocketHydra", lambda: ctx.once("MultiRocketHydra", ctx.seed, run))
    if scores is None:
        evidence.cannot_show("vs-transform", "MultiRocketHydra did not run here; its row says why")
        return
    for kind, value in scores.items():
        evidence.row("MultiRocketHydra", {"accuracy": Measurement.of(value, "%")}, workload=kind)
    gap = statistics.mean(over_sets(found["LrcSSM"])) - statistics.mean(scores.values())
    evidence.measured("vs-transform", Measurement.of(gap, "points"))


def _shared(ctx: Context, evidence: Evidence) -> None:
    """Two sets of the paper's own benchmark, where the folder of extra data holds them."""
    folder = os.environ.get("THRIFTY_DATA")
    for kind in ("SelfRegulationSCP1_467", "EthanolConcentration_448"):
        if not folder or not Path(folder, f"{kind}.npz").exists():
            continue
        for name in ("LrcSSM", "LRU"):
            if ctx.remaining() < 240:
                evidence.row(name, {}, workload=kind, error="no time was left")
                continue
            ctx.progress(0, 1, f"{name} on {kind}")
            values = [_once_shared(ctx, name, kind, seed, folder) for seed in ctx.seeds(quick=1, full=2)]
            label = f"{kind}, every 4th step, 20 epochs"
            evidence.row(name, {"accuracy": Measurement.of(values, "%")}, workload=label)
