"""A video becomes a recording, an event stream or voxel grids, block by block, so that its length costs no memory."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from thrifty._common.files import refuse_existing, write_whole
from thrifty.data.v2v.camera import EventCamera
from thrifty.data.v2v.event_files import write_packets
from thrifty.data.v2v.events import event_packets
from thrifty.data.v2v.simulator import VideoToVoxel
from thrifty.data.v2v.teachers import warped_clip
from thrifty.data.v2v.video import (
    VideoError,
    frame_blocks,
    frame_stream,
    probe,
    read_frames,
    timestamps,
    warn_if_uneven,
)
from thrifty.data.v2v.writing import RecordingWriter

#: Frames that are held at once.
BLOCK = 32

RECORDINGS, STREAMS, GRIDS = (".h5", ".hdf5"), (".aedat4", ".raw", ".dat"), (".npz",)


def check_ending(out: Path, *, flow: bool = False) -> None:
    """Refuse an ending that nothing here writes, before any work is done.

    Raises:
        ValueError: It is unknown, or holds no flow where there is some.
    """
    known = RECORDINGS if flow else (*RECORDINGS, *STREAMS, *GRIDS)
    if out.suffix.lower() not in known:
        raise ValueError(f"out: expected a file ending in {', '.join(known)}, got {out}")


def video_to_grids(
    video: Path, out: Path, camera: EventCamera, *, bins: int, start: int = 0, frames: int | None = None, seed: int = 0,
    force: bool = False,
) -> tuple[int, ...]:  # fmt: skip
    """Write the voxel grids of a video as npz: ``voxels`` (grids, bins, h, w), and ``camera``, as JSON.

    Args:
        video: The file.
        out: An ``.npz`` file.
        camera: One.
        bins: Frame intervals of a voxel grid, one a bin.
        start: First frame.
        frames: How many; else all that follow. What does not fill a voxel grid is left.
        seed: Of the noise.
        force: Replace what is there.

    Returns:
        The shape of what was written.

    Raises:
        VideoError: The video cannot be read, or is too short for one voxel grid.
        FileExistsError: There is a file already, and ``force`` is False.
    """
    refuse_existing(out, force)
    count = _frames(video, start, frames, bins + 1, f"a voxel grid of {bins} bins")
    grids = (count - 1) // bins
    info = probe(video)
    shape = (grids, bins, info.height, info.width)

    def save(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as held:
            with held.open("camera.npy", "w") as member:
                np.lib.format.write_array(member, np.array(json.dumps(camera.describe()[0])))
            with held.open("voxels.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
                for part in _grids(frame_stream(video, start, grids * bins + 1), camera, bins, seed):
                    member.write(part.astype("<f4").tobytes())

    write_whole(out, save, force=force)
    return shape


def video_to_events(
    video: Path, out: Path, camera: EventCamera, *, start: int = 0, frames: int | None = None, every: int = 1,
    seed: int = 0, force: bool = False,
) -> tuple[int, tuple[int, int, int]]:  # fmt: skip
    """Write the events of a video; into an HDF5 recording, its frames as well.

    Args:
        video: The file.
        out: ``.h5``, ``.aedat4``, ``.raw`` or ``.dat``.
        camera: One.
        start: First frame.
        frames: How many; else all that follow.
        every: A recording keeps every so-manieth frame; evaluation windows lie between two of them.
        seed: Of the noise.
        force: Replace what is there.

    Returns:
        How many events there were, and (frames, height, width).

    Raises:
        VideoError: The video cannot be read, or has a single frame.
        FileExistsError: There is a file already, and ``force`` is False.
    """
    refuse_existing(out, force)
    count = _frames(video, start, frames, 2, "events")
    info, times = probe(video), np.rint(timestamps(video)[start : start + count]).astype(np.int64)
    seen = [0]
    blocks = frame_blocks(frame_stream(video, start, count), BLOCK)
    if out.suffix.lower() in RECORDINGS:
        with RecordingWriter(out, (info.height, info.width), force=force) as recording:
            _record(recording, blocks, times, camera, seed, every, seen)
    else:
        packets = event_packets(blocks, times, camera, torch.Generator().manual_seed(seed))
        write_packets(out, _counted(packets, seen), (info.height, info.width), force=force)
    return seen[0], (count, info.height, info.width)


def window_to_recording(
    video: Path, out: Path, camera: EventCamera, *, bins: int, side: int, start: int = 0, frames: int = 101,
    speed: float = 1.0, seed: int = 0, force: bool = False,
) -> tuple[int, int]:  # fmt: skip
    """Move a window over one frame of a video, and write its events, its frames and its exact flow as a recording.

    Args:
        video: The file.
        out: An ``.h5`` file.
        camera: One.
        bins: Frame intervals between two frames that are kept, and that a flow spans: a voxel grid, as in training.
        side: Of the window, pixels.
        start: Which frame of the video.
        frames: Frames to simulate, 40 ms apart.
        speed: Pixels a frame at most, along each axis.
        seed: Of the window's way, and of the noise.
        force: Replace what is there.

    Returns:
        How many events, and how many flows.

    Raises:
        VideoError: The video cannot be read.
        ValueError: The window is not smaller than the picture, or there are too few frames for one flow.
        FileExistsError: There is a file already, and ``force`` is False.
    """
    refuse_existing(out, force)
    if frames <= bins:
        raise ValueError(f"frames: expected more than the {bins} bins of a voxel grid, got {frames}")
    picture = read_frames(video, start, 1)[0]
    clip, flow = warped_clip(picture, frames, side, np.random.default_rng(seed), speed=speed, every=bins)
    times, seen = np.arange(frames, dtype=np.int64) * 40_000, [0]
    with RecordingWriter(out, (side, side), force=force) as recording:
        _record(recording, frame_blocks(clip, BLOCK), times, camera, seed, bins, seen, flow)
    return seen[0], len(flow)


def _record(
    recording: RecordingWriter, blocks: Iterator[NDArray[np.uint8]], times: NDArray[np.int64], camera: EventCamera,
    seed: int, every: int, seen: list[int], flow: NDArray[np.float32] | None = None,
) -> None:  # fmt: skip
    """Write events and every so-manieth frame of a stream of blocks."""
    shown: list[NDArray[np.uint8]] = []

    def kept() -> Iterator[NDArray[np.uint8]]:
        for block in blocks:
            shown[:] = [block]
            yield block

    done = 0
    for packet in _counted(event_packets(kept(), times, camera, torch.Generator().manual_seed(seed)), seen):
        recording.add_events(packet)
        for frame in shown[0]:
            if done % every == 0:
                field = None if flow is None or done == 0 else flow[done // every - 1]
                recording.add_frame(frame, times[done], field)
            done += 1


def _grids(frames: Iterator[NDArray[np.uint8]], camera: EventCamera, bins: int, seed: int) -> Iterator[NDArray[Any]]:
    """Yield voxel grids, a few at a time."""
    v2v, state, info = VideoToVoxel(bins, camera=camera), None, {}
    generator = torch.Generator().manual_seed(seed)
    first = next(frames)
    for block in frame_blocks(frames, bins * max(1, BLOCK // bins)):
        x = torch.from_numpy(block if state is not None else np.concatenate([first[None], block]))[None]
        grids, info = v2v(x, generator, state, return_info=True, channels="grey")
        state = info["state"]
        yield grids[0].numpy()


def _counted(packets: Iterator[NDArray[Any]], seen: list[int]) -> Iterator[NDArray[Any]]:
    for packet in packets:
        seen[0] += len(packet)
        yield packet


def _frames(video: Path, start: int, frames: int | None, least: int, what: str) -> int:
    """Return how many frames are read, and warn of uneven times."""
    info = probe(video)
    warn_if_uneven(video, info)
    count = info.frames - start if frames is None else min(frames, info.frames - start)
    if count < least:
        raise VideoError(f"{video}: expected at least {least} frames from frame {start} on, for {what}, got {count}")
    return count
