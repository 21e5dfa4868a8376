"""Frames to log intensity: BT.601 luma, reversed gamma, logarithm; for uint8 a table of 256 entries.

Paper: arXiv 2505.16797, section 3.2; also here is what turns away frames whose range or channels are in doubt.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor

from thrifty._common.checks import one_of

Channels = Literal["rgb", "bgr", "grey"]
_LUMA = {"rgb": (0.299, 0.587, 0.114), "bgr": (0.114, 0.587, 0.299)}


@lru_cache(maxsize=64)
def _table(gamma: float | str, log_eps: float, full_range: bool) -> NDArray[np.float64]:
    grey = np.arange(256) / 255
    if full_range:
        grey = np.clip((np.arange(256) - 16) / 219, 0, 1)
    made: NDArray[np.float64] = np.log(log_eps + _linear(grey, gamma))
    made.flags.writeable = False
    return made


def log_table(
    gamma: float | Literal["srgb"] = 2.2, log_eps: float = 1e-3, *, full_range: bool = False
) -> Float[np.ndarray, 256]:
    """Return the log intensity of every grey level.

    Args:
        gamma: Of the video, reversed before the logarithm; 1 switches it off, ``"srgb"`` is the piecewise curve.
        log_eps: Added to the intensity; it sets how steep black is.
        full_range: Expand limited-range video, whose black is 16 and whose white is 235.

    Returns:
        Natural logarithms, increasing.

    Raises:
        ValueError: ``gamma`` or ``log_eps`` is not above 0.

    Example:
        >>> [round(float(value), 6) for value in log_table()[[0, 1, 255]]]
        [-6.907755, -6.902691, 0.001]

    Source:
        arXiv 2505.16797, section 3.2.
    """
    if gamma != "srgb" and not (isinstance(gamma, int | float) and np.isfinite(gamma) and gamma > 0):
        raise ValueError(f"gamma: expected a number above 0, or 'srgb', got {gamma!r}")
    if not (np.isfinite(log_eps) and log_eps > 0):
        raise ValueError(f"log_eps: expected a number above 0, got {log_eps!r}")
    return _table(gamma, log_eps, full_range)


def log_intensity(frames: Float[Tensor, ...], gamma: float | str = 2.2, log_eps: float = 1e-3) -> Float[Tensor, ...]:
    """Return the log intensity of grey values in [0, 1]: the formula behind :func:`log_table`.

    Args:
        frames: Of any shape.
        gamma: Of the video, reversed before the logarithm; 1 switches it off, ``"srgb"`` is the piecewise curve.
        log_eps: Added to the intensity.

    Example:
        >>> float(log_intensity(torch.tensor([1.0]), log_eps=1.0))
        0.693147...

    Source:
        arXiv 2505.16797, section 3.2.
    """
    return torch.log(log_eps + _linear(frames, gamma))


def _linear(grey: Any, gamma: float | str) -> Any:
    if gamma != "srgb":
        return grey**gamma
    xp = np if isinstance(grey, np.ndarray) else torch
    return xp.where(grey <= 0.04045, grey / 12.92, ((grey + 0.055) / 1.055) ** 2.4)


def to_grey(frames: UInt8[Tensor, "*n h w 3"], channels: Channels) -> UInt8[Tensor, "*n h w"]:
    """Return BT.601 luma, rounded to uint8.

    Args:
        frames: Colour frames, channels last.
        channels: Their order.

    Raises:
        ValueError: The last axis is not of three channels, or the order is unknown.

    Example:
        >>> to_grey(torch.tensor([[[[255, 0, 0]]]], dtype=torch.uint8), "rgb").item()
        76

    Source:
        ITU-R BT.601; the paper's code weighs the channels in the wrong order.
    """
    one_of("channels", channels, tuple(_LUMA))
    if frames.shape[-1] != 3 or frames.dtype != torch.uint8:
        raise ValueError(
            f"frames: expected uint8 colour frames with three channels last, got {frames.dtype} {tuple(frames.shape)}"
        )
    weights = torch.tensor(_LUMA[channels], device=frames.device, dtype=torch.float64)
    return (frames.double() @ weights).round().clamp(0, 255).to(torch.uint8)


def checked_frames(
    frames: Any, *, value_range: tuple[float, float] | None = None, channels: Channels | None = None, least: int = 2,
    begins: bool = True,
) -> Tensor:  # fmt: skip
    """Return grey frames as a tensor (n, frames, h, w): uint8 as they are, floats in [0, 1].

    Args:
        frames: (n, frames, h, w) or (frames, h, w), with three channels last where ``channels`` says so; an array or a
            tensor, uint8 or floating.
        value_range: What black and white are in floating frames; needed where they are not 0 and 1.
        channels: ``"rgb"`` or ``"bgr"`` for colour frames; ``"grey"`` where the shape of grey ones looks like that of
            colour; grey if ``None``.
        least: The fewest frames that would do.
        begins: They begin a clip: one of as few frames as there are channels is in doubt.

    Raises:
        ValueError: A shape, a range or a value will not do; the message says which frame.
        TypeError: The frames are neither uint8 nor floating.
    """
    x = torch.as_tensor(np.ascontiguousarray(frames) if isinstance(frames, np.ndarray) else frames)
    if channels not in (None, "grey"):
        x = to_grey(x, channels)
    if x.ndim == 3:
        x = x[None]
    if x.ndim != 4:
        hint = "; colour frames need channels='rgb' or 'bgr'" if x.ndim == 5 else ""
        raise ValueError(f"frames: expected (n, frames, h, w) or (frames, h, w), got shape {tuple(x.shape)}{hint}")
    if 0 in x.shape:
        raise ValueError(f"frames: expected at least one pixel, got shape {tuple(x.shape)}")
    if channels is None and ((x.shape[-1] in (3, 4) and x.shape[-2] != x.shape[-1]) or (
        begins and len(x) > 1 and x.shape[1] in (3, 4)
    )):  # fmt: skip
        raise ValueError(
            f"frames: an axis of {tuple(x.shape)} looks like channels: pass channels='rgb' or 'bgr' for colour frames "
            "(three channels, last), or 'grey' if it is none"
        )
    if x.shape[1] < least:
        raise ValueError(f"frames: expected at least {least}, got {x.shape[1]}")
    if x.dtype == torch.uint8:
        if value_range is not None:
            raise ValueError("value_range: expected none for uint8 frames, whose range is 0 to 255")
        return x
    if not x.is_floating_point():
        raise TypeError(f"frames: expected uint8, or floating values in [0, 1], got {x.dtype}")
    return _in_unit_range(x, value_range)


def _in_unit_range(x: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    finite = torch.isfinite(x).flatten(2).all(dim=2)
    if not finite.all():
        item, frame = torch.nonzero(~finite)[0].tolist()
        raise ValueError(f"frames: expected finite values, got NaN or infinity in frame {frame} of item {item}")
    low, high = value_range or (0.0, 1.0)
    if not (np.isfinite([low, high]).all() and low < high):
        raise ValueError(f"value_range: expected (black, white) with black below white, got {value_range}")
    least, most = float(x.min()), float(x.max())
    if least < low or most > high:
        looks = " (they look like 0 to 255: pass value_range=(0, 255))" if 1 < most <= 255 and least >= 0 else ""
        raise ValueError(f"frames: expected floating values in [{low:g}, {high:g}], got {least:g} to {most:g}{looks}")
    return x if value_range is None else (x - low) / (high - low)
