"""Peak memory of a step: layers (E2), head (E1), and its growth with the sequence (E5)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.streambp.evidence.batches import make_batch
from thrifty.training.streambp.evidence.contenders import (
    CHECKPOINT,
    E1,
    E2,
    LAYERS_ONLY,
    MST,
    NATIVE,
    NONE,
    OURS,
    SAME_HEAD,
    TILED,
    TRL,
    gradient_error,
    gradients,
    make_model,
    peak,
)  # fmt: skip

LAYER_CHUNK, HEAD_LAYER_CHUNK, LENGTH = 512, 256, 4096
PADDED, UNPADDED = (f"E2: {LENGTH} tokens, {kind}" for kind in ("padded", "unpadded"))
Peaks = dict[str, Measurement]


def show(ctx: Context, evidence: Evidence, text: Tensor) -> tuple[float, Peaks]:
    """Measure the peaks; return the float32 gradient error that gates cost claims, and the peaks of E2 padded."""
    model = make_model(E2, ctx.seed, ctx.device)
    error, layers = _layers(ctx, evidence, text, model)
    _head(ctx, evidence, text, error)
    _growth(ctx, evidence, text, model, error, layers[UNPADDED])
    return error, layers[PADDED]


def _layers(ctx: Context, evidence: Evidence, text: Tensor, model: object) -> tuple[float, dict[str, Peaks]]:
    """Measure E2 with and without padding; return the gradient error, and the peaks by workload."""
    errors, peaks = [], {}
    for place, workload in enumerate((UNPADDED, PADDED)):
        padded = workload == PADDED
        kind = "padded" if padded else "unpadded"
        ctx.progress(place, 4, workload)
        batch = make_batch(text, 256, LENGTH, padded=padded, device=ctx.device)
        short = make_batch(text, 256, 512, padded=padded, device=ctx.device)
        errors.append(gradient_error(gradients(OURS, model, short, 100), gradients(CHECKPOINT, model, short)))
        contenders = [SAME_HEAD, OURS] + ([NONE, CHECKPOINT, TRL, MST, TILED] if ctx.full else [])
        found: Peaks = {}
        for name in contenders:
            chunk = LAYER_CHUNK if name == OURS else "auto"
            value = ctx.attempt(evidence, name, peak, name, model, batch, chunk, ctx.device, workload=workload)
            if value is not None:
                found[name] = Measurement.of(value, "MiB")
                evidence.row(name, {"peak": found[name]}, workload=workload)
        evidence.measured(f"peak-vs-checkpointing-{kind}", found[OURS].over(found[SAME_HEAD]), gate=errors[-1])
        peaks[workload] = found
    return max(errors), peaks


def _head(ctx: Context, evidence: Evidence, text: Tensor, error: float) -> None:
    workload = "E1: 2048 tokens, vocabulary 16384"
    ctx.progress(2, 4, workload)
    model = make_model(E1, ctx.seed, ctx.device)
    batch = make_batch(text, 16384, 2048, device=ctx.device)
    found: Peaks = {}
    for name in [NATIVE, OURS] + ([LAYERS_ONLY, CHECKPOINT, TRL, MST, TILED, NONE] if ctx.full else []):
        chunk = HEAD_LAYER_CHUNK if name in {OURS, LAYERS_ONLY} else "auto"
        value = ctx.attempt(evidence, name, peak, name, model, batch, chunk, ctx.device, workload=workload)
        if value is not None:
            found[name] = Measurement.of(value, "MiB")
            evidence.row(name, {"peak": found[name]}, workload=workload)
    evidence.measured("head-peak", found[OURS].over(found[NATIVE]), gate=error)


def _growth(ctx: Context, evidence: Evidence, text: Tensor, model: object, error: float, layers: Peaks) -> None:
    """Fit peak = a + b T at a fixed chunk, and hold the slope against what must grow."""
    ctx.progress(3, 4, "growth with the sequence")

    def at(name: str, length: int) -> float:
        if length == LENGTH and name in layers:
            return layers[name].median
        batch = make_batch(text, 256, length, device=ctx.device)
        return peak(name, model, batch, LAYER_CHUNK if name == OURS else "auto", ctx.device)

    lengths = (2048, 3072, LENGTH, 8192, 16384) if ctx.full else (1024, 2048, LENGTH)
    peaks = [at(OURS, length) for length in lengths]
    slope, intercept = np.polyfit(lengths, peaks, 1)
    fitted = slope * np.array(lengths) + intercept
    off = float(np.max(np.abs(fitted / np.array(peaks) - 1)))
    d, kv = E2["hidden_size"], E2["hidden_size"] // E2["num_attention_heads"] * E2["num_key_value_heads"]
    # The layers' inputs, the gradient of a layer's output and input; keys, values, their sums and one chunk's share.
    theory = ((E2["num_hidden_layers"] + 2) * d + 6 * kv) * 4 / 2**20
    evidence.measured(
        "growth-law",
        Measurement.of(off, "relative"),
        gate=error,
        reason=f"slope {slope * 2**20:.0f} bytes a token; what must grow: {theory * 2**20:.0f}",
    )
    if ctx.full:
        others = [at(SAME_HEAD, length) for length in lengths]
        curves = {OURS: (lengths, peaks), SAME_HEAD: (lengths, others)}
        evidence.curves("Peak of a step over the sequence", "tokens", "MiB", curves)
