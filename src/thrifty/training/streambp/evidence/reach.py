"""How long a sequence, and how large a batch, fits one byte budget (E3), with and without offloading."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp.evidence.contenders import (
    CHECKPOINT,
    E1,
    NATIVE,
    OURS,
    TILED,
    TRL,
    make_batch,
    make_model,
    peak,
    prepared,
)  # fmt: skip

BUDGET = 96.0  # MiB
CHUNK = 256
BATCH_LENGTH = 256
OFFLOADED = {TILED: f"{TILED} + offload", OURS: f"{OURS} + offload"}


def show(ctx: Context, evidence: Evidence, error: float) -> None:
    """Bisect by the affine law, then verify one run below and one above."""
    model = make_model(E1, ctx.seed, ctx.device)
    gate = ([error], [0.0])

    def at_length(name: str) -> Callable[[int], float]:
        return lambda n: peak(name, model, make_batch(16384, n), CHUNK if name == OURS else "auto", ctx.device)

    starts = {CHECKPOINT: (128, 256), TRL: (64, 128), NATIVE: (1024, 2048), OURS: (2048, 4096)}
    lengths = {}
    for place, (name, start) in enumerate(starts.items()):
        ctx.progress(place, 9, f"longest sequence: {name}")
        lengths[name] = ctx.once(f"length {name}", ctx.seed, lambda: largest(at_length(name), *start))  # noqa: B023
        evidence.row(name, {"longest": Measurement.of(lengths[name], "tokens")}, workload="E1 in 96 MiB")
    for claim, rival in (("max-length", CHECKPOINT), ("max-length-vs-trl", TRL), ("max-length-vs-native", NATIVE)):
        evidence.measured(claim, Measurement.of(lengths[OURS] / lengths[rival], "ratio"), gate=gate)

    def at_batch(name: str) -> Callable[[int], float]:
        chunk = CHUNK // 4 if name == OURS else "auto"
        return lambda n: peak(name, model, make_batch(16384, BATCH_LENGTH, batch=n), chunk, ctx.device)

    batches = {}
    for place, (name, start) in enumerate(((CHECKPOINT, (1, 2)), (NATIVE, (4, 8)), (OURS, (8, 16)))):
        ctx.progress(4 + place, 9, f"largest batch: {name}")
        batches[name] = ctx.once(f"batch {name}", ctx.seed, lambda: largest(at_batch(name), *start))  # noqa: B023
        evidence.row(name, {"largest batch": Measurement.of(batches[name], "sequences")}, workload="256 tokens, 96 MiB")
    evidence.measured("batch-scaling", Measurement.of(batches[OURS] / batches[CHECKPOINT], "ratio"), gate=gate)

    reach = {}
    for place, name in enumerate((TILED, OURS)):
        label = OFFLOADED[name]
        ctx.progress(7 + place, 9, f"longest sequence: {label}")
        host: list[int] = []
        reach[name] = ctx.once(
            f"offload {name}",
            ctx.seed,
            lambda: largest(lambda n: _offloaded(name, model, n, host), 2048, 4096),  # noqa: B023
        )
        _offloaded(name, model, int(reach[name]), host)
        evidence.row(
            label,
            {"longest": Measurement.of(reach[name], "tokens"), "host": Measurement.of(host[-1] / 2**20, "MiB")},
            workload="E1 in 96 MiB of device memory",
        )
    evidence.measured("offload-stack", Measurement.of(reach[OURS] / reach[TILED], "ratio"), gate=gate)


def largest(peak_at: Callable[[int], float], first: int, second: int) -> int:
    """Return the largest size whose peak fits the budget, to two in a hundred.

    The peak is affine in the size, so that two runs tell where to look; runs below and above it confirm.

    Raises:
        RuntimeError: Ten runs do not bracket the budget.
    """
    known = {n: peak_at(n) for n in (first, second)}
    for _ in range(10):
        fits = [n for n, mib in known.items() if mib <= BUDGET]
        over = [n for n, mib in known.items() if mib > BUDGET]
        if fits and over and min(over) <= max(max(fits) + 1, round(1.02 * max(fits))):
            return max(fits)
        a, b = sorted(known, key=lambda n: abs(known[n] - BUDGET))[:2]
        guess = a + (BUDGET - known[a]) * (b - a) / (known[b] - known[a])
        tried = round(0.995 * guess) if not fits or guess * 0.995 > max(fits) else round(1.005 * guess)
        tried = max(1, tried)
        if tried in known:
            tried = max(fits) + max(1, round(0.015 * max(fits))) if fits else tried // 2
        if over and tried >= min(over):
            tried = (max(fits, default=0) + min(over)) // 2
        known[tried] = peak_at(tried)
    raise RuntimeError(f"no size found for {BUDGET} MiB: {known}")


def _offloaded(name: str, model: Any, length: int, host: list[int]) -> float:
    """Return a step's device MiB when what the forward pass saves waits in memory that is not the device's."""
    moved = [0]

    def pack(tensor: Tensor) -> Any:
        if tensor.requires_grad and tensor.is_leaf:
            return tensor  # a weight
        moved[0] += tensor.numel() * tensor.element_size()
        return tensor.detach().cpu().numpy().copy()  # not torch's allocator: the "host" of a machine without a GPU

    def unpack(kept: Any) -> Tensor:
        return kept if isinstance(kept, Tensor) else torch.from_numpy(kept)

    batch = make_batch(16384, length)
    with prepared(name, model, CHUNK if name == OURS else "auto") as loss:

        def work() -> None:
            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                found = loss(batch)
            torch.autograd.backward(found)

        model.zero_grad(set_to_none=True)
        gc.collect()
        found = allocated_peak(work) / 2**20
        model.zero_grad(set_to_none=True)
    host.append(moved[0])
    return found
