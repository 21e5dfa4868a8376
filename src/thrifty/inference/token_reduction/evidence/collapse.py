"""Experiment C: rank and frequency of the tokens behind every block, without training."""

from __future__ import annotations

from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.token_reduction.analyze import Analysis, analyze_tokens
from thrifty.inference.token_reduction.evidence.images import backbone

NAMES = {"base": "the model as it is", "frequency": "ours", "tome": "ToMe", "evit": "EViT", "pool": "pooling"}


def show(ctx: Context, evidence: Evidence, x: Tensor) -> None:
    """Analyse the ViT-S/14 as it is and under every method at keep 0.7."""
    with threads(1):
        found = analyze_tokens(backbone(ctx), x, tuple(NAMES), keep=0.7)
    rows(evidence, found, "ViT-S/14 without training, last layer")
    last = {name: found.column(name, "hf_ratio")[-1] for name in NAMES}
    gap = last["frequency"] - max(last[name] for name in ("tome", "evit", "pool"))
    evidence.measured("collapse-without-training", Measurement.of(gap, "share"))


def rows(evidence: Evidence, found: Analysis, workload: str) -> None:
    """Add a row a method with its metrics at the last layer, and the curves over layers."""
    units = {"hf_ratio": "share", "log_amplitude": "log", "token_cosine": "cosine", "effective_rank": "rank"}
    for method, label in NAMES.items():
        metrics = {
            name.replace("_", " "): Measurement.of(found.column(method, name)[-1], unit) for name, unit in units.items()
        }
        evidence.row(label, metrics, workload=workload)
    for name in ("hf_ratio", "log_amplitude"):
        columns = {label: found.column(method, name) for method, label in NAMES.items()}
        title = f"{name.replace('_', ' ')} by layer ({workload.split(',', maxsplit=1)[0]})"
        points = {label: (range(1, len(column) + 1), column) for label, column in columns.items()}
        evidence.curves(title, "layer", name.replace("_", " "), points)
