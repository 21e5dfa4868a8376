"""A check on the allocator's peaks: what the system says of fresh processes that run one padded step of E2 each."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import resident_peak
from thrifty.training.streambp.evidence.batches import make_batch, read_text
from thrifty.training.streambp.evidence.contenders import E2, OURS, SAME_HEAD, make_model, prepared, step
from thrifty.training.streambp.evidence.footprint import LAYER_CHUNK, LENGTH, PADDED, Peaks

#: Blocks above this many bytes get pages of their own (``malloc.h``).
M_MMAP_THRESHOLD = -3
CONTENDERS = (SAME_HEAD, OURS)


def one_step(name: str, seed: int, data: str | None) -> None:
    """Run the step (in a process of its own, on one thread: something else is measured meanwhile)."""
    torch.set_num_threads(1)
    _return_freed_blocks()
    model = make_model(E2, seed)
    batch = make_batch(read_text(Path(data) if data else None), 256, LENGTH, padded=True)
    with prepared(name, model, LAYER_CHUNK if name == OURS else "auto") as loss:
        step(model, loss, batch)


def _return_freed_blocks() -> None:
    """Let glibc give freed blocks back at once: hoarded for later, they would count for whoever frees much."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 17)


def peaks(ctx: Context) -> Peaks:
    """Return by how much each process grew, its libraries included; one after the other."""
    data = str(ctx.data) if ctx.data else None

    def grown(name: str) -> Measurement:
        return Measurement.of(resident_peak(f"{__name__}:one_step", name, ctx.seed, data) / 2**20, "MiB")

    return {name: grown(name) for name in CONTENDERS}


def show(evidence: Evidence, resident: Peaks, allocated: Peaks) -> None:
    """Hold the saving that the system sees against the one that the allocator reports."""
    for name, peak in resident.items():
        evidence.row(name, {"process grew": peak}, workload=f"{PADDED}, fresh process")
    saved = [found[SAME_HEAD].median - found[OURS].median for found in (resident, allocated)]
    evidence.measured(
        "peak-resident",
        Measurement.of(abs(saved[0] / saved[1] - 1), "relative"),
        reason=f"the system saw {saved[0]:.1f} MiB less, the allocator {saved[1]:.1f}",
    )
