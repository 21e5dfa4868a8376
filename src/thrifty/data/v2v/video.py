"""Frames out of real video files, through PyAV: exact by presentation time, grey, and only what is asked for.

Seeking is inexact in some containers, so a file's packets are listed first (without decoding them), and what a seek
brings must have the presentation times that are wanted; where it has not, the file is decoded from its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from thrifty._common.extras import require

#: Endings that are taken for videos in a folder.
SUFFIXES = (".mp4", ".avi", ".mkv", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".ogv")

#: Containers that store every frame's presentation time; others' are guessed.
PRECISE = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")

Grey = Callable[[Any], NDArray[np.uint8]]

#: Intervals that differ from the median by more than this share make a variable frame rate.
UNEVEN = 0.5


class VideoError(ValueError):
    """A video that cannot be read as asked: corrupt, cut off, or too short."""


@dataclass(frozen=True)
class VideoInfo:
    """What the header and the packets of a video say.

    Args:
        frames: How many there are.
        height: In pixels.
        width: In pixels.
        rate: Frames a second.
        size: Bytes of the file.
        uneven: Share of intervals that are not the usual one.
    """

    frames: int
    height: int
    width: int
    rate: float
    size: int
    uneven: float


def video_files(paths: str | os.PathLike[str] | list[Any]) -> list[str]:
    """Return the videos meant: files, folders of them (sorted, any depth), or lists in ``.txt`` files, one path a line.

    Raises:
        FileNotFoundError: There is none, or a path is missing.
    """
    given = paths if isinstance(paths, list | tuple) else [paths]
    found: list[str] = []
    for path in map(Path, given):
        if path.is_dir():
            found += [str(p) for p in sorted(path.rglob("*")) if p.suffix.lower() in SUFFIXES]
        elif path.suffix == ".txt":
            lines = [line.strip() for line in path.read_text().splitlines()]
            found += [str(path.parent / line) for line in lines if line and not line.startswith("#")]
        else:
            found.append(str(path))
    missing = [path for path in found[:1000] if not Path(path).is_file()]
    if missing or not found:
        raise FileNotFoundError(
            f"videos: expected video files, got none at {', '.join(missing[:3] or map(str, given))}"
        )
    return found


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """Return what a video holds, without decoding it.

    Raises:
        VideoError: It cannot be opened, or has no video in it.
        ImportError: PyAV is not installed.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        times, _ = _times(container, stream)
        steps = np.diff(times)
        usual = float(np.median(steps)) if len(steps) else 1.0
        uneven = float((np.abs(steps - usual) > UNEVEN * usual).mean()) if len(steps) else 0.0
        context = stream.codec_context
        return VideoInfo(
            len(times),
            context.height,
            context.width,
            float(stream.average_rate or 0),
            Path(path).stat().st_size,
            uneven,
        )


