"""Peak memory of a piece of work, measured in two ways that check each other.

:func:`allocated_peak` adds up the allocator's own events, scratch inside operators included. :func:`resident_peak` runs
the work in a fresh process and reads the system's high-water mark, which also sees what no allocator reports.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from thrifty._common.extras import require
from thrifty.bench import isolated


def allocated_peak(work: Callable[[], object], *, device: str = "cpu") -> int:
    """Return the most bytes that torch's allocator held at once while ``work`` ran, above what it held before.

    Raises:
        ImportError: torch is not installed.
    """
    torch = require("torch", extra="torch")
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated() - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def resident_peak(target: str, *arguments: Any) -> int:
    """Return by how many bytes a fresh process grew at most while it ran ``target``.

    Args:
        target: ``"package.module:function"``, importable in a new process.
        arguments: What it is called with: anything that JSON can carry.

    Raises:
        RuntimeError: The process failed; the message ends with what it printed last.
    """
    return int(isolated.call(f"{__name__}:growth", target, *arguments))


def growth(target: str, *arguments: Any) -> int:
    """Run the target in this process, and return by how many bytes the high-water mark rose."""
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    before = _high_water_mark()
    function(*arguments)
    return _high_water_mark() - before


def _high_water_mark() -> int:
    """Return the most bytes that this process has had in memory."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, getrusage would also count what the parent had when it started this process
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
