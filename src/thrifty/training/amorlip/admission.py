"""What a loss is willing to take: features that fit together, a scale that is one, captions that may repeat."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.training.amorlip.contrastive import check_pair
from thrifty.training.amorlip.partition import wide
from thrifty.training.amorlip.temperature import LARGEST_SCALE

#: How far from 1 a row's length may be, in 32 bits and in 16.
UNIT, UNIT_SHORT = 1e-3, 1e-2


def check_batch(
    image_features: Float[Tensor, "batch dim"], text_features: Float[Tensor, "batch dim"], width: int, ranks: int
) -> None:
    """Refuse features whose shapes do not fit, or a pair that is alone.

    Args:
        image_features: u.
        text_features: v.
        width: d that the networks were made for.
        ranks: Whose samples are negatives.

    Raises:
        ValueError: They do not.
    """
    check_pair(image_features, text_features)
    if image_features.shape[1] != width:
        raise ValueError(f"image_features: expected {width} numbers a row (embed_dim), got {image_features.shape[1]}")
    if len(image_features) * ranks < 2:
        raise ValueError("image_features: expected at least two pairs, got one: it has no negatives")


@torch.no_grad()
def remarks(image_features: Tensor, text_features: Tensor, logit_scale: Tensor, *, first: bool) -> Iterator[str]:
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
        length = torch.linalg.vector_norm(features, dim=1, dtype=wide(features[:0]).dtype)
        off = float((length - 1).abs().max())
        if not math.isfinite(off):
            raise ValueError(f"{name}: expected finite numbers, got NaN or Inf")
        if off > (UNIT if features.dtype.itemsize >= 4 else UNIT_SHORT):
            yield f"{name}: expected rows of unit length, got one that is off by {off:.2g}; normalize=True"
    scale = float(logit_scale)
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(
            f"logit_scale: expected exp(t) > 0, as open_clip gives it, got {scale:g}; is it the logarithm t?"
        )
    if first and scale < math.log(LARGEST_SCALE):
        yield f"logit_scale: expected exp(t), 14.29 at CLIP's start, got {scale:.4g}; is it the logarithm t?"


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
