"""What a video's header and its packets say, without decoding: how many frames, when, and whether all are there."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require

#: Containers that store every frame's presentation time; others' are guessed.
PRECISE = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")

#: Intervals that differ from the median by more than this share make a variable frame rate.
UNEVEN = 0.5

#: A file whose packets end before this share of the duration that its header names was cut off.
WHOLE = 0.95


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
        uneven: Share of intervals, or of the time, whichever is larger, that is not of the usual length.
    """

    frames: int
    height: int
    width: int
    rate: float
    size: int
    uneven: float


def probe(path: str | os.PathLike[str]) -> VideoInfo:
    """Return what a video holds, without decoding it.

    Raises:
        VideoError: It cannot be opened, has no video in it, or ends before its header says.
        ImportError: PyAV is not installed.
    """
    with opened(path) as container:
        stream = container.streams.video[0]
        times, _ = listed(container)
        steps = np.diff(times)
        odd = np.abs(steps - np.median(steps)) > UNEVEN * np.median(steps) if len(steps) else np.zeros(0, bool)
        uneven = max(odd.mean(), steps[odd].sum() / max(steps.sum(), 1)) if odd.any() else 0.0
        context = stream.codec_context
        rate, size = float(stream.average_rate or 0), Path(path).stat().st_size
        return VideoInfo(len(times), context.height, context.width, rate, size, float(uneven))


def warn_if_uneven(path: str | os.PathLike[str], info: VideoInfo) -> None:
    """Warn of a variable frame rate, or of frames that were dropped or doubled."""
    if info.uneven > 0.02:
        warnings.warn(
            f"{path}: {info.uneven:.0%} of its frame intervals, or of its time, are uneven (variable frame rate, or "
            "frames dropped or doubled); they will look like pauses and jumps",
            stacklevel=3,
        )


def timestamps(path: str | os.PathLike[str]) -> NDArray[np.float64]:
    """Return the presentation time of every frame in microseconds, from the first one on.

    Raises:
        VideoError: As :func:`probe`.
    """
    with opened(path) as container:
        times, _ = listed(container)
        scale = float(container.streams.video[0].time_base * 1_000_000)
        micro: NDArray[np.float64] = (times - times[:1]).astype(np.float64) * scale
        return micro


def opened(path: str | os.PathLike[str]) -> Any:
    """Return PyAV's container of a video.

    Raises:
        FileNotFoundError: There is no such file.
        VideoError: It cannot be opened, or has no video in it.
        ImportError: PyAV is not installed.
    """
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


def listed(container: Any) -> tuple[NDArray[np.int64], bool]:
    """Return the sorted times of all frames of a container, and whether they are surely those of presentation.

    Raises:
        VideoError: Packets cannot be read or have no times, or they end before the header says.
    """
    av = require("av", extra="vision")
    stream = container.streams.video[0]
    times: list[int] = []
    begin, end = [], []
    sure = container.format.name in PRECISE
    try:
        for packet in container.demux(stream):
            at = packet.dts if packet.pts is None else packet.pts
            if packet.size and at is None:
                raise VideoError(
                    f"{container.name}: its packets have no times; remux it (ffmpeg -i in -c copy out.mp4)"
                )
            if packet.size:
                begin.append(at)
                end.append(at + (packet.duration or 0))
            if packet.size and not packet.is_discard:
                sure &= packet.pts is not None
                times.append(at)
    except av.error.FFmpegError as error:
        raise VideoError(f"{container.name}: it is corrupt behind packet {len(times)}: {error}") from None
    promised = _duration(container, stream)
    found = float((max(end) - min(begin)) * stream.time_base) if times else 0.0
    if promised and found < WHOLE * promised - 2 / float(stream.average_rate or 1):
        raise VideoError(
            f"{container.name}: it is cut off: expected {promised:.2f} s, as its header says, got {found:.2f} s"
        )
    return np.sort(np.array(times, np.int64)), sure


def _duration(container: Any, stream: Any) -> float:
    """Return the seconds that the header promises; 0 where it says nothing of this stream."""
    if stream.duration:
        return float(stream.duration * stream.time_base)
    tag = stream.metadata.get("DURATION", "")  # Matroska's
    if tag.count(":") == 2:
        hours, minutes, seconds = map(float, tag.split(":"))
        return 3600 * hours + 60 * minutes + seconds
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else 0.0
