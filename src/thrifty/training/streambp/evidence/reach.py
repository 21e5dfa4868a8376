"""How long a sequence, and how large a batch, fits one byte budget (E3), with and without offloading.

Two runs give the affine law of a contender's peak, others near the budget correct it; the size that it predicts is
verified by a run a little below, which must fit, and one a little above, which must not.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp.evidence.batches import make_batch
from thrifty.training.streambp.evidence.contenders import (
    CHECKPOINT,
    E1,
    NATIVE,
    OURS,
    TILED,
    TRL,
    make_model,
    peak,
    prepared,
)  # fmt: skip

#: MiB that a step may allocate on the device: without offloading, and with it (where half as much reaches as far).
BUDGET, OFFLOAD_BUDGET = 96.0, 48.0
CHUNK, BATCH_CHUNK, BATCH_LENGTH = 256, 16, 64
MARGIN = 0.02
OFFLOADED = {TILED: f"{TILED} + offload", OURS: f"{OURS} + offload"}


def show(ctx: Context, evidence: Evidence, text: Tensor, error: float) -> None:
    """Find the longest sequences, then the largest batches, then the longest sequences with offloading."""
    model = make_model(E1, ctx.seed, ctx.device)
    _lengths(ctx, evidence, text, model, error)
    _batches(ctx, evidence, text, model, error)
    _offloading(ctx, evidence, text, model, error)


def _lengths(ctx: Context, evidence: Evidence, text: Tensor, model: Any, error: float) -> None:
    def at(name: str, n: int) -> float:
        batch = make_batch(text, E1["vocab_size"], n, device=ctx.device)
        return peak(name, model, batch, CHUNK if name == OURS else "auto", ctx.device)

    # TRL's head works on tiles of 4096 tokens: its law is affine below that, where the budget ends anyway.
    starts = {CHECKPOINT: 128, TRL: 64, NATIVE: 1024, OURS: 2048}
    found = _compare(ctx, evidence, "longest", "tokens", "E1 in 96 MiB", starts, at)
    for claim, rival in (("max-length", CHECKPOINT), ("max-length-vs-trl", TRL), ("max-length-vs-native", NATIVE)):
        _ratio(evidence, claim, found, rival, error)


def _batches(ctx: Context, evidence: Evidence, text: Tensor, model: Any, error: float) -> None:
    def at(name: str, n: int) -> float:
        batch = make_batch(text, E1["vocab_size"], BATCH_LENGTH, batch=n, device=ctx.device)
        return peak(name, model, batch, BATCH_CHUNK if name == OURS else "auto", ctx.device)

    starts = {CHECKPOINT: 2, NATIVE: 16, OURS: 32}
    found = _compare(
        ctx, evidence, "largest batch", "sequences", f"E1, {BATCH_LENGTH} tokens each, in 96 MiB", starts, at
    )
    _ratio(evidence, "batch-scaling", found, CHECKPOINT, error)


def _offloading(ctx: Context, evidence: Evidence, text: Tensor, model: Any, error: float) -> None:
    host: dict[tuple[str, int], int] = {}

    def at(name: str, n: int) -> float:
        batch = make_batch(text, E1["vocab_size"], n, device=ctx.device)
        device, host[name, n] = _offloaded(name, model, batch, ctx.device)
        return device

    workload = "E1 in 48 MiB of the device's memory, the rest on the host"
    found = _compare(ctx, evidence, "longest", "tokens", workload, {TILED: 512, OURS: 1024}, at, OFFLOAD_BUDGET)
    for name, length in found.items():
        if (name, length) in host:  # not where an earlier run had found the length
            moved = Measurement.of(host[name, length] / 2**20, "MiB")
            evidence.row(OFFLOADED[name], {"host": moved}, workload=f"E1, its longest in 48 MiB: {length} tokens")
    _ratio(evidence, "offload-stack", found, TILED, error)


def _compare(
    ctx: Context,
    evidence: Evidence,
    what: str,
    unit: str,
    workload: str,
    starts: Mapping[str, int],
    at: Callable[[str, int], float],
    budget: float = BUDGET,
) -> dict[str, int]:
    """Find each contender's largest size."""
    found: dict[str, int] = {}

    def size(name: str, start: int, _: int) -> int:
        return largest(lambda n: at(name, n), start, budget)

    for place, (name, start) in enumerate(starts.items()):
        ctx.progress(place, len(starts), f"{what}, {workload}: {name}")
        sizes = ctx.every_seed(evidence, name, [ctx.seed], size, name, start, workload=workload)
        if sizes is not None:
            (found[name],) = sizes
            evidence.row(name, {what: Measurement.of(sizes, unit)}, workload=workload)
    return found


def _ratio(evidence: Evidence, claim: str, found: Mapping[str, int], rival: str, error: float) -> None:
    if missing := [name for name in (OURS, rival) if name not in found]:
        evidence.cannot_show(claim, f"no size was found for {', '.join(missing)}")
        return
    evidence.measured(claim, Measurement.of(found[OURS] / found[rival], "ratio"), gate=error)


def largest(peak_at: Callable[[int], float], start: int, budget: float) -> int:
    """Return the largest size whose peak fits a budget, verified two in a hundred below and above.

    Args:
        peak_at: The peak at a size; about affine.
        start: A size well below the budget.
        budget: In the peak's unit.

    Returns:
        The size that was run and fits; the next one that was run, at most 4 % (or one) more, does not.

    Raises:
        RuntimeError: The peak hardly grows, or is so far from affine that no prediction could be verified.
    """
    known: dict[int, float] = {}

    def run(size: int) -> bool:
        if size not in known:
            known[size] = peak_at(size)
        return known[size] <= budget

    run(start)
    run(start + max(1, start // 4))
    for _ in range(10):
        a, b = sorted(known, key=lambda n: abs(known[n] - budget))[:2]
        slope = (known[b] - known[a]) / (b - a)
        furthest = 2 * max(known)
        predicted = a + (budget - known[a]) / slope if slope > 0 else furthest + 1
        if predicted > furthest:  # too far to be trusted: small sizes are ruled by what does not grow
            run(furthest)
        elif run(max(1, int(predicted * (1 - MARGIN)))) and not run(int(predicted * (1 + MARGIN)) + 1):
            return max(n for n in known if known[n] <= budget)
    raise RuntimeError(f"no size found for a budget of {budget}: {known}")


def _offloaded(name: str, model: Any, batch: Any, device: str) -> tuple[float, int]:
    """Return a step's MiB on the device, and the bytes that waited on the host between forward and backward pass.

    On a machine without a GPU the "host" is memory that is not torch's own.
    """
    moved = [0]

    def pack(tensor: Tensor) -> Any:
        if tensor.requires_grad and tensor.is_leaf:
            return tensor  # a weight
        moved[0] += tensor.numel() * tensor.element_size()
        return tensor.detach().cpu().numpy().copy()

    def unpack(kept: Any) -> Tensor:
        return kept if isinstance(kept, Tensor) else torch.from_numpy(kept).to(device)

    with prepared(name, model, CHUNK if name == OURS else "auto") as loss:

        def work() -> None:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                found = loss(batch)
            torch.autograd.backward(found)

        model.zero_grad(set_to_none=True)
        gc.collect()
        found = allocated_peak(work, device=device) / 2**20
        model.zero_grad(set_to_none=True)
    return found, moved[0]
