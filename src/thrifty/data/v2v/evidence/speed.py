"""Claims about time: beside the plain form, beside a simulator that lists events, and beside decoding the clip."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray

from thrifty.bench import carried, isolated
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import clips
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import Timing
from thrifty.data.v2v import EventCamera, VideoToVoxel, frames_to_events
from thrifty.data.v2v.rivals import reference_counts, stream_to_voxels
from thrifty.data.v2v.video import read_frames

OURS, REFERENCE, EVENTIFY, DECODE = "ours", "plain numpy, float64", "eventify-dvs + histogram", "PyAV decoding"
TWO_STAGE = "stream on disk, read back, binned"
#: What is timed: a part in the middle of the cyclists, as lively as the whole.
FIRST, COUNT = 100, 51
RIVAL = "thrifty.data.v2v.evidence.run_eventify"


def show(ctx: Context, evidence: Evidence, frames: NDArray[np.uint8], gate: float) -> None:
    """Time contenders interleaved on the same frames; each ratio is gated by exact counts."""
    pixels = (len(frames) - 1) * frames[0].size / 1e6
    size = f"{len(frames) - 1} intervals of {frames.shape[1]} x {frames.shape[2]}"
    ctx.progress(0, 3, "time beside the plain form")
    c = 0.5
    contenders: dict[str, Callable[[], object]] = {
        OURS: partial(ours, frames, c),
        REFERENCE: partial(reference_counts, frames, c, c, np.zeros(frames.shape[1:])),
        "ours, float voxel grids": partial(ours, frames, c, grids=True),
        "ours, with noise": partial(ours, frames, c, noise=0.1),
        "ours, float64": partial(ours, frames, c, dtype=torch.float64),
    }
    found = ctx.timed(evidence, contenders, workload=f"{size}, c = {c}", quick=3, full=30)
    seconds = found[OURS].median
    evidence.measured(
        "speed-vs-reference", found[REFERENCE].over(found[OURS]), gate=gate,
        reason=f"{pixels / seconds:.0f} million pixel steps a second",
        limit=f"{_share_of_bandwidth(ctx, pixels, seconds):.0%} of the memory's bandwidth",
    )  # fmt: skip
    ctx.progress(1, 3, "time beside a stream")
    with evidence.needs("speed-vs-stream-50", "speed-vs-stream-10"):
        _beside_a_stream(ctx, evidence, gate, size)
    ctx.progress(2, 3, "time beside decoding")
    if ctx.full:
        _two_stages(ctx, evidence, frames[:26])
    _decoding(ctx, evidence, gate)


def ours(
    frames: NDArray[np.uint8], c: float, *, noise: float = 0.0, dtype: torch.dtype = torch.float32, grids: bool = False
) -> torch.Tensor:
    """Return the counts of every interval, as all contenders do, or float voxel grids of five of them."""
    v2v = VideoToVoxel(camera=EventCamera(c, c, noise), dtype=dtype)
    x, generator = torch.from_numpy(frames[None]), torch.Generator().manual_seed(0)
    counts: torch.Tensor = v2v(x, generator) if grids else v2v.counts(x, generator)[0]
    return counts


def _beside_a_stream(ctx: Context, evidence: Evidence, gate: float, size: str) -> None:
    """Time our counts and eventify-dvs's events, interleaved in a process of their own."""
    folder, thresholds = str(carried.unpacked("eventify-dvs")), [0.5, 0.1]
    rounds, at_most = (9, 30) if ctx.full else (5, 2)
    arguments = (folder, str(clips.path("bikes")), FIRST, COUNT, thresholds, rounds, at_most)
    raced = ctx.attempt(evidence, EVENTIFY, isolated.call, f"{RIVAL}:race", *arguments, workload=size)
    for c, pair in zip(thresholds, raced or (), strict=False):
        found = [Timing(Measurement.of(seconds, "s", timed=True), threads) for seconds, threads in pair]
        for name, timing in zip((OURS, EVENTIFY), found, strict=True):
            evidence.row(name, timing.metrics(), workload=f"{size}, c = {c}, in another process")
        evidence.measured(f"speed-vs-stream-{int(100 * c)}", found[1].seconds.over(found[0].seconds), gate=gate)


def _two_stages(ctx: Context, evidence: Evidence, frames: NDArray[np.uint8]) -> None:
    """Time the same sensor with its stream written, read back and binned: what is saved is the detour alone."""
    times = np.arange(len(frames)) * 40_000
    camera = EventCamera(0.2, 0.2)

    def detour(folder: str) -> NDArray[np.float32]:
        events = frames_to_events(frames, times, camera, torch.Generator().manual_seed(0))
        return stream_to_voxels(events, Path(folder, "events.bin"), frames.shape[1:], times)

    with TemporaryDirectory() as folder:
        workload = f"{len(frames) - 1} intervals, c = 0.2"
        contenders: dict[str, Callable[[], object]] = {OURS: partial(ours, frames, 0.2, grids=True)}
        contenders[TWO_STAGE] = partial(detour, folder)
        found = ctx.timed(evidence, contenders, workload=workload, quick=0, full=30)
    evidence.measured("speed-vs-two-stages", found[TWO_STAGE].over(found[OURS]))


def _decoding(ctx: Context, evidence: Evidence, gate: float) -> None:
    """Time decoding a clip, and simulating what was decoded."""
    path, count = clips.path("bikes"), 246 if ctx.full else 51
    frames = read_frames(path, 0, count)
    contenders: dict[str, Callable[[], object]] = {
        OURS: partial(ours, frames, 0.2, grids=True),
        DECODE: lambda: read_frames(path, 0, count, threads=torch.get_num_threads()),
    }
    found = ctx.timed(evidence, contenders, workload=f"bikes, {count} frames", quick=2, full=40)
    rate = count * frames[0].size / 1e6 / found[DECODE].median
    reason = f"decoding: {rate:.0f} Mpx/s"
    evidence.measured("decode-bound", found[OURS].over(found[DECODE]), gate=gate, reason=reason)


def _share_of_bandwidth(ctx: Context, pixels: float, seconds: float) -> float:
    """Bytes that must move, a frame in and counts out, over what the memory moves in that time."""
    return 3 * pixels * 1e6 / seconds / (ctx.ceilings["bandwidth"].median * 1e9)


def grids_of_another(videos: NDArray[np.uint8], c: float, bins: int = 5) -> NDArray[np.float32]:
    """Return voxel grids of eventify-dvs's events: another simulator's, for tests of what was trained on ours.

    Args:
        videos: (clips, frames, h, w).
        c: Threshold.
        bins: Intervals of a voxel grid.

    Returns:
        (voxel grids, bins, h, w), those of the first clip first.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    folder = carried.unpacked("eventify-dvs")
    with TemporaryDirectory() as scratch:
        source, target = Path(scratch, "frames.npy"), Path(scratch, "grids.npy")
        np.save(source, videos)
        isolated.call(f"{RIVAL}:write_grids", str(folder), str(source), str(target), c, bins)
        grids: NDArray[np.float32] = np.load(target)
    return grids
