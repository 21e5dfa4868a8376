"""Peak memory of a step: layers (E2), head (E1), and its growth with the sequence (E5)."""

from __future__ import annotations

from functools import partial

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence, Plot, Series
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
    make_batch,
    make_model,
    peak,
)  # fmt: skip

LAYER_CHUNK, HEAD_LAYER_CHUNK = 512, 256


def show(ctx: Context, evidence: Evidence) -> float:
    """Measure the peaks; return the gradient error in float32 that gates every cost claim."""
    model = make_model(E2, ctx.seed, ctx.device)
    error = _layers(ctx, evidence, model)
    _head(ctx, evidence, error)
    _growth(ctx, evidence, model, error)
    return error


def _layers(ctx: Context, evidence: Evidence, model: object) -> float:
    errors = []
    for padded in (False, True):
        kind = "padded" if padded else "unpadded"
        workload = f"E2: 4096 tokens, {kind}"
        ctx.progress(int(padded), 4, workload)
        batch = make_batch(256, 4096, padded=padded, device=ctx.device)
        short = make_batch(256, 512, padded=padded, device=ctx.device)
        errors.append(gradient_error(gradients(OURS, model, short, 100), gradients(CHECKPOINT, model, short)))
        contenders = [SAME_HEAD, OURS] + ([NONE, CHECKPOINT, TRL, MST, TILED] if ctx.full else [])
        found = {}
        for name in contenders:
            chunk = LAYER_CHUNK if name == OURS else "auto"
            value = ctx.attempt(evidence, name, partial(peak, name, model, batch, chunk, ctx.device), workload=workload)
            if value is not None:
                found[name] = Measurement.of(value, "MiB")
                evidence.row(name, {"peak": found[name]}, workload=workload)
        evidence.measured(
            f"peak-vs-checkpointing-{kind}", found[OURS].over(found[SAME_HEAD]), gate=([errors[-1]], [0.0])
        )
    return max(errors)


def _head(ctx: Context, evidence: Evidence, error: float) -> None:
    workload = "E1: 2048 tokens, vocabulary 16384"
    ctx.progress(2, 4, workload)
    model = make_model(E1, ctx.seed, ctx.device)
    batch = make_batch(16384, 2048, device=ctx.device)
    found = {}
    for name in [NATIVE, OURS] + ([LAYERS_ONLY, CHECKPOINT, TRL, MST, TILED, NONE] if ctx.full else []):
        chunk = HEAD_LAYER_CHUNK if name in {OURS, LAYERS_ONLY} else "auto"
        value = ctx.attempt(evidence, name, partial(peak, name, model, batch, chunk, ctx.device), workload=workload)
        if value is not None:
            found[name] = Measurement.of(value, "MiB")
            evidence.row(name, {"peak": found[name]}, workload=workload)
    evidence.measured("head-peak", found[OURS].over(found[NATIVE]), gate=([error], [0.0]))


def _growth(ctx: Context, evidence: Evidence, model: object, error: float) -> None:
    """Fit peak = a + b T at a fixed chunk, and hold the slope against what must grow."""
    ctx.progress(3, 4, "growth with the sequence")
    lengths = (2048, 3072, 4096, 8192, 16384) if ctx.full else (1024, 1536, 2048)
    peaks = [peak(OURS, model, make_batch(256, n, device=ctx.device), LAYER_CHUNK, ctx.device) for n in lengths]
    slope, intercept = np.polyfit(lengths, peaks, 1)
    fitted = slope * np.array(lengths) + intercept
    off = float(np.max(np.abs(fitted / np.array(peaks) - 1)))
    d, kv = E2["hidden_size"], E2["hidden_size"] // E2["num_attention_heads"] * E2["num_key_value_heads"]
    # The layers' inputs, the gradient of a layer's output and input; keys, values, their sums and one chunk's share.
    theory = ((E2["num_hidden_layers"] + 2) * d + 6 * kv) * 4 / 2**20
    evidence.measured(
        "growth-law",
        Measurement.of(off, "relative"),
        gate=([error], [0.0]),
        reason=f"slope {slope * 2**20:.0f} bytes a token; what must grow: {theory * 2**20:.0f}",
    )
    if ctx.full:
        others = [peak(SAME_HEAD, model, make_batch(256, n, device=ctx.device), device=ctx.device) for n in lengths]
        series = [
            Series(name, tuple(map(float, lengths)), tuple(ys)) for name, ys in ((OURS, peaks), (SAME_HEAD, others))
        ]
        evidence.plot(Plot("Peak of a step over the sequence", "line", "tokens", "MiB", tuple(series)))
