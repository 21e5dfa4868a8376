"""Claim `exact-counts`: counts beside the plain numpy form on a real clip, and beside a walk over crossings."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.v2v import EventCamera, SensorState, VideoToVoxel, log_table, sensor
from thrifty.data.v2v.rivals import reference_counts, walk_events

OURS, FAST, REFERENCE = "ours, float64", "ours", "plain numpy, float64"
C_POS, C_NEG = 0.2, 0.31


def show(ctx: Context, evidence: Evidence, frames: NDArray[np.uint8]) -> float:
    """Count, compare, and return how many counts of the exact mode differ, which gates the speed claims."""
    rng = np.random.default_rng(ctx.seed)
    potential = rng.uniform(-C_NEG, C_POS, frames.shape[1:])
    reference = reference_counts(frames, C_POS, C_NEG, potential)
    for name, dtype in ((OURS, torch.float64), (FAST, torch.float32)):
        counts = counts_from(frames, potential, dtype)
        wrong = int((counts != reference).sum())
        drift = int(np.abs(counts.sum(axis=0) - reference.sum(axis=0)).max())
        metrics = {
            "counts that differ": Measurement.of(wrong, "counts"),
            "share": Measurement.of(wrong / counts.size, "share"),
            "most a pixel's total is off": Measurement.of(drift, "events"),
        }
        evidence.row(name, metrics, workload="bikes, real frames")
        if name == OURS:
            exact = wrong
    walked = _walk(rng, 3000)
    evidence.row(OURS, {"counts that differ": Measurement.of(walked, "counts")}, workload="walks of 12 steps, 3000")
    differing = float(exact + walked)
    evidence.measured(
        "exact-counts", Measurement.of(differing, "counts"), reason=f"of {reference.size + 36_000:,} counts"
    )
    return differing


def counts_from(frames: NDArray[np.uint8], potential: NDArray[np.float64], dtype: torch.dtype) -> NDArray[np.int64]:
    """Return our counts of every interval, the first potential being given."""
    x = torch.from_numpy(frames)[None]
    state = _begin(x, torch.from_numpy(potential)[None], EventCamera(C_POS, C_NEG), dtype)
    counts, _ = VideoToVoxel(dtype=dtype).counts(x[:, 1:], state=state)
    return counts[0].numpy().astype(np.int64)


def _begin(x: torch.Tensor, potential: torch.Tensor, camera: EventCamera, dtype: torch.dtype) -> SensorState:
    """Return a state whose first potential is given."""
    table = torch.tensor(log_table(), dtype=dtype)
    state = sensor.begin(table[x[:, 0].int()], camera.spread(len(x)), np.zeros(len(x), np.int64))
    state.potential.copy_(potential.to(dtype))
    return state


def _walk(rng: np.random.Generator, pixels: int) -> int:
    """Return how many counts of random sequences differ from those of a walk."""
    levels = rng.integers(0, 256, (pixels, 13)).astype(np.uint8)
    c_pos, c_neg = rng.uniform(0.05, 2, (2, pixels))
    first = rng.uniform(-c_neg, c_pos)
    x = torch.from_numpy(levels)[:, :, None, None]
    state = _begin(x, torch.from_numpy(first)[:, None, None], EventCamera(c_pos, c_neg), torch.float64)
    counts, _ = VideoToVoxel(dtype=torch.float64).counts(x[:, 1:], state=state)
    walked = [walk_events(*row) for row in zip(levels, c_pos, c_neg, first, strict=True)]
    return int((counts[:, :, 0, 0].numpy() != np.array(walked)).sum())
