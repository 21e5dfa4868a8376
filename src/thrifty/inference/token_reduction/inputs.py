"""Images that are none, refused before a model sees them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def check_images(x: Any) -> None:
    """Refuse what is no batch of images.

    Raises:
        TypeError: It is no tensor.
        ValueError: It is not batch x channel x height x width, empty, of whole numbers, or not finite.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"x: expected a tensor of images, got {type(x).__name__}")
    if x.ndim != 4 or 0 in x.shape:
        raise ValueError(f"x: expected images, batch x channel x height x width, got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"x: expected pixels normalised as the model takes them, in floating point, got {x.dtype}")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x: expected finite pixels, got NaN or infinite ones")
