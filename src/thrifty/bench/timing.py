"""Timing contenders side by side.

Repeats are interleaved (A B C, B C A, ...), so that a machine that slows down slows all contenders down. Each contender
is tried at one and at all threads and keeps its better. As ``pyperf`` does, the first call is thrown away and the
median stands; as ``torch.utils.benchmark`` does, a call too short for the clock is repeated until it is not, the thread
count is set rather than inherited, and a GPU is waited for.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import threadpoolctl

from thrifty.bench.claims import Measurement

#: A sample shorter than this is made of several calls.
SHORTEST_SAMPLE = 0.005

#: Rounds that are taken whatever they cost: a single sample decides nothing.
FEWEST_ROUNDS = 3


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender, at the thread count that suits it."""

    seconds: Measurement
    threads: int

    def metrics(self, name: str = "time") -> dict[str, Measurement]:
        """Return what a row shows of it: the seconds, under ``name``, and the threads."""
        return {name: self.seconds, "threads": Measurement.of(self.threads, "threads", timed=True)}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let BLAS, OpenMP, numba and torch use ``count`` threads inside the block, and what they had afterwards."""
    undo: list[Callable[[], object]] = []
    if numba := sys.modules.get("numba"):
        before = numba.get_num_threads()
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        undo.append(lambda: numba.set_num_threads(before))
    if torch := sys.modules.get("torch"):
        had = torch.get_num_threads()
        torch.set_num_threads(count)
        undo.append(lambda: torch.set_num_threads(had))
    try:
        with threadpoolctl.threadpool_limits(count):
            yield
    finally:
        for restore in undo:
            restore()


def all_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def time_contenders(
    contenders: Mapping[str, Callable[[], object]], *, repeats: int = 5, at_most: float = 10.0, device: str = "cpu"
) -> dict[str, Timing]:
    """Time every contender, interleaved.

    Args:
        contenders: Name to what is timed; it is called many times, so it must leave its inputs as they were.
        repeats: Samples of each contender.
        at_most: Seconds after which no further round of samples is begun (:data:`FEWEST_ROUNDS` are always taken).
        device: ``"cuda"`` waits for the device before the clock is read.

    Returns:
        For each name its seconds a call (one value a round, so that they divide round by round) and its thread count.
    """
    began = time.perf_counter()
    settings = {name: _better_threads(call, device) for name, call in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for round_ in range(repeats):
        if round_ >= FEWEST_ROUNDS and time.perf_counter() - began > at_most:
            break
        for name in order[round_ % len(order) :] + order[: round_ % len(order)]:
            count, calls = settings[name]
            with threads(count):
                samples[name].append(_sample(contenders[name], calls, device))
    return {
        name: Timing(Measurement.of(samples[name], "s", timed=True), count) for name, (count, _) in settings.items()
    }


def _better_threads(call: Callable[[], object], device: str) -> tuple[int, int]:
    """Return the better of one and all threads, and the calls that a sample needs there."""
    tried = []
    for count in sorted({1, all_threads()}):
        with threads(count):
            _sample(call, 1, device)  # compiles, fills caches
            seconds = min(_sample(call, 1, device) for _ in range(2))
        tried.append((seconds, count))
    seconds, count = min(tried)
    return count, max(1, round(SHORTEST_SAMPLE / max(seconds, 1e-9)))


def _sample(call: Callable[[], object], calls: int, device: str) -> float:
    """Return the seconds of one call, averaged over ``calls`` of them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        _wait(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        _wait(device)
        return (time.perf_counter() - start) / calls
    finally:
        if collecting:
            gc.enable()


def _wait(device: str) -> None:
    """Wait until the device has done all that it was given."""
    if device.startswith("cuda"):
        sys.modules["torch"].cuda.synchronize()
