"""E5: a small model trained here on two kinds of proof, and a real one that a package carries."""

from __future__ import annotations

import tempfile
from pathlib import Path

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.evaluation.reasoning.evidence.training import ARMS, train
from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.report import evaluate
from thrifty.evaluation.reasoning.runners.models import TransformersModel

#: Problems that SmolLM2 is asked of each condition, worked examples before each, and tokens of a proof.
ASKED, EXAMPLES, TOKENS = 8, 1, 100
EASIEST = {"base": ("none", "none", "none"), "one irrelevant axiom": ("disconnected", "simple", "no_overlap")}


def show_trained(ctx: Context, evidence: Evidence) -> None:
    """Train both arms and compare what they write about problems that neither has seen."""
    if ctx.late(evidence, "trained-lm", needs=240.0):
        return
    workload = "comparisons, trained here"
    seeds = ctx.seeds(quick=1, full=1)
    with threads(1):  # so small a model gains nothing from more, and loses where cores are shared
        found = ctx.runs(evidence, ARMS, seeds, lambda arm, seed: train(arm, seed, ctx.device), workload=workload)
    if len(found) < len(ARMS):
        return
    for arm, runs in found.items():
        units = {"wrong": "share", "efficiency": "efficiency", "precision": "precision", "loss": "nats a token"}
        metrics = {name: Measurement.of([run[name] for run in runs], unit) for name, unit in units.items()}
        evidence.row(arm, metrics, workload=workload)
    ours, theirs = (found[arm] for arm in ARMS)
    gained = Measurement.of([a["precision"] - b["precision"] for a, b in zip(ours, theirs, strict=True)], "precision")
    gate = ([run["wrong"] for run in ours], [run["wrong"] for run in theirs])
    evidence.measured("trained-lm", gained, gate=gate)


def show_carried(ctx: Context, evidence: Evidence) -> None:
    """Ask SmolLM2 the easiest problems, with and without a distractor."""
    if ctx.late(evidence, "lm-decline", needs=90.0):
        return
    with evidence.needs("lm-decline"):
        from thrifty.bench.data import smollm2

        model = TransformersModel(*smollm2.load(), name="SmolLM2-135M-Instruct", batch=ASKED)
        model.model.to(ctx.device)
        right = []
        for name, cell in EASIEST.items():
            problems = generate(ASKED, ctx.seed + 11, *cell, depth=(1,))
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "completions.jsonl"
                report = evaluate(problems, model, path, k=EXAMPLES, max_tokens=TOKENS)
            (row,) = report.cells()
            right.append(row["accuracy"])
            units = {"accuracy": "share", "precision": "precision", "coverage": "share"}
            metrics = {key: Measurement.of(row[key], unit) for key, unit in units.items() if row[key] == row[key]}
            evidence.row("SmolLM2", metrics, workload=name)
        evidence.measured("lm-decline", Measurement.of(right[0] - right[1], "share"), reason=f"{ASKED} problems each")
