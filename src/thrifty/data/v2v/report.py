"""What storing events would take: a video file beside its event stream and its voxel grids; and what a list holds.

Paper: arXiv 2505.16797, table of storage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from thrifty.data.v2v.camera import EventCamera
from thrifty.data.v2v.index import VideoIndex
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.video import probe, read_frames

#: x, y as 16, t as 64 bits, polarity, padded: what simulators write by default.
BYTES_AN_EVENT = 16


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
    began = time.perf_counter()
    frames = torch.from_numpy(read_frames(path))[None]
    decode = time.perf_counter() - began
    rows = []
    for threshold in thresholds:
        v2v = VideoToVoxel(camera=EventCamera(threshold, threshold), polarity="abs")
        v2v.counts(frames[:, :2])  # compiles
        began = time.perf_counter()
        counts, _ = v2v.counts(frames, torch.Generator().manual_seed(seed))
        seconds = time.perf_counter() - began
        events = int(counts.sum(dtype=torch.int64))
        rows.append(
            Stored(threshold, events, events * BYTES_AN_EVENT / size, 4 * counts.numel() / size, decode, seconds)
        )
    return rows


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
