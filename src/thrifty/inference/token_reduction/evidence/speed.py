"""Experiment D: time of a forward pass, interleaved, and the peak of its memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.inference.token_reduction.config import FreqReduceConfig, named
from thrifty.inference.token_reduction.evidence.fidelity import LAYERS, Cosines
from thrifty.inference.token_reduction.evidence.images import SIDE, backbone
from thrifty.inference.token_reduction.macs import count_macs
from thrifty.inference.token_reduction.patch import reduce_tokens

WHOLE = "the model as it is"


def show(ctx: Context, evidence: Evidence, cosines: Cosines) -> None:
    """Time batch 1 and what dropping nothing costs; in a full run batch 8, at two shares, beside the rivals."""
    model = backbone(ctx)
    one = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(ctx.seed)).to(ctx.device)
    nothing = FreqReduceConfig(LAYERS, 1.0)
    small = {
        WHOLE: model,
        "ours, keep 0.7": _reduced(model, FreqReduceConfig(LAYERS, 0.7)),
        "ours, keep 1": _reduced(model, nothing),
    }
    times = _timed(ctx, evidence, small, one, "batch 1", quick=3, full=30)
    difference = _difference(model, small["ours, keep 1"], one)
    evidence.measured("overhead-identity", times["ours, keep 1"].over(times[WHOLE]), gate=difference)
    faithful = {keep: (cosines["ours", keep], cosines["EViT", keep]) for keep in (0.7, 0.5)}
    evidence.measured(
        "throughput-batch-1", times[WHOLE].over(times["ours, keep 0.7"]), gate=faithful[0.7],
        limit=f"{_macs_ratio(model, 0.7):.2f} times fewer MACs",
    )  # fmt: skip
    _show_memory(ctx, evidence, model, small["ours, keep 0.7"], faithful[0.7])
    if not ctx.full:
        return
    eight = torch.randn(8, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(ctx.seed)).to(ctx.device)
    large = {
        WHOLE: model,
        "ours, keep 0.7": small["ours, keep 0.7"],
        "ours, keep 0.5": _reduced(model, FreqReduceConfig(LAYERS, 0.5)),
        "EViT, keep 0.7": _reduced(model, named("evit", LAYERS, 0.7)),
        "ToMe, keep 0.7": _reduced(model, named("tome", LAYERS, 0.7)),
    }
    times = _timed(ctx, evidence, large, eight, "batch 8", quick=0, full=90)
    for id_, keep in (("throughput-70", 0.7), ("throughput-50", 0.5)):
        limit = f"{_macs_ratio(model, keep):.2f} times fewer MACs"
        ratio = times[WHOLE].over(times[f"ours, keep {keep}"])
        evidence.measured(id_, ratio, gate=faithful[keep], limit=limit)
    for id_, rival in (("time-vs-evit", "EViT"), ("time-vs-tome", "ToMe")):
        gate = (cosines["ours", 0.7], cosines[rival, 0.7])
        evidence.measured(id_, times["ours, keep 0.7"].over(times[f"{rival}, keep 0.7"]), gate=gate)


def _timed(
    ctx: Context,
    evidence: Evidence,
    models: dict[str, nn.Module],
    x: Tensor,
    workload: str,
    *,
    quick: float,
    full: float,
) -> dict[str, Measurement]:
    calls: dict[str, Callable[[], object]] = {name: partial(_pass, model, x) for name, model in models.items()}
    return ctx.timed(evidence, calls, workload=workload, quick=quick, full=full, what="pass")


def _show_memory(
    ctx: Context, evidence: Evidence, model: nn.Module, reduced: nn.Module, gate: tuple[list[float], list[float]]
) -> None:
    """Compare peaks: ours, the whole model with its fused kernel, and with explicit attention."""
    x = torch.zeros(4 if ctx.full else 1, 3, SIDE, SIDE, device=ctx.device)
    explicit: Any = copy.deepcopy(model)
    explicit.set_attn_implementation("eager")
    peaks = {
        name: Measurement.of(allocated_peak(partial(_pass, m, x), device=ctx.device) / 1e6, "MB")
        for name, m in (("ours, keep 0.7", reduced), (WHOLE, model), (f"{WHOLE}, explicit attention", explicit))
    }
    for name, peak in peaks.items():
        evidence.row(name, {"peak": peak}, workload=f"memory, batch {len(x)}")
    ratio = peaks["ours, keep 0.7"].over(peaks[f"{WHOLE}, explicit attention"])
    fused = peaks["ours, keep 0.7"].over(peaks[WHOLE]).median
    evidence.measured("peak-memory", ratio, gate=gate, reason=f"{fused:.2f} of the whole model's with the fused kernel")


@torch.inference_mode()
def _pass(model: nn.Module, x: Tensor) -> object:
    return model(x)


def _reduced(model: nn.Module, config: Any) -> nn.Module:
    twin = copy.deepcopy(model)
    reduce_tokens(twin, config)
    return twin


@torch.inference_mode()
def _difference(model: Any, other: Any, x: Tensor) -> float:
    return float((model(x).last_hidden_state - other(x).last_hidden_state).abs().max())


def _macs_ratio(model: nn.Module, keep: float) -> float:
    side = (SIDE, SIDE)
    return count_macs(model, side) / count_macs(model, side, FreqReduceConfig(LAYERS, keep))
