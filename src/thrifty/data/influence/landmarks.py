"""Which examples get a gradient of their own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.data.influence.config import InfluenceConfig


def everything(config: InfluenceConfig, size: int) -> bool:
    """Tell whether all examples that have a gradient are landmarks, so that nothing is propagated."""
    if not isinstance(config.landmarks, str):
        return False
    if config.num_landmarks > size:
        warnings.warn(
            f"num_landmarks: {config.num_landmarks} is more than the {size} examples of the pool; every score is "
            "computed exactly",
            stacklevel=4,
        )
    return config.num_landmarks >= size


def pick(
    config: InfluenceConfig, valid: Int[np.ndarray, " n"], size: int, embeddings: Callable[[], Float[Tensor, "n e"]]
) -> tuple[Int[np.ndarray, " l"], Int[np.ndarray, " c"]]:
    """Return landmarks, and further examples whose gradients check the propagation.

    Args:
        config: Which and how many.
        valid: Examples that have a gradient.
        size: Examples in the pool.
        embeddings: Gives those of the whole pool, where they are needed.
    """
    rng = np.random.default_rng(config.seed)
    if not isinstance(config.landmarks, str):
        rows = given(config.landmarks, valid, size)
    elif config.landmarks == "kmeans++":
        rows = spread_out(embeddings(), valid, config.num_landmarks, rng)
    else:
        rows = draw(valid, config.num_landmarks, rng)
    left = np.setdiff1d(valid, rows)
    return rows, draw(left, min(config.num_check, len(left)), rng)


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
    chosen = np.asarray(indices if not isinstance(indices, Tensor) else indices.cpu()).reshape(-1)
    if chosen.dtype.kind not in "iu":
        raise ValueError(f"landmarks: expected whole numbers, got {chosen.dtype}")
    chosen = chosen.astype(np.int64)
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
