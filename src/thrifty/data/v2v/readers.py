"""Grey frames in the order of presentation, through PyAV, OpenCV or torchcodec.

Seeking is inexact in some containers, so what a seek brings must have the presentation times that are wanted; where it
has not, PyAV decodes the file from its beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty.data.v2v.intensity import to_grey
from thrifty.data.v2v.packets import VideoError, listed, opened

Path = str | os.PathLike[str]
Frames = Iterator[NDArray[np.uint8]]


def pyav_frames(path: Path, start: int, count: int | None, threads: int, full_range: bool) -> Frames:
    """Yield frames by PyAV: the luma plane as it is, or expanded.

    Raises:
        VideoError: The file is corrupt, or has fewer frames.
    """
    with opened(path) as container:
        times, sure = listed(container)
    wanted = len(times) - start if count is None else count
    if start + wanted > len(times) or wanted < 1:
        raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {len(times)} in all")
    done = 0
    if sure and start:
        for frame in _decoded(path, threads, start, int(times[start])):
            if frame.pts != times[start + done]:
                break
            yield _grey(frame, full_range)
            done += 1
            if done == wanted:
                return
    for number, frame in enumerate(_decoded(path, threads)):
        if number >= start + done:
            yield _grey(frame, full_range)
            done += 1
            if done == wanted:
                return
    raise VideoError(f"{path}: expected {wanted} frames from frame {start} on, got {done}; is it cut off?")


def opencv_frames(path: Path, start: int, count: int | None, threads: int, full_range: bool) -> Frames:
    """Yield frames by OpenCV, from the file's beginning on; arguments and errors as in :func:`pyav_frames`."""
    cv2 = require("cv2", extra="vision")
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, threads])
    try:
        if not video.isOpened():
            raise VideoError(f"{path}: it cannot be opened as a video")
        video.set(cv2.CAP_PROP_ORIENTATION_AUTO, 0)
        skipped = sum(1 for _ in range(start) if video.grab())
        done = 0
        while skipped == start and done != count:
            there, picture = video.read()
            if not there:
                break
            yield cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
            done += 1
    finally:
        video.release()
    _complete(path, start, count, done)


def torchcodec_frames(path: Path, start: int, count: int | None, threads: int, full_range: bool) -> Frames:
    """Yield frames by torchcodec, 32 at a time; arguments and errors as in :func:`pyav_frames`."""
    try:
        from torchcodec.decoders import VideoDecoder  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(f"reader: 'torchcodec' needs torchcodec: pip install torchcodec ({error})") from error
    done = 0
    try:
        video = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=threads)
        end = len(video) if count is None else min(start + count, len(video))
        for at in range(start, end, 32):
            for levels in to_grey(video.get_frames_in_range(at, min(at + 32, end)).data, "rgb"):
                yield levels.numpy()
                done += 1
    except (RuntimeError, ValueError, IndexError) as error:
        if "libtorchcodec" in str(error):  # it loads FFmpeg's libraries as late as this
            raise ImportError("reader: 'torchcodec' needs FFmpeg's shared libraries, and found none") from error
        raise VideoError(f"{path}: it is corrupt behind frame {start + done}: {error}") from None
    _complete(path, start, count, done)


#: By name. All but PyAV convert to colours first, and so to full range.
READERS: dict[str, Callable[[Path, int, int | None, int, bool], Frames]] = {
    "pyav": pyav_frames,
    "opencv": opencv_frames,
    "torchcodec": torchcodec_frames,
}


def _complete(path: Path, start: int, count: int | None, done: int) -> None:
    if done < (count or 1):
        raise VideoError(f"{path}: expected {count or 'some'} frames from frame {start} on, got {done}; is it cut off?")


def _decoded(path: Path, threads: int, start: int = 0, first: int | None = None) -> Iterator[Any]:
    """Yield PyAV's frames in their order, from a seek to the presentation time ``first`` on, or from the beginning."""
    seen = start
    with opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "NONE" if threads == 1 else "AUTO"
        if first is not None:
            container.seek(first, stream=stream, backward=True)
        try:
            for frame in container.decode(stream):
                if first is None or frame.pts is None or frame.pts >= first:
                    yield frame
                    seen += 1
        except require("av", extra="vision").error.FFmpegError as error:
            raise VideoError(f"{path}: it is corrupt behind frame {seen}: {error}") from None


def _grey(frame: Any, full_range: bool) -> NDArray[np.uint8]:
    """Return the luma plane of a frame, or what formats without one are converted to."""
    name, bits = frame.format.name, frame.format.components[0].bits
    if not (name.startswith(("yuv4", "yuvj4", "yuva4", "gray", "nv12")) and (bits == 8 or name.endswith("le"))):
        converted: NDArray[np.uint8] = frame.to_ndarray(format="gray")  # of full range
        return converted
    plane = frame.planes[0]
    words: NDArray[Any] = np.frombuffer(plane, np.uint8 if bits == 8 else np.dtype("<u2"))
    rows = words.reshape(-1, plane.line_size // words.itemsize)[: frame.height, : frame.width]
    levels = rows if bits == 8 else (rows >> (bits - 8)).astype(np.uint8)
    limited = not name.startswith(("yuvj", "gray")) and frame.color_range != 2  # 2 is JPEG's
    return _EXPANDED[levels] if full_range and limited else levels


_EXPANDED = np.rint(np.clip((np.arange(256) - 16.0) / 219, 0, 1) * 255).astype(np.uint8)
