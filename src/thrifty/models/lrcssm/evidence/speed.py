"""Time of one layer, forward and backward, beside what a user could pick instead."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.lrcssm import DiagonalRNN, rivals
from thrifty.models.lrcssm.evidence.accuracy import Gates

AUTO, NEWTON = "LrcSSM (auto)", "LrcSSM (Newton)"
D, T = 64, 1024


def show(ctx: Context, evidence: Evidence, gates: Gates, difference: float) -> None:
    """Record the claims about time."""
    for batch in (1, 4):
        ctx.progress(batch, 5, f"one layer, {batch} sequences of {T} steps")
        suffix = "" if batch == 1 else "-batch"
        u = torch.randn(batch, T, D, generator=torch.Generator().manual_seed(ctx.seed)).to(ctx.device)
        calls = {name: both_ways(layer.to(ctx.device), u) for name, layer in _layers(ctx, batch).items()}
        workload = f"one layer, B = {batch}, T = {T}, D = {D}"
        seconds = ctx.timed(evidence, calls, workload=workload, quick=1, full=25, what="forward and backward")
        if "nn.GRU" in gates:
            for claim, ours in (("vs-gru", AUTO), ("vs-gru-newton", NEWTON)):
                ratio = seconds["nn.GRU"].over(seconds[ours])
                evidence.measured(claim + suffix, ratio, gate=gates["nn.GRU"], reason=_solver(ours))
        if "Python loop" in seconds:
            ratio = seconds["Python loop"].over(seconds[NEWTON])
            evidence.measured("vs-loop" + suffix, ratio, gate=difference)
        if batch == 1 and "LRU" in gates:
            limit = _distance(ctx, seconds[AUTO].median)
            evidence.measured("vs-linear", seconds[AUTO].over(seconds["LRU"]), gate=gates["LRU"], limit=limit)


def both_ways(layer: nn.Module, u: Tensor) -> Callable[[], object]:
    """Return a forward and a backward pass of a layer as a call."""
    return lambda: layer(u)[0].sum().backward()


def _layers(ctx: Context, batch: int) -> dict[str, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(ctx.seed)
        auto, newton = DiagonalRNN("lrc", D, D), DiagonalRNN("lrc", D, D, solver="newton")
        layers: dict[str, nn.Module] = {
            AUTO: auto,
            NEWTON: newton,
            "nn.GRU": nn.GRU(D, D, batch_first=True),
            "LRU": rivals.LRU(D, D),
        }
        if ctx.full or batch == 1:
            layers["Python loop"] = rivals.Loop(newton.cell)  # type: ignore[arg-type]
        if ctx.full:
            layers |= {
                "nn.LSTM": nn.LSTM(D, D, batch_first=True),
                "S5": rivals.S5(D, D),
                "minGRU": rivals.MinGRU(D, D),
                "GruSSM": DiagonalRNN("gru", D, D),
            }
    return layers


def _solver(name: str) -> str:
    return "solver: Newton" if name == NEWTON else "solver: in order, compiled (CPU); Newton in tiles (GPU)"


def _distance(ctx: Context, seconds: float) -> str:
    """How far the layer is from moving its bytes and multiplying its matrices at the machine's best."""
    moved = 12 * T * D * 4 / (1e9 * ctx.ceilings["bandwidth"].median)
    multiplied = 3 * 2 * T * D * 2 * D / (1e9 * ctx.ceilings["flops"].median)
    return f"{seconds / (moved + multiplied):.1f} times its bytes at full bandwidth plus its products at full rate"
