"""A list of videos that stays small: paths as one block of bytes, frame counts and sizes as arrays, saved as npz."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.files import write_whole
from thrifty.data.v2v.video import VideoError, probe, video_files, warn_if_uneven


class VideoIndex:
    """Which videos there are, and how long and large each is.

    Data loader workers share its arrays; a list of Python strings would be copied into each, page by page.

    Args:
        paths: Of the videos.
        frames: Of each.
        sizes: (height, width) of each.

    Raises:
        ValueError: There is not one frame count and one size a path.

    Example:
        >>> index = VideoIndex(["a.mp4", "b.mp4"], [250, 100], [(272, 640), (144, 176)])
        >>> index.path(1), index.frames.tolist(), index.nbytes
        ('b.mp4', [250, 100], 50)
    """

    def __init__(self, paths: Sequence[str], frames: Any, sizes: Any) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)
        self._text = np.frombuffer(b"".join(encoded), np.uint8)
        self.frames: NDArray[np.int32] = np.asarray(frames, np.int32)
        self.sizes: NDArray[np.int32] = np.asarray(sizes, np.int32).reshape(-1, 2)
        if not len(paths) == len(self.frames) == len(self.sizes):
            raise ValueError(f"frames, sizes: expected one a path, got {len(self.frames)} and {len(self.sizes)}")

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return int(self._text.nbytes + self._ends.nbytes + self.frames.nbytes + self.sizes.nbytes)

    def path(self, video: int) -> str:
        """Return the path of one video."""
        begin = self._ends[video - 1] if video else 0
        return os.fsdecode(self._text[begin : self._ends[video]].tobytes())

    @classmethod
    def scan(
        cls,
        videos: Any,
        *,
        on_error: str = "skip",
        workers: int = 4,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> tuple[VideoIndex, list[str]]:
        """Look into every video once, without decoding.

        Args:
            videos: As :func:`~thrifty.data.v2v.video.video_files` takes them.
            on_error: ``"skip"`` leaves out, with a warning, what cannot be opened; ``"raise"`` does not.
            workers: Threads.
            progress: Told (done, total).

        Returns:
            The index, and what was left out.

        Raises:
            VideoError: A video cannot be read and ``on_error`` is ``"raise"``, or none can be.
        """
        paths = video_files(videos)

        def look(path: str) -> Any:
            try:
                return probe(path)
            except (VideoError, OSError) as error:
                if on_error == "raise":
                    raise
                return error

        kept, left_out = [], []
        with ThreadPoolExecutor(workers) as pool:
            for done, (path, found) in enumerate(zip(paths, pool.map(look, paths), strict=True), start=1):
                if isinstance(found, Exception):
                    warnings.warn(f"left out: {found}", stacklevel=2)
                    left_out.append(path)
                    continue
                warn_if_uneven(path, found)
                kept.append((path, found))
                progress(done, len(paths))
        if not kept:
            raise VideoError(f"videos: expected at least one that can be read, got none of {len(paths)}")
        infos = [info for _, info in kept]
        index = cls([p for p, _ in kept], [i.frames for i in infos], [(i.height, i.width) for i in infos])
        return index, left_out

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it as npz.

        Args:
            path: Where.
            force: Replace what is there.

        Returns:
            The path.

        Raises:
            FileExistsError: There is a file already, and ``force`` is False.
        """
        held = io.BytesIO()
        np.savez_compressed(held, text=self._text, ends=self._ends, frames=self.frames, sizes=self.sizes)
        return write_whole(path, held.getvalue(), force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> VideoIndex:
        """Read it back.

        Args:
            path: What :meth:`save` wrote.

        Returns:
            The index.

        Raises:
            ValueError: It is no index.
        """
        with np.load(path, allow_pickle=False) as held:
            if not {"text", "ends", "frames", "sizes"} <= set(held.files):
                raise ValueError(f"{path}: expected an index of videos, got {', '.join(held.files)}")
            made = cls.__new__(cls)
            made._text, made._ends = held["text"], held["ends"]
            made.frames, made.sizes = held["frames"], held["sizes"]
        return made
