"""Which block of consecutive layers a client trains: probabilities, draws, and how often each layer is reached.

    p(k) = exp(I_k / (s t)) / sum over j of exp(I_j / (s t))

The paper has s = t = 1. Importances have the units of the loss squared, so that this is nearly uniform on one model and
nearly certain on another; dividing by their mean makes it free of units.
"""

from __future__ import annotations

import logging
import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.checks import number, one_of, whole
from thrifty.training.leff.config import NORMALIZATIONS, SAMPLERS
from thrifty.training.leff.importance import block_importance

_log = logging.getLogger(__name__)


def block_probabilities(
    importance: Float[Tensor, " layer"],
    length: int,
    normalization: str = "mean",
    temperature: float = 0.25,
    *,
    sampler: str = "importance",
    edge: str = "clip",
) -> Float[Tensor, " start"]:
    """Return the probability of every block of ``length`` layers, by its first layer.

    Args:
        importance: Of every layer, at least 0.
        length: Layers of a block.
        normalization: What importances of blocks are divided by: ``"mean"`` or ``"std"`` over blocks, ``"none"``.
        temperature: Of the softmax.
        sampler: ``"importance"`` (softmax), ``"proportional"``, or ``"random"``.
        edge: As in :func:`block_importance`.

    Returns:
        Probabilities in float64.

    Raises:
        ValueError: An argument is out of range, or an importance is not finite.

    Example:
        >>> block_probabilities(torch.tensor([1.0, 2.0, 3.0, 4.0]), 2, "none", 1.0).numpy().round(4)
        array([0.0159, 0.1173, 0.8668])

    Source:
        Shen et al., NeurIPS 2025, section 3 (block sampling); the normalization is ours.
    """
    one_of("normalization", normalization, NORMALIZATIONS)
    one_of("sampler", sampler, SAMPLERS)
    number("temperature", temperature, "a positive number", least=1e-300)
    if not bool(torch.isfinite(importance).all()):
        raise ValueError(f"importance: expected finite numbers, got {importance.tolist()}")
    blocks = block_importance(importance.double(), length, edge=edge)
    if sampler in ("random", "round_robin") or (sampler == "proportional" and not bool(blocks.sum() > 0)):
        return torch.full_like(blocks, 1 / len(blocks))
    if sampler == "proportional":
        return blocks / blocks.sum()
    scale = 1.0
    if normalization == "mean":
        scale = float(blocks.mean())
    elif normalization == "std":
        scale = float(blocks.std(correction=0))
    return torch.softmax(blocks / ((scale or 1.0) * temperature), 0)


def effective_entropy(probabilities: Float[Tensor, " start"]) -> float:
    """Return the entropy over its greatest value: 1 is uniform, 0 certain.

    Args:
        probabilities: Of every block.

    Example:
        >>> effective_entropy(torch.tensor([1.0, 0.0]))
        0.0

    Source:
        Shannon's entropy, divided by that of the uniform distribution.
    """
    if len(probabilities) == 1:
        return 1.0
    return float(torch.special.entr(probabilities).sum()) / math.log(len(probabilities))


def coverage(probabilities: Float[Tensor, " start"], length: int, num_layers: int) -> Float[Tensor, " layer"]:
    """Return with which probability each layer is in the block.

    With windows that end at the last layer, those in the middle are in more windows than those at the edges.

    Args:
        probabilities: Of every block, by its first layer.
        length: Layers of a block.
        num_layers: L.

    Example:
        >>> coverage(torch.full((3,), 1 / 3), 2, 4)
        tensor([0.3333, 0.6667, 0.6667, 0.3333])

    Source:
        The definition: the sum over blocks that hold the layer.
    """
    found = torch.zeros(num_layers, dtype=probabilities.dtype)
    for start, p in enumerate(probabilities):
        for layer in block_layers(start, length, num_layers):
            found[layer] += p
    return found


def block_layers(start: int, length: int, num_layers: int) -> tuple[int, ...]:
    """Return the layers of a block in rising order; one that passes the last layer goes on at the first."""
    return tuple(sorted((start + offset) % num_layers for offset in range(length)))


def draw_start(
    probabilities: Float[Tensor, " start"],
    rng: np.random.Generator,
    *,
    sampler: str = "importance",
    round_: int = 1,
    place: int = 0,
) -> int:
    """Draw the first layer of a client's block.

    Args:
        probabilities: Of every block.
        rng: The client's stream of this round.
        sampler: ``"round_robin"`` does not draw: client ``i`` begins at block ``i`` and goes on by one a round.
        round_: From 1.
        place: The client's place among all, from 0.
    """
    if sampler == "round_robin":
        return (place + round_ - 1) % len(probabilities)
    weights = probabilities.double().numpy()
    return int(rng.choice(len(weights), p=weights / weights.sum()))


def warn_if_uniform(probabilities: Float[Tensor, " start"]) -> bool:
    """Log a warning where importance decides nothing; tell whether that is so."""
    low, high = float(probabilities.min()), float(probabilities.max())
    uniform = len(probabilities) > 1 and high < 1.05 * low
    if uniform:
        _log.warning(
            "importance sampling is uniform to %.1f %%: lower the temperature, or normalise importances",
            100 * (high / low - 1),
        )
    return uniform


def check_capacity(capacity: int, num_layers: int) -> int:
    """Return how many layers a client can train.

    Raises:
        ValueError: It is no whole number from 1 to the number of layers.
    """
    capacity = whole("capacity", capacity, what="a whole number of layers")
    if capacity > num_layers:
        raise ValueError(f"capacity: expected at most {num_layers}, the number of layers, got {capacity}")
    return capacity
