"""Which examples get a gradient of their own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_log = logging.getLogger(__name__)


def draw(valid: Int[np.ndarray, " n"], count: int, rng: np.random.Generator) -> Int[np.ndarray, " count"]:
    """Draw examples uniformly without replacement, as the paper does."""
    return np.sort(rng.choice(valid, size=count, replace=False))


def spread_out(
    embeddings: Float[Tensor, "n e"], valid: Int[np.ndarray, " n"], count: int, rng: np.random.Generator
) -> Int[np.ndarray, " count"]:
    """Draw examples far from each other: k-means++ seeding (Arthur and Vassilvitskii 2007) on embeddings."""
    points = embeddings[torch.from_numpy(valid)].float()
    points = points - points.mean(0)
    chosen = [int(rng.integers(len(points)))]
    distance = (points - points[chosen[0]]).square().sum(1)
    while len(chosen) < count:
        mass = distance.double().numpy().clip(min=0)
        mass[chosen] = 0
        if mass.sum() <= 0:  # what is left repeats what was taken
            left = np.setdiff1d(np.arange(len(points)), chosen)
            chosen += [int(i) for i in rng.choice(left, size=count - len(chosen), replace=False)]
            break
        chosen.append(int(rng.choice(len(points), p=mass / mass.sum())))
        distance = torch.minimum(distance, (points - points[chosen[-1]]).square().sum(1))
    return np.sort(valid[chosen])


def given(indices: Any, valid: Int[np.ndarray, " n"], size: int) -> Int[np.ndarray, " l"]:
    """Check landmarks that the user chose.

    Raises:
        ValueError: An index is out of range or repeated, or has no label token.
    """
    chosen = np.asarray(indices if not isinstance(indices, Tensor) else indices.cpu()).astype(np.int64).reshape(-1)
    if not len(chosen) or chosen.min() < 0 or chosen.max() >= size:
        raise ValueError(f"landmarks: expected indices between 0 and {size - 1}, got {_some(chosen)}")
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError(
            f"landmarks: expected different indices, got {len(chosen) - len(np.unique(chosen))} repetitions"
        )
    if len(masked := np.setdiff1d(chosen, valid)):
        raise ValueError(
            f"landmarks: the examples at {_some(masked)} have no label token, so that they have no gradient"
        )
    return np.sort(chosen)


def _some(values: Sequence[int] | np.ndarray) -> str:
    shown = ", ".join(str(int(value)) for value in values[:5])
    return shown + (", ..." if len(values) > 5 else "") if len(values) else "none"
