"""What ``thrifty v2v show`` draws: voxel grids or flow of a video, or of a recording, as a picture or as a film."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from thrifty.data.v2v.event_files import SUFFIXES, opened_hdf5, read_events
from thrifty.data.v2v.events import events_to_voxel
from thrifty.data.v2v.pictures import flow_picture, flow_wheel, save_png, voxel_picture
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.teachers import dis_flow
from thrifty.data.v2v.video import VideoError, probe, read_frames, write_video

Pictures = Sequence[NDArray[np.uint8]]


def grid_pictures(source: Path, camera: Any, bins: int, start: int, frames: int, seed: int) -> Pictures:
    """Return voxel grids in red and blue: of a video, of ``bins`` intervals each, or of a recording, of 40 ms each.

    Raises:
        ValueError: The source cannot be read, or is too short for one.
    """
    if source.suffix.lower() in SUFFIXES:
        events, size = read_events(source)
        edges = np.arange(events["t"].min(initial=0), events["t"].max(initial=0) + 1, 40_000)
        grids = np.stack([events_to_voxel(events, size, bins, t_range=(t, t + 40_000)) for t in edges])
    else:
        levels = torch.from_numpy(_frames(source, bins, start, frames))[None]
        grids = VideoToVoxel(bins, camera=camera)(levels, torch.Generator().manual_seed(seed), channels="grey")[
            0
        ].numpy()
    scale = max(1.0, float(np.quantile(np.abs(grids.sum(axis=1)), 0.99)))
    return [voxel_picture(grid, scale) for grid in grids]


def flow_pictures(source: Path, bins: int, start: int, frames: int) -> Pictures:
    """Return flow on the colour wheel, which stands beside it: a recording's own, or a video's as DIS sees it.

    Raises:
        ValueError: The source cannot be read, has no flow, or is too short.
    """
    if source.suffix.lower() in SUFFIXES:
        with opened_hdf5(source) as file:
            if "flow" not in file:
                raise ValueError(f"{source}: expected a group 'flow', got {', '.join(file)}")
            fields = [field[()] for field in file["flow"].values()]
    else:
        levels = torch.from_numpy(_frames(source, bins, start, frames)[::bins, None]).float() / 255
        fields = list(dis_flow(levels[:-1], levels[1:]).numpy())
    scale = max(float(np.nanquantile(np.hypot(*field), 0.99)) for field in fields)
    wheel = flow_wheel(fields[0].shape[1])
    return [np.concatenate([flow_picture(field, max(scale, 1e-9)), wheel], axis=1) for field in fields]


def save_pictures(out: Path, pictures: Pictures, *, force: bool = False) -> Path:
    """Write the first picture as PNG, or all of them as a film of ten a second.

    Raises:
        FileExistsError: There is a file already, and ``force`` is False.
    """
    if out.suffix.lower() == ".png":
        return save_png(out, pictures[0], force=force)
    beside = out.with_name(f".part-{out.name}")
    try:
        write_video(beside, np.stack(pictures), rate=10)
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return out


def _frames(source: Path, bins: int, start: int, frames: int) -> NDArray[np.uint8]:
    """Return as many frames as make whole voxel grids."""
    there = min(frames, probe(source).frames - start)
    count = (there - 1) // bins * bins + 1
    if count < bins + 1:
        raise VideoError(
            f"{source}: expected at least {bins + 1} frames from frame {start} on, for {bins} bins, got {max(there, 0)}"
        )
    return read_frames(source, start, count)
