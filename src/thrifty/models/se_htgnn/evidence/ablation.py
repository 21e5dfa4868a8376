"""Reported: what the language prior, and the attention itself, change on the flights."""

from __future__ import annotations

import statistics
from typing import Any

from torch import Tensor

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import minilm, smollm2
from thrifty.bench.evidence import Evidence
from thrifty.models.se_htgnn import TypePrompt, build_type_embeddings
from thrifty.models.se_htgnn.evidence import flights
from thrifty.models.se_htgnn.evidence.contenders import WINDOW, train

LABEL = "New York's flights, priors and attention"
DESCRIPTIONS = {
    "airport": "a place where planes take off and land; its weather and traffic delay flights.",
    "carrier": "an airline, which flies between airports with planes and crews of its own.",
}
EPOCHS, PATIENCE = 12, 6


def show(ctx: Context, evidence: Evidence) -> None:
    """Train under each prior and without attention, five seeds each."""
    settings: dict[str, dict[str, Any]] = {
        "prior uniform": {"prior": "uniform"}, "prior zero": {"prior": "zero"}, "prior random": {"prior": "random"},
        "no attention": {"attention": "uniform"},
    }  # fmt: skip
    for name, place in (("prior MiniLM", minilm.folder), ("prior SmolLM2", smollm2.gguf_file)):
        try:
            settings = {name: {"type_embeddings": vectors(str(place()))}, **settings}
        except (UnavailableError, ImportError) as error:
            evidence.row(name, {}, workload=LABEL, error=str(error))
    found = {}
    for done, (name, options) in enumerate(settings.items()):
        ctx.progress(done, len(settings), name)

        def one(seed: int, options: dict[str, Any] = options) -> float:
            return train("SE-HTGNN", flights.graph(), flights.TARGET, flights.split(WINDOW), seed, epochs=EPOCHS,
                         patience=PATIENCE, device=ctx.device, **options)["mae"]  # fmt: skip

        runs = ctx.every_seed(evidence, name, ctx.seeds(quick=2, full=5), one, workload=LABEL)
        if runs is not None:
            found[name] = Measurement.of(runs, "min")
            evidence.row(name, {"MAE": found[name]}, workload=LABEL)
    if {"prior MiniLM", "prior uniform"} <= set(found):
        means = ", ".join(f"{name} {statistics.mean(m.values):.2f}" for name, m in found.items())
        evidence.measured("prior-ablation", found["prior MiniLM"].minus(found["prior uniform"]), reason=means)


def vectors(place: str) -> dict[str, Tensor]:
    """Return a language model's vectors of the node types."""
    prompts = TypePrompt(flights.graph().metadata(), "flights between airports, day by day", DESCRIPTIONS).build()
    return build_type_embeddings(prompts, place)
