"""Bytes: the state of a live optimizer on one square weight, and LLaMA's shapes from 60M to 7B (E4)."""

from __future__ import annotations

import torch
from torch import nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.sumo import estimate_state_bytes, optimizer_state_bytes
from thrifty.training.sumo.evidence.contenders import RIVALS, make, state_holders
from thrifty.training.sumo.memory import Shape

#: Hidden size, feed-forward size, layers, rank, as in GaLore's and the paper's tables; 32 000 tokens.
LLAMA = {
    "60M": (512, 1376, 8, 128),
    "130M": (768, 2048, 12, 256),
    "350M": (1024, 2736, 24, 256),
    "1B": (2048, 5461, 24, 512),
    "7B": (4096, 11008, 32, 1024),
}
SQUARE, SQUARE_RANK = 256, 64

#: In quick mode: the others take seconds to import.
QUICK_RIVALS = ("GaLore", "Muon", "AdamW")


def llama_shapes(size: str) -> tuple[list[Shape], int]:
    """Return the shapes of the matrices, and the number of all other parameters."""
    hidden, inner, layers, _ = LLAMA[size]
    block: list[Shape] = [*[(hidden, hidden)] * 4, *[(inner, hidden)] * 2, (hidden, inner)]
    return block * layers, 2 * 32_000 * hidden + (2 * layers + 1) * hidden


def measured_bytes(name: str) -> int:
    """Bytes that an optimizer holds for one square weight after a step, but for scalars."""
    model = nn.Sequential(nn.Linear(SQUARE, SQUARE, bias=False))
    optimizer = make(name, model, 1e-3, rank=SQUARE_RANK, gap=10)
    weight = next(model.parameters())
    weight.grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    held = sum(optimizer_state_bytes(part)["total"] for part in state_holders(optimizer))
    scalars = {"SUMO": 16, "AdamW": 4}.get(name, 0)
    return held - scalars


def show(ctx: Context, evidence: Evidence, gate: tuple[list[float], list[float]] | None) -> None:
    """One square weight, measured; LLaMA's shapes, computed by the formula that the measurement confirms."""
    workload = f"one weight of {SQUARE} × {SQUARE}, rank {SQUARE_RANK}, float32"
    held = {}
    for name in ("SUMO", *(RIVALS if ctx.full else QUICK_RIVALS)):
        found = ctx.attempt(evidence, name, measured_bytes, name, workload=workload)
        if found is not None:
            held[name] = Measurement.of(found / 1e3, "kB")
            evidence.row(name, {"state": held[name]}, workload=workload)
    if gate and "GaLore" in held:
        evidence.measured("state-bytes", held["SUMO"].over(held["GaLore"]), gate=gate)
    methods = {"SUMO": "sumo", "GaLore": "galore", "Muon": "muon", "AdamW": "adamw"}
    totals: dict[str, list[float]] = {name: [] for name in methods}
    for size, (_, _, _, rank) in LLAMA.items():
        shapes, others = llama_shapes(size)
        for name, method in methods.items():
            state = estimate_state_bytes([*shapes, (others,)], rank, method)["total"]
            weights = 4 * (sum(m * n for m, n in shapes) + others)
            totals[name].append((2 * weights + state) / 1e9)
            evidence.row(
                name,
                {
                    "state": Measurement.of(state / 1e9, "GB"),
                    "weights + gradients + state": Measurement.of(totals[name][-1], "GB"),
                },
                workload=f"LLaMA-{size}, rank {rank}, float32",
            )
    points = {name: (LLAMA, values) for name, values in totals.items()}
    evidence.curves("Weights, gradients and optimizer state", "LLaMA", "GB", points, kind="bar")
    evidence.measured(
        "total-bytes", Measurement.of([a / b for a, b in zip(totals["SUMO"], totals["AdamW"], strict=True)], "ratio")
    )
