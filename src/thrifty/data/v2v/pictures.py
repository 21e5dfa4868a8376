"""Pictures of what cannot be seen: voxel grids in red and blue, flow on the colour wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import ArrayLike

from thrifty._common.extras import require
from thrifty._common.files import write_whole


def voxel_picture(voxel: Float[Any, "*b h w"], scale: float | None = None) -> UInt8[np.ndarray, "h w 3"]:
    """Draw events, summed over the bins: brightening red, darkening blue, on white.

    Args:
        voxel: Signed counts.
        scale: Count that is drawn at full strength; the 99th percentile, at least 1, if ``None``.

    Example:
        >>> voxel_picture(np.array([[1.0, -1.0, 0.0]])).tolist()
        [[[255, 0, 0], [0, 0, 255], [255, 255, 255]]]
    """
    signed = np.asarray(voxel, np.float64)
    signed = signed.reshape(-1, *signed.shape[-2:]).sum(axis=0)
    scale = scale or max(1.0, float(np.quantile(np.abs(signed), 0.99)))
    strength = np.clip(signed / scale, -1, 1)
    up, down = np.clip(strength, 0, 1), np.clip(-strength, 0, 1)
    colour = np.stack([1 - down, 1 - up - down, 1 - up], axis=-1)
    picture: UInt8[np.ndarray, "h w 3"] = np.rint(255 * colour).astype(np.uint8)
    return picture


def flow_picture(flow: Float[Any, "2 h w"], scale: float | None = None) -> UInt8[np.ndarray, "h w 3"]:
    """Draw flow: the hue says where to, the saturation how far.

    Args:
        flow: (dx, dy), pixels.
        scale: Length that is drawn at full saturation; the longest, if ``None``.

    Example:
        >>> flow_picture(np.array([[[1.0, 0.0]], [[0.0, 0.0]]])).tolist()
        [[[255, 0, 0], [255, 255, 255]]]
    """
    dx, dy = np.nan_to_num(np.asarray(flow, np.float64))
    length = np.hypot(dx, dy)
    scale = scale or max(float(length.max()), 1e-9)
    saturation = np.clip(length / scale, 0, 1)
    turn = (np.arctan2(dy, dx) / (2 * np.pi)) % 1 * 6
    hue = np.stack([np.clip(np.abs((turn + shift) % 6 - 3) - 1, 0, 1) for shift in (0, 4, 2)], axis=-1)
    picture: UInt8[np.ndarray, "h w 3"] = np.rint(255 * (1 - saturation[..., None] * (1 - hue))).astype(np.uint8)
    return picture


def flow_wheel(size: int = 151) -> UInt8[np.ndarray, "s s 3"]:
    """Draw the legend of :func:`flow_picture`."""
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    inside = np.hypot(x, y) <= (size - 1) / 2
    return flow_picture(np.stack([x, y]) * inside, scale=(size - 1) / 2)


def save_png(path: str | os.PathLike[str], picture: ArrayLike, *, force: bool = False) -> Path:
    """Write a picture as PNG.

    Raises:
        FileExistsError: There is a file already, and ``force`` is False.
        ImportError: Pillow is not installed (torchvision brings it).
    """
    image = require("PIL.Image", extra="vision").fromarray(np.asarray(picture))
    return write_whole(path, lambda file: image.save(file, format="PNG"), force=force)
