"""What a loss is willing to take: features that fit together, a scale that is one, captions that may repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from thrifty.training.amorlip.precision import wide
from thrifty.training.amorlip.temperature import LARGEST_SCALE

#: How far from 1 a row's length may be, in 32 bits and in 16.
UNIT, UNIT_SHORT = 1e-3, 1e-2


def check_pair(image_features: Tensor, text_features: Tensor, width: int | None = None, ranks: int = 0) -> None:
    """Refuse features that are not two matrices of the same shape with at least one row.

    Args:
        image_features: u.
        text_features: v.
        width: d that networks were made for; ``None``: any.
        ranks: Whose samples are negatives, where a pair needs some.

    Raises:
        ValueError: They are not, are of another width, or there is one pair alone.
    """
    for name, features in (("image_features", image_features), ("text_features", text_features)):
        if features.ndim != 2 or not len(features):
            raise ValueError(f"{name}: expected a batch of rows, got shape {tuple(features.shape)}")
    if image_features.shape != text_features.shape:
        raise ValueError(
            f"text_features: expected the shape of image_features {tuple(image_features.shape)}, "
            f"got {tuple(text_features.shape)}"
        )
    if width is not None:
        check_width("image_features", image_features, width)
    if ranks and len(image_features) * ranks < 2:
        raise ValueError("image_features: expected at least two pairs, got one: it has no negatives")


def check_width(name: str, features: Tensor, width: int) -> None:
    """Refuse features of another width than the networks'.

    Raises:
        ValueError: They are.
    """
    if features.ndim != 2 or features.shape[1] != width:
        raise ValueError(f"{name}: expected {width} numbers a row (embed_dim), got shape {tuple(features.shape)}")


def check_finite(name: str, features: Tensor) -> Tensor:
    """Return the rows' lengths.

    Raises:
        ValueError: They hold NaN or Inf.
    """
    length: Tensor = torch.linalg.vector_norm(features.detach(), dim=1, dtype=wide(features[:0]).dtype)
    if not math.isfinite(float(length.sum())):
        raise ValueError(f"{name}: expected finite numbers, got NaN or Inf")
    return length


def check_scale(logit_scale: Tensor | float) -> float:
    """Return s as a number; on an accelerator that makes the host wait.

    Raises:
        ValueError: It is not positive.
    """
    scale = float(logit_scale.detach() if isinstance(logit_scale, Tensor) else logit_scale)
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(
            f"logit_scale: expected exp(t) > 0, as open_clip gives it, got {scale:g}; is it the logarithm t?"
        )
    return scale


def check_captions(caption_ids: Tensor | None, batch: int) -> None:
    """Refuse what is not one whole number a caption.

    Raises:
        ValueError: It is not.
    """
    if caption_ids is None:
        return
    if not isinstance(caption_ids, Tensor) or caption_ids.shape != (batch,) or caption_ids.is_floating_point():
        came = tuple(caption_ids.shape) if isinstance(caption_ids, Tensor) else type(caption_ids).__name__
        raise ValueError(
            f"caption_ids: expected a tensor of {batch} whole numbers, got {came} (caption_ids() makes them of tokens)"
        )


@torch.no_grad()
def remarks(
    image_features: Tensor, text_features: Tensor, logit_scale: Tensor | float, *, first: bool
) -> Iterator[str]:
    """Yield what is odd of the numbers but can be used.

    Args:
        image_features: u.
        text_features: v.
        logit_scale: s.
        first: It is the first step, in which s may turn out to be its logarithm.

    Raises:
        ValueError: They hold NaN or Inf, or s is not positive.
    """
    for name, features in (("image_features", image_features), ("text_features", text_features)):
        length = check_finite(name, features)
        off = float((length - 1).abs().max())
        if off > UNIT and not (off <= UNIT_SHORT and _short(features)):
            zero = not float(length.min())
            came = "a row of zeros" if zero else f"one that is off by {off:.2g}; normalize=True"
            yield f"{name}: expected rows of unit length, got {came}"
    scale = check_scale(logit_scale)
    if first and 1 < scale < math.log(LARGEST_SCALE):
        yield f"logit_scale: expected exp(t), 14.29 at CLIP's start, got {scale:.4g}; is it the logarithm t?"


def _short(features: Tensor) -> bool:
    """Tell whether they are 16-bit numbers, in whatever they are stored now (as after autocast)."""
    return features.dtype.itemsize < 4 or bool((features.bfloat16() == features).all())


def caption_ids(tokens: Int[Tensor, "batch length"]) -> Int[Tensor, " batch"]:
    """Return one number a caption, equal for equal tokens, on every rank alike.

    Args:
        tokens: Padded to one length.

    Example:
        >>> import torch
        >>> a, b, c = caption_ids(torch.tensor([[1, 2, 0], [1, 2, 0], [2, 1, 0]]))
        >>> bool(a == b), bool(a == c)
        (True, False)

    Source:
        Ours: a multilinear hash modulo 2^64 (Carter and Wegman, 1979).
    """
    generator = torch.Generator().manual_seed(1)
    factors = torch.randint(-(2**62), 2**62, (tokens.shape[1],), generator=generator) | 1
    return (tokens.long() * factors.to(tokens.device)).sum(1)
