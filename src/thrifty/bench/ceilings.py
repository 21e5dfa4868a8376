"""What the machine could do at best: how fast it moves bytes and multiplies, measured in the run that quotes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.timing import all_threads


@dataclass(frozen=True)
class _Work:
    """Something to time, with what it moves or computes."""

    copied: int  # bytes, far beyond the last cache level
    copy: Callable[[], object]
    side: int  # of the square float32 matrices
    multiply: Callable[[], object]


def measure(device: str = "cpu") -> dict[str, Measurement]:
    """Return ``bandwidth`` (GB/s, reads plus writes) and ``flops`` (GFLOP/s, float32 matrix product)."""
    work = _on_gpu(device) if device.startswith("cuda") else _on_cpu()
    bandwidth = [2 * work.copied / seconds / 1e9 for seconds in _seconds(work.copy)]
    rate = [2 * work.side**3 / seconds / 1e9 for seconds in _seconds(work.multiply)]
    return {
        "bandwidth": Measurement.of(bandwidth, "GB/s", timed=True),
        "flops": Measurement.of(rate, "GFLOP/s", timed=True),
    }


def _seconds(call: Callable[[], object]) -> list[float]:
    call()
    samples = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def _on_cpu() -> _Work:
    copied, side = 64 * 2**20, 1536
    pieces = np.array_split(np.ones(copied, np.uint8), all_threads())
    targets = [np.empty_like(piece) for piece in pieces]
    pool = ThreadPoolExecutor(len(pieces))  # numpy lets go of the interpreter while it copies
    matrix = np.ones((side, side), np.float32)
    return _Work(copied, lambda: list(pool.map(np.copyto, targets, pieces)), side, lambda: matrix @ matrix)


def _on_gpu(device: str) -> _Work:
    torch = require("torch", extra="torch")
    copied, side = 2**30, 8192
    source = torch.ones(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    matrix = torch.ones(side, side, device=device)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    def multiply() -> None:
        matrix @ matrix
        torch.cuda.synchronize()

    return _Work(copied, copy, side, multiply)
