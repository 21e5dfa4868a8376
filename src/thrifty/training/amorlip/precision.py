"""In which precision all of this is computed: float32 or better, outside of autocast."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def wide(features: Tensor) -> Tensor:
    """Return float32 for 16-bit features; float32 and float64 as they are."""
    return features if features.dtype.itemsize >= 4 else features.float()


def as_number(value: Tensor | float, like: Tensor) -> Float[Tensor, ""]:
    """Return a scale or bias, whatever its shape, as a tensor without dimensions and without gradient."""
    if isinstance(value, Tensor):
        return value.detach().reshape(()).to(like)
    return torch.tensor(float(value), dtype=like.dtype, device=like.device)


def autocast_off(like: Tensor) -> torch.autocast:
    """Return a context in which nothing is rounded to 16 bits."""
    return torch.autocast(like.device.type, enabled=False)


def within(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what the dtype can hold of a gradient: fp16 ends at 65504, which e^10 at a scale of 100 exceeds."""
    return gradient.clamp_(-65504.0, 65504.0) if dtype is torch.float16 else gradient