def timestamps(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Return the presentation time of every frame in microseconds, from the first one on.

    Raises:
        VideoError: As :func:`probe`.
    """
    with _opened(path) as container:
        stream = container.streams.video[0]
        times, _ = _times(container, stream)
        micro: NDArray[np.float64] = (times - times[:1]).astype(np.float64) * float(stream.time_base * 1_000_000)
        return micro


def read_frames(
    path: str | os.PathLike[str],
    start: int = 0,
    count: int | None = None,
    *,
    window: tuple[int, int, int, int] | None = None,
    full_range: bool = False,
    threads: int = 1,
) -> UInt8[np.ndarray, "frames h w"]:
    """Decode some frames of a video as grey levels.

    The luma plane is taken as it is (limited-range video keeps 16 for black); formats without one are converted.

    Args:
        path: The file.
        start: First frame.
        count: How many; ``None``: all that follow.
        window: (top, left, height, width) to cut out.
        full_range: Expand luma of 16 to 235.
        threads: Of the decoder; a data loader has a process a file instead.

    Returns:
        uint8.

    Raises:
        VideoError: The file is corrupt, or has fewer frames (the message says how many were wanted, and how many came),
            or their size changes on the way.
        ValueError: ``start``, ``count`` or ``window`` will not do.
    """
    if start < 0 or (count is not None and count < 1):
        raise ValueError(
            f"start, count: expected a start of at least 0 and a count of at least 1, got {start}, {count}"
        )
    with _opened(path) as container:
        times, sure = _times(container, container.streams.video[0])
    wanted = len(times) - start if count is None else count
    if start + wanted > len(times) or wanted < 1:
        raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {len(times)} in all")
    grey = partial(_grey, path=path, window=window, full_range=full_range)
    frames: list[NDArray[np.uint8]] = []
    presented: list[int] = []
    if sure and start:
        frames, presented = _decoded(path, grey, start, wanted, threads, int(times[start]))
    if presented != times[start : start + wanted].tolist():
        frames, _ = _decoded(path, grey, start, wanted, threads)
    if len(frames) < wanted:
        raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {len(frames)}; is it cut off?")
    if len({frame.shape for frame in frames}) > 1:
        raise VideoError(f"{path}: the size of its frames changes: {sorted({frame.shape for frame in frames})}")
    return np.stack(frames)


def _decoded(
    path: str | os.PathLike[str], grey: Grey, start: int, wanted: int, threads: int, first: int | None = None
) -> tuple[list[NDArray[np.uint8]], list[int]]:
    """Decode frames in their order, from a seek to the presentation time ``first`` on, or else from the beginning.

    Returns:
        Their grey levels, and their presentation times.
    """
    frames, presented = [], []
    skip = 0 if first is not None else start
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE" if threads == 1 else "AUTO"
        if first is not None:
            container.seek(first, stream=stream, backward=True)
        try:
            for frame in container.decode(stream):
                if skip or (first is not None and frame.pts is not None and frame.pts < first):
                    skip -= bool(skip)
                    continue
                frames.append(grey(frame))
                presented.append(frame.pts)
                if len(frames) == wanted:
                    break
        except require("av", extra="vision").error.FFmpegError as error:
            raise VideoError(f"{path}: it is corrupt behind frame {start + len(frames)}: {error}") from None
    return frames, presented


def write_video(path: str | os.PathLike[str], frames: UInt8[np.ndarray, "frames h w *c"], rate: float = 25) -> Path:
    """Write grey or RGB frames as H.264; an odd row or column is cut off.

    Raises:
        ImportError: PyAV is not installed.
    """
    av = require("av", extra="vision")
    kind = "gray" if frames.ndim == 3 else "rgb24"
    height, width = (side - side % 2 for side in frames.shape[1:3])
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("h264", rate=round(rate))
        stream.height, stream.width, stream.pix_fmt = height, width, "yuv420p"
        for levels in frames[:, :height, :width]:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(levels), format=kind)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return Path(path)


def _opened(path: str | os.PathLike[str]) -> Any:
    av = require("av", extra="vision")
    try:
        container = av.open(str(path))
    except (av.error.FFmpegError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"videos: there is no file {path}") from None
        raise VideoError(f"{path}: it cannot be opened as a video: {error}") from None
    if not container.streams.video:
        container.close()
        raise VideoError(f"{path}: expected a video stream, got none")
    return container


def _times(container: Any, stream: Any) -> tuple[NDArray[np.int64], bool]:
    """Return the sorted times of all packets, and whether they are surely those of presentation."""
    av = require("av", extra="vision")
    times: list[int] = []
    sure = container.format.name in PRECISE
    try:
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                sure &= packet.pts is not None
                times += [packet.dts if packet.pts is None else packet.pts]
    except av.error.FFmpegError as error:
        raise VideoError(f"{container.name}: it is corrupt behind packet {len(times)}: {error}") from None
    if None in times:
        raise VideoError(f"{container.name}: its packets have no times; remux it (ffmpeg -i in -c copy out.mp4)")
    return np.sort(np.array(times, np.int64)), sure


def _grey(frame: Any, path: Any, window: tuple[int, int, int, int] | None, full_range: bool) -> NDArray[np.uint8]:
    name, bits = frame.format.name, frame.format.components[0].bits
    levels: NDArray[np.uint8]
    limited = False
    if name.startswith(("yuv4", "yuvj4", "yuva4", "gray", "nv12")) and (bits == 8 or name.endswith("le")):
        plane = frame.planes[0]
        words: NDArray[Any] = np.frombuffer(plane, np.uint8 if bits == 8 else np.dtype("<u2"))
        rows = words.reshape(-1, plane.line_size // words.itemsize)[: frame.height, : frame.width]
        levels = (rows >> (bits - 8)).astype(np.uint8)
        limited = not name.startswith(("yuvj", "gray")) and frame.color_range != 2  # 2 is JPEG's
    else:
        levels = frame.to_ndarray(format="gray")  # of full range
    if window is not None:
        top, left, height, width = window
        if min(top, left) < 0 or top + height > frame.height or left + width > frame.width:
            raise VideoError(f"{path}: a window of {window} does not fit into {frame.height} x {frame.width}")
        levels = levels[top : top + height, left : left + width]
    if full_range and limited:
        levels = np.rint(np.clip((np.arange(256) - 16.0) / 219, 0, 1) * 255).astype(np.uint8)[levels]
    return levels.copy()
