"""Frames out of real video files: exact by presentation time, grey, only what is asked for, at once or one by one."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from thrifty._common.checks import one_of, whole
from thrifty._common.extras import require
from thrifty.data.v2v.packets import VideoError, VideoInfo, probe, timestamps, warn_if_uneven
from thrifty.data.v2v.readers import READERS

__all__ = [
    "SUFFIXES", "Reader", "VideoError", "VideoInfo", "content_key", "frame_blocks", "frame_stream", "probe",
    "read_frames", "timestamps", "video_files", "warn_if_uneven", "write_video",
]  # fmt: skip

#: Endings that are taken for videos in a folder.
SUFFIXES = (".mp4", ".avi", ".mkv", ".webm", ".mov", ".m4v", ".mpg", ".mpeg", ".ogv", ".ts")

Reader = Literal["pyav", "opencv", "torchcodec"]


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


@lru_cache(maxsize=1 << 16)
def content_key(path: str) -> str:
    """Return a name of a file's content, wherever the file lies: a hash of its size, its first and its last 64 KiB."""
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        held = file.read(1 << 16)
        file.seek(max(0, size - (1 << 16)))
        held += file.read()
    return hashlib.blake2b(held, digest_size=16, key=str(size).encode()).hexdigest()


def frame_stream(
    path: str | os.PathLike[str],
    start: int = 0,
    count: int | None = None,
    *,
    window: tuple[int, int, int, int] | None = None,
    full_range: bool = False,
    threads: int = 1,
    reader: Reader = "pyav",
) -> Iterator[UInt8[np.ndarray, "h w"]]:
    """Decode some frames of a video as grey levels, one after another, and keep none.

    By PyAV, the luma plane is taken as it is (limited-range video keeps 16 for black); formats without one are
    converted.

    Args:
        path: The file.
        start: First frame.
        count: How many; ``None``: all that follow.
        window: (top, left, height, width) to cut out.
        full_range: Expand luma of 16 to 235.
        threads: Of the decoder; a data loader has a process a file instead.
        reader: ``"pyav"``, ``"opencv"`` or ``"torchcodec"``; the latter two always give full range.

    Yields:
        uint8, (h, w).

    Raises:
        VideoError: The file is corrupt, or has fewer frames (the message says how many were wanted, and how many came),
            or their size changes on the way.
        ValueError: ``start``, ``count``, ``window`` or ``reader`` will not do.
        ImportError: The reader is not installed.
    """
    whole("start", start, least=0)
    if count is not None:
        whole("count", count)
    one_of("reader", reader, tuple(READERS))
    if reader != "pyav" and not full_range:
        raise ValueError(f"reader: {reader!r} gives full range only; expected full_range=True, got False")
    size: tuple[int, ...] | None = None
    for levels in READERS[reader](path, start, count, threads, full_range):
        if size not in (None, levels.shape):
            raise VideoError(f"{path}: the size of its frames changes: from {size} to {levels.shape}")
        size = levels.shape
        yield (levels if window is None else _cut(path, levels, window)).copy()


def read_frames(
    path: str | os.PathLike[str],
    start: int = 0,
    count: int | None = None,
    *,
    window: tuple[int, int, int, int] | None = None,
    full_range: bool = False,
    threads: int = 1,
    reader: Reader = "pyav",
) -> UInt8[np.ndarray, "frames h w"]:
    """Decode some frames of a video as grey levels, all at once: arguments and errors as in :func:`frame_stream`."""
    return np.stack(
        list(frame_stream(path, start, count, window=window, full_range=full_range, threads=threads, reader=reader))
    )


def frame_blocks(frames: Iterable[UInt8[np.ndarray, "h w"]], size: int) -> Iterator[UInt8[np.ndarray, "frames h w"]]:
    """Gather a stream of frames into blocks of so many; the last one may be smaller."""
    left = iter(frames)
    while block := list(itertools.islice(left, size)):
        yield np.stack(block)


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


def _cut(
    path: str | os.PathLike[str], levels: NDArray[np.uint8], window: tuple[int, int, int, int]
) -> NDArray[np.uint8]:
    top, left, height, width = window
    if min(top, left) < 0 or top + height > levels.shape[0] or left + width > levels.shape[1]:
        raise VideoError(f"{path}: a window of {window} does not fit into {levels.shape[0]} x {levels.shape[1]}")
    return levels[top : top + height, left : left + width]
