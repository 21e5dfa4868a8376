"""Quality at equal steps: the byte model and the digits, every contender at its own tuned rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.training.sumo.evidence import digits, language
from thrifty.training.sumo.evidence.contenders import GRID, RIVALS, SUMO_OPTIONS
from thrifty.training.sumo.evidence.language import Run, to_json

#: Rates on the matrices, from ``tuning.py``: the best of one grid on the validation split, seed 1000.
LANGUAGE_RATES: Mapping[str, float] = {
    "SUMO": 3e-3,
    "SUMO, no residual": 3e-3,
    "SUMO, Fira's residual": 3e-3,
    "SUMO, Newton-Schulz": 3e-3,
    "SUMO, no transport": 3e-3,
    "GaLore": 1e-2,
    "Muon": 1e-2,
    "AdamW": 1e-3,
    "Fira": 3e-3,
    "APOLLO": 3e-3,
    "NorMuon": 3e-2,
    "8-bit AdamW": 1e-3,
}
DIGITS_RATES: Mapping[str, float] = {
    "SUMO": 3e-3,
    "SUMO, no residual": 3e-3,
    "SUMO, Fira's residual": 3e-3,
    "SUMO, Newton-Schulz": 3e-3,
    "SUMO, no transport": 3e-3,
    "GaLore": 3e-2,
    "Muon": 1e-2,
    "AdamW": 3e-3,
    "Fira": 3e-2,
    "APOLLO": 1e-1,
    "NorMuon": 1e-2,
    "8-bit AdamW": 3e-2,
}

QUICK = ("SUMO", "GaLore", "Muon")
FULL = (*SUMO_OPTIONS, *RIVALS)

Runs = dict[str, list[Run]]


@dataclass(frozen=True)
class Workload:
    """A task to train on.

    Args:
        label: For the rows.
        rates: Of the contenders.
        train: (contender, rate, seed) to a run.
        seeds: One run each.
        quick: Who is run in quick mode.
    """

    label: str
    rates: Mapping[str, float]
    train: Callable[[str, float, int], Run]
    seeds: Sequence[int]
    quick: Sequence[str] = QUICK


def show_language(ctx: Context, evidence: Evidence) -> Runs:
    """Train the byte model."""
    text = language.read_text(ctx.data)
    steps = language.FULL_STEPS if ctx.full else language.QUICK_STEPS

    def train(name: str, rate: float, seed: int) -> Run:
        return language.train(
            name, rate, text, steps=steps, seed=seed, held_out="test", device=ctx.device, diagnostics=name == "SUMO"
        )

    label = f"byte model on the standard library's source, {steps} steps, rank {language.RANK}"
    runs = _run(ctx, evidence, Workload(label, LANGUAGE_RATES, train, ctx.seeds(quick=1, full=2)))
    _report_moments(evidence, runs, label)
    _measure_steps(evidence, "loss-vs-galore", runs)
    _measure_full_rank(evidence, runs)
    for claim, other in (
        ("svd-loss-vs-newton-schulz", "SUMO, Newton-Schulz"),
        ("transport-effect", "SUMO, no transport"),
    ):
        if other in runs:
            evidence.measured(claim, _losses(runs, "SUMO").minus(_losses(runs, other)))
    return runs


def show_digits(ctx: Context, evidence: Evidence) -> None:
    """Train on the digits."""

    def train(name: str, rate: float, seed: int) -> Run:
        return digits.train(name, rate, seed=seed, held_out="test")

    label = f"digits, {digits.STEPS} steps, rank {digits.RANK}"
    runs = _run(ctx, evidence, Workload(label, DIGITS_RATES, train, ctx.seeds(quick=1, full=5), QUICK[:2]))
    _measure_steps(evidence, "loss-vs-galore-digits", runs)


def show_rates(ctx: Context, evidence: Evidence) -> None:
    """How many rates of the grid come within 5 % of the best loss: short runs of the byte model."""
    text, steps, shares = language.read_text(ctx.data), language.QUICK_STEPS, {}
    names, workload = ("SUMO", "GaLore", "Muon", "AdamW"), f"byte model, {steps} steps, every rate"

    def losses(name: str, seed: int) -> list[float]:
        options: dict[str, Any] = {"steps": steps, "seed": seed, "held_out": "test", "every": steps}
        return [language.train(name, lr, text, **options).final for lr in GRID]

    for done, name in enumerate(names):
        ctx.progress(done, len(names), f"{name} over the grid of rates")
        with threads(1):
            runs = ctx.every_seed(evidence, name, [ctx.seed], losses, name, workload=workload)
        if runs:
            (found,) = runs
            best = min(loss for loss in found if math.isfinite(loss))
            shares[name] = 100 * sum(loss <= 1.05 * best for loss in found) / len(found)
            metrics = {f"loss at lr {lr:g}": Measurement.of(loss, "nats") for lr, loss in zip(GRID, found, strict=True)}
            share = {"within 5 % of best": Measurement.of(shares[name], "%")}
            evidence.row(name, share | metrics, workload=workload)
    if "SUMO" in shares:
        evidence.measured("lr-robustness", Measurement.of(shares["SUMO"], "%"))


def gates(runs: Runs) -> dict[str, tuple[list[float], list[float]]]:
    """The losses of SUMO and of a rival on the byte model, seed by seed."""
    return {name: (_finals(runs, "SUMO"), _finals(runs, name)) for name in ("GaLore", "Muon") if name in runs}


def _run(ctx: Context, evidence: Evidence, workload: Workload) -> Runs:
    """Train every contender on every seed; a rival that fails costs its own row only."""
    with threads(1):  # small matrices: a second thread would mostly wait
        runs = _train_all(ctx, evidence, workload, FULL if ctx.full else workload.quick)
    evidence.curves(f"Held-out loss: {workload.label}", "step", "nats", {name: _mean(runs[name]) for name in runs})
    return runs


def _train_all(ctx: Context, evidence: Evidence, workload: Workload, names: Sequence[str]) -> Runs:
    compute = partial(_as_json, workload)
    found = ctx.runs(evidence, names, workload.seeds, compute, workload=workload.label)
    runs: Runs = {}
    for name, results in found.items():
        runs[name] = result = [Run(**run) for run in results]
        metrics = {
            "held-out loss": _losses(runs, name),
            "lr": Measurement.of(workload.rates[name], ""),
        }
        if result[0].seconds:
            metrics["optimizer step"] = Measurement.of([run.seconds for run in result], "s", timed=True)
        evidence.row(name, metrics, workload=workload.label)
    return runs


def _mean(found: Sequence[Run]) -> tuple[list[float], np.ndarray]:
    """The curve of a contender, averaged over its seeds."""
    return [step for step, _ in found[0].curve], np.mean([[loss for _, loss in run.curve] for run in found], axis=0)


def _as_json(workload: Workload, name: str, seed: int) -> dict[str, Any]:
    return to_json(workload.train(name, workload.rates[name], seed))


def _finals(runs: Runs, name: str) -> list[float]:
    return [run.final for run in runs[name]]


def _losses(runs: Runs, name: str) -> Measurement:
    return Measurement.of(_finals(runs, name), "nats")


def _measure_steps(evidence: Evidence, claim: str, runs: Runs) -> None:
    """Steps to GaLore's final loss over the steps that GaLore took; a run that never gets there counts double."""
    if not {"SUMO", "GaLore"} <= set(runs):
        return
    shares = []
    for ours, theirs in zip(runs["SUMO"], runs["GaLore"], strict=True):
        steps = ours.steps_to(theirs.final) / theirs.curve[-1][0]
        shares.append(steps if math.isfinite(steps) else 2.0)
    evidence.measured(
        claim,
        Measurement.of(shares, "ratio"),
        gate=(_finals(runs, "SUMO"), _finals(runs, "GaLore")),
        reason="SUMO did not reach it on every seed (counted as 2)" if 2.0 in shares else None,
    )


def _measure_full_rank(evidence: Evidence, runs: Runs) -> None:
    rivals = [_finals(runs, name) for name in ("AdamW", "Muon") if name in runs]
    if rivals:
        best = [min(losses) for losses in zip(*rivals, strict=True)]
        evidence.measured("full-rank-rivals", _losses(runs, "SUMO").minus(Measurement.of(best, "nats")))


def _report_moments(evidence: Evidence, runs: Runs, label: str) -> None:
    """What the moments look like at the end of training: E3(b)."""
    reports = [report for run in runs.get("SUMO", []) for report in run.reports]
    if reports:
        units = {"condition": "", "newton_schulz_error": "ratio", "captured": "ratio", "stable_rank": ""}
        metrics = {
            f"{name.replace('_', ' ')} of moments": Measurement.of([report[name] for report in reports], unit)
            for name, unit in units.items()
        }
        evidence.row("SUMO", metrics, workload=f"moments of all matrices after: {label}")
