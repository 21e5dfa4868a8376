"""How long a layer takes by the length of its input: what `thrifty lrcssm time` prints."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from thrifty.bench.memory import allocated_peak
from thrifty.models.lrcssm.layer import DiagonalRNN


def time_lengths(cell: str, D: int, batch: int, lengths: list[int], device: str) -> list[dict[str, Any]]:
    """Time a layer, forward and backward, by length, beside ``nn.GRU``; peak memory and Newton iterations too."""
    rows = []
    for T in lengths:
        if T < 1:
            raise ValueError(f"--length: expected at least 1 step, got {T}")
        generator = torch.Generator().manual_seed(0)
        u = torch.randn(batch, T, D, generator=generator).to(device)
        ours, gru = DiagonalRNN(cell, D, D).to(device), nn.GRU(D, D, batch_first=True).to(device)
        newton = DiagonalRNN(cell, D, D, solver="newton", chunk=T).to(device)
        newton.load_state_dict(ours.state_dict())
        with torch.no_grad():
            ran, trace = ours(u, return_info=True)[2], newton(u, return_info=True)[2]
        rows.append(
            {
                "T": T,
                "solver": ran.solver,
                "ms": 1e3 * _seconds(both_ways(ours, u), device),
                "gru_ms": 1e3 * _seconds(both_ways(gru, u), device),
                "peak": allocated_peak(both_ways(ours, u), device=device),
                "n_iter": int(trace.n_iter.max()),
            }
        )
    return rows


def both_ways(layer: nn.Module, u: Tensor) -> Callable[[], object]:
    """Return a forward and a backward pass of a layer as a call."""

    def run() -> None:
        y, _ = layer(u)
        y.sum().backward()

    return run


def _seconds(call: Callable[[], object], device: str) -> float:
    call()
    samples = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        samples.append(time.perf_counter() - began)
    return sorted(samples)[2]
