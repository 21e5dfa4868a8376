"""What storing events would take: a video file beside its event stream and its voxel grids; and what a list holds.

Paper: arXiv 2505.16797, table of storage.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from thrifty.data.v2v.camera import EventCamera
from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.sensor import SensorState
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.video import VideoError, frame_blocks, frame_stream, probe

#: x, y as 16, t as 64 bits, polarity, padded: what simulators write by default.
BYTES_AN_EVENT = 16

#: Frames that are held at once.
BLOCK = 32


@dataclass(frozen=True)
class Stored:
    """Bytes and seconds of one video at one threshold, without noise.

    Args:
        threshold: Both thresholds, log units.
        events: How many.
        event_ratio: Bytes of the event stream over those of the video file.
        voxel_ratio: Bytes of float32 voxel grids over those of the video file.
        decode_seconds: Of decoding the video.
        simulate_seconds: Of making its voxel grids.
    """

    threshold: float
    events: int
    event_ratio: float
    voxel_ratio: float
    decode_seconds: float
    simulate_seconds: float


def storage_report(
    path: str | os.PathLike[str], thresholds: Sequence[float] = (0.1, 0.2, 0.5, 1.0), *, seed: int = 0
) -> list[Stored]:
    """Measure what a video's events and voxel grids would take on a disk.

    Args:
        path: A video.
        thresholds: Of the noise-free cameras.
        seed: Of the first potential.

    Raises:
        ValueError: The video cannot be read, or a threshold is not above 0.

    Example:
        >>> from thrifty.data.v2v.video import write_video
        >>> levels = np.random.default_rng(0).integers(0, 255, (11, 32, 32)).astype(np.uint8)
        >>> low, high = storage_report(write_video("clip.mp4", levels), (0.1, 1.0))
        >>> low.events > high.events > 0
        True

    Source:
        arXiv 2505.16797, table of storage.
    """
    size = probe(path).size
    sensors = [VideoToVoxel(camera=EventCamera(c, c), polarity="abs") for c in thresholds]
    for v2v in sensors[:1]:
        v2v.counts(torch.zeros(1, 2, 8, 8, dtype=torch.uint8))  # compiles
    states: list[SensorState | None] = [None] * len(sensors)
    events, seconds = [0] * len(sensors), [0.0] * len(sensors)
    frames, numbers, decoding, began = 0, 0, 0.0, time.perf_counter()
    generators = [torch.Generator().manual_seed(seed) for _ in sensors]
    for block in frame_blocks(frame_stream(path), BLOCK):
        decoding += time.perf_counter() - began
        frames += len(block)
        numbers += block.size - (block[0].size if frames == len(block) else 0)
        for i, v2v in enumerate(sensors):
            if frames > 1:
                began = time.perf_counter()
                counts, states[i] = v2v.counts(torch.from_numpy(block)[None], generators[i], states[i], channels="grey")
                seconds[i] += time.perf_counter() - began
                events[i] += int(counts.sum(dtype=torch.int64))
        began = time.perf_counter()
    if frames < 2:
        raise VideoError(f"{path}: expected at least 2 frames, for events lie between them, got {frames}")
    return [
        Stored(c, n, n * BYTES_AN_EVENT / size, 4 * numbers / size, decoding, taken)
        for c, n, taken in zip(thresholds, events, seconds, strict=True)
    ]


def storage_reports(
    index: VideoIndex, thresholds: Sequence[float], limit: int
) -> tuple[dict[str, list[Stored]], list[str]]:
    """Return the reports of the first videos of a list, and those that turned out to be corrupt, with a warning each.

    Raises:
        VideoError: None can be decoded.
    """
    found: dict[str, list[Stored]] = {}
    broken = []
    for path in (index.path(i) for i in range(len(index))):
        if len(found) == limit:
            break
        try:
            found[path] = storage_report(path, thresholds)
        except VideoError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            broken.append(path)
    if not found:
        raise VideoError(f"videos: expected at least one that can be decoded, got none of {len(index)}")
    return found, broken


def statistics_of(index: VideoIndex) -> dict[str, Any]:
    """Return how many videos, frames and pixels a list holds, and the spread of their sizes.

    Example:
        >>> statistics_of(VideoIndex(["a.mp4", "b.mp4"], [100, 300], [(144, 176), (272, 640)]))["frames"]
        400
    """
    pixels = index.frames.astype(np.int64) * index.sizes.prod(axis=1)
    return {
        "videos": len(index),
        "frames": int(index.frames.sum(dtype=np.int64)),
        "megapixels": float(pixels.sum() / 1e6),
        "frames_a_video": [int(np.quantile(index.frames, q)) for q in (0, 0.5, 1)],
        "heights": [int(index.sizes[:, 0].min()), int(index.sizes[:, 0].max())],
        "widths": [int(index.sizes[:, 1].min()), int(index.sizes[:, 1].max())],
    }


def as_json(rows: Sequence[Stored]) -> list[dict[str, float]]:
    """Return a report as JSON holds it."""
    return [asdict(row) for row in rows]
