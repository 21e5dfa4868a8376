"""Training event vision on ordinary video: what stored voxel grids take beside the videos themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thrifty._common.extras import require
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.offers import offers


def advise_videos(videos: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Advice:
    """Tell what voxel grids made beforehand from a folder of videos take, and which method needs none stored.

    Args:
        videos: Files, folders of them, or ``.txt`` lists of paths; headers and packets are read, nothing is decoded.

    Raises:
        ValueError: None of them can be read.
        FileNotFoundError: There is none.
        ImportError: PyAV is not installed.

    Example:
        >>> from thrifty.data.v2v.video import write_video
        >>> clip = write_video("clip.mp4", np.zeros((31, 64, 64), np.uint8))
        >>> [offer.method for offer in advise_videos(clip).offers if offer.applies]
        ['v2v']

    Source:
        arXiv 2505.16797, section 1.
    """
    given = [videos] if isinstance(videos, str | os.PathLike) else list(videos)
    index, _ = require("thrifty.data.v2v.index", extra="vision").VideoIndex.scan(given)
    pixels = index.frames.astype(np.int64) * index.sizes.prod(axis=1)
    size = sum(Path(index.path(i)).stat().st_size for i in range(len(index)))
    frames = int(index.frames.sum(dtype=np.int64))
    height = float(np.average(index.sizes[:, 0], weights=index.frames))
    facts: dict[str, float | str] = {
        "representation": "events", "frames": frames, "height": height, "width": float(pixels.sum()) / frames / height,
        "video_bytes": size,
    }  # fmt: skip
    grids = Part("voxel grids", Resource.DATA, 4.0 * float(pixels.sum()), "frames · height · width · 4 bytes")
    now = Account((grids,))
    said = f"event vision trained on {len(index)} videos: {frames} frames, {size / 1e6:.1f} MB"
    return Advice(said, now, offers(Workload(Task.IMAGE_TRAINING, facts), now))
