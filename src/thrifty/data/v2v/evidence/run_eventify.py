"""Run in a process of its own: eventify-dvs, out of its unpacked wheel (its command wants a newer typer than ours)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.bench.timing import time_contenders
from thrifty.data.v2v.events import events_to_voxel


def race(
    folder: str, path: str, first: int, count: int, thresholds: list[float], repeats: int, at_most: float
) -> list[list[tuple[list[float], int]]]:
    """Time our counts and theirs, interleaved, each warm and at its better thread count.

    Returns:
        By threshold, for ours, then for theirs: seconds round by round, and threads.
    """
    from thrifty.data.v2v.evidence.speed import EVENTIFY, OURS, ours
    from thrifty.data.v2v.video import read_frames

    frames, events_between = read_frames(path, first, count), _events_between(folder)
    raced = []
    for c in thresholds:
        contenders: dict[str, Callable[[], object]] = {
            OURS: partial(ours, frames, c),
            EVENTIFY: partial(_histograms, events_between, frames, c),
        }
        found = time_contenders(contenders, repeats=repeats, at_most=at_most)
        raced.append([(list(found[name].seconds.values), found[name].threads) for name in (OURS, EVENTIFY)])
    return raced


def write_grids(folder: str, source: str, target: str, c: float, bins: int) -> None:
    """Read clips (clips, frames, h, w) from a .npy file, and write the voxel grids of their events into another."""
    events_between = _events_between(folder)
    grids = []
    for frames in np.load(source):
        for begin in range(0, len(frames) - bins, bins):
            parts = [
                events_between(frames[i], frames[i + 1], 1000 * i, 1000 * (i + 1), c_thresh=c)
                for i in range(begin, begin + bins)
            ]
            window = (1000 * begin, 1000 * (begin + bins))
            grids.append(events_to_voxel(np.concatenate(parts), frames.shape[1:], bins, t_range=window))
    np.save(target, np.stack(grids))


def _events_between(folder: str) -> Any:
    sys.path.insert(0, folder)
    return import_module("eventify.dvs").frame_to_event_tuples


def _histograms(events_between: Any, frames: NDArray[np.uint8], c: float) -> NDArray[np.float32]:
    """List the events of every interval as the package does, and count them into a bin each."""
    size = frames.shape[1:]
    grids = np.zeros((len(frames) - 1, *size), np.float32)
    for i in range(len(frames) - 1):
        events = events_between(frames[i], frames[i + 1], 40_000 * i, 40_000 * (i + 1), c_thresh=c)
        place = events["y"].astype(np.int64) * size[1] + events["x"]
        grids[i] = np.bincount(place, 2.0 * events["p"] - 1, minlength=grids[i].size).reshape(size)
    return grids
