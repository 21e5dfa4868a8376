"""Why it works: stand-ins give better gradients than layers left out; importance decides only where it is rescaled."""

from __future__ import annotations

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.leff.client_model import compress_context
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.diagnostics import gradient_gap
from thrifty.training.leff.evidence import sentences
from thrifty.training.leff.evidence.contenders import OURS, VARIANTS
from thrifty.training.leff.importance import layer_importance
from thrifty.training.leff.sampling import block_probabilities, coverage, effective_entropy
from thrifty.training.leff.stand_ins import StandIns

DROPPED = next(name for name in VARIANTS if "dropped" in name)


def contexts(ctx: Context, evidence: Evidence) -> None:
    """Compare the error of a block's gradient under distilled and under dropped layers."""
    model = sentences.make_model(ctx.seed)
    proxy = sentences.proxy_batches(ctx.data, 20 if ctx.full else 6)
    held_out = sentences.labelled_batches(sentences.load(ctx.data)["test"], 4)
    config = LeffConfig(distill_steps=100 if ctx.full else 48)
    stand_ins, ours, theirs = StandIns(config), [], []
    for start in (0, 2, 5) if ctx.full else (2,):
        distilled = compress_context(model, start, 1, 0.5, proxy, stand_ins, config=config)
        dropped = compress_context(model, start, 1, 0.5, config=config.with_overrides(compression="drop"))
        ours.append(gradient_gap(model, distilled, held_out).relative)
        theirs.append(gradient_gap(model, dropped, held_out).relative)
    for name, values in ((OURS, ours), (DROPPED, theirs)):
        evidence.row(name, {"gradient error": Measurement.of(values, "of its square")}, workload="a block's gradient")
    evidence.measured("distilled-context", Measurement.of(ours, "").over(Measurement.of(theirs, "")))


def samplers(ctx: Context, evidence: Evidence) -> None:
    """Show what the literal and the rescaled softmax make of measured importances."""
    model = sentences.make_model(ctx.seed)
    scores = layer_importance(
        model, sentences.labelled_batches(sentences.load(ctx.data)["train"], 2 if ctx.full else 1)
    )
    found = {
        "literal softmax": block_probabilities(scores, 1, "none", 1.0),
        "rescaled softmax (default)": block_probabilities(scores, 1),
        "proportional": block_probabilities(scores, 1, sampler="proportional"),
        "random": block_probabilities(scores, 1, sampler="random"),
    }
    bars = {}
    for name, chances in found.items():
        ratio = float(chances.max() / chances.min())
        evidence.row(
            name,
            {
                "entropy": Measurement.of(effective_entropy(chances), "of uniform"),
                "likeliest over unlikeliest": Measurement.of(ratio, "ratio"),
            },
            workload="blocks of one layer of MiniLM",
        )
        bars[name] = ([str(layer + 1) for layer in range(6)], coverage(chances, 1, 6).tolist())
    literal, ours = (found[name] for name in ("literal softmax", "rescaled softmax (default)"))
    evidence.curves("How often each layer is trained", "layer", "probability", bars, kind="bar")
    evidence.measured(
        "sampler-entropy",
        Measurement.of(effective_entropy(ours), "of uniform"),
        reason=f"the literal softmax has {effective_entropy(literal):.6f}",
    )
