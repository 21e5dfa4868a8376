"""What the simulator is measured against: the plain forms of the same mathematics, and a two-stage pipeline.

:func:`reference_counts` is section 3.2 of arXiv 2505.16797 line by line in float64 numpy. :func:`walk_events` follows
every pixel's logarithm and steps from crossing to crossing, as ESIM does (Rebecq et al., CoRL 2018).
:func:`stream_to_voxels` writes an event stream to disk, reads it back and bins it, as pipelines of two stages do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray

from thrifty.data.v2v.events import EVENT, events_to_voxel
from thrifty.data.v2v.intensity import log_table


def reference_counts(
    frames: UInt8[np.ndarray, "frames h w"], c_pos: float, c_neg: float, potential: Float[np.ndarray, "h w"]
) -> Int[np.ndarray, "intervals h w"]:
    """Return signed counts of every interval, without noise; power and logarithm are taken pixel by pixel."""
    v = potential.astype(np.float64).copy()
    counts = np.zeros((len(frames) - 1, *frames.shape[1:]), np.int64)
    before = np.log(1e-3 + (frames[0] / 255.0) ** 2.2)
    for i, frame in enumerate(frames[1:]):
        now = np.log(1e-3 + (frame / 255.0) ** 2.2)
        v += now - before
        up = np.where(v >= c_pos, np.floor(v / c_pos), 0)
        down = np.where(v <= -c_neg, np.floor(-v / c_neg), 0)
        v += down * c_neg - up * c_pos
        counts[i] = up - down
        before = now
    return counts


def walk_events(levels: Sequence[int], c_pos: float, c_neg: float, potential: float) -> list[int]:
    """Return one pixel's signed counts, crossing by crossing along the straight pieces of its logarithm."""
    table = log_table()
    reference = table[levels[0]] - potential
    counts = []
    for level in levels[1:]:
        here, events = table[level], 0
        while here - reference >= c_pos:
            reference += c_pos
            events += 1
        while here - reference <= -c_neg:
            reference -= c_neg
            events -= 1
        counts.append(events)
    return counts


def stream_to_voxels(
    events: NDArray[Any], path: Path, sensor_size: tuple[int, int], edges: Float[np.ndarray, " edges"]
) -> Float[np.ndarray, "bins h w"]:
    """Write events to a file (13 bytes each, uncompressed), read them back, and count them between edges."""
    events.tofile(path)
    held = np.fromfile(path, EVENT)
    cuts = np.searchsorted(held["t"], edges)
    pieces = itertools.pairwise(cuts)
    return np.concatenate([events_to_voxel(held[first:last], sensor_size, 1) for first, last in pieces])
