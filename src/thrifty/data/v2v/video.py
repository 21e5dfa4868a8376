"""Frames out of real video files, through PyAV: exact by presentation time, grey, and only what is asked for.

Seeking by frame number is inexact in some containers, so a file's packets are listed first (without decoding them), and
the frames wanted are those at their presentation times.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from thrifty._common.extras import require

#: Endings that are taken for videos in a folder.
SUFFIXES = (".mp4", ".avi", ".mkv", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".ogv")

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
        times = _times(container, stream)
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
        times = _times(container, stream)
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
    frames: list[NDArray[np.uint8]] = []
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE" if threads == 1 else "AUTO"
        times = _times(container, stream)
        wanted = len(times) - start if count is None else count
        if start + wanted > len(times) or wanted < 1:
            raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {len(times)} in all")
        first = times[start]
        container.seek(int(first), stream=stream, backward=True)
        try:
            for frame in container.decode(stream):
                if frame.pts is not None and frame.pts < first:
                    continue
                frames.append(_grey(frame, path, window, full_range))
                if len(frames) == wanted:
                    break
        except require("av", extra="vision").error.FFmpegError as error:
            raise VideoError(f"{path}: it is corrupt behind frame {start + len(frames)}: {error}") from None
    if len(frames) < wanted:
        raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {len(frames)}; is it cut off?")
    if len({frame.shape for frame in frames}) > 1:
        raise VideoError(f"{path}: the size of its frames changes: {sorted({frame.shape for frame in frames})}")
    return np.stack(frames)


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


def _times(container: Any, stream: Any) -> NDArray[np.int64]:
    """Return the sorted presentation times of all packets, and rewind."""
    av = require("av", extra="vision")
    times: list[int] = []
    try:
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                times += [packet.dts if packet.pts is None else packet.pts]
    except av.error.FFmpegError as error:
        raise VideoError(f"{container.name}: it is corrupt behind packet {len(times)}: {error}") from None
    if None in times:
        raise VideoError(f"{container.name}: its packets have no times; remux it (ffmpeg -i in -c copy out.mp4)")
    container.seek(0, stream=stream)
    return np.sort(np.array(times, np.int64))


def _grey(frame: Any, path: Any, window: tuple[int, int, int, int] | None, full_range: bool) -> NDArray[np.uint8]:
    planar = frame.format.name.startswith(("yuv4", "yuvj4", "gray", "nv12")) and "10" not in frame.format.name
    if planar and "12le" not in frame.format.name and "16" not in frame.format.name:
        plane = frame.planes[0]
        levels = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width]
    else:
        levels = frame.to_ndarray(format="gray")
    if window is not None:
        top, left, height, width = window
        if min(top, left) < 0 or top + height > frame.height or left + width > frame.width:
            raise VideoError(f"{path}: a window of {window} does not fit into {frame.height} x {frame.width}")
        levels = levels[top : top + height, left : left + width]
    if full_range and frame.color_range != 2:  # 2 is JPEG's: full already
        table = np.rint(np.clip((np.arange(256) - 16.0) / 219, 0, 1) * 255).astype(np.uint8)
        return table[levels]
    return levels.copy()
