"""How a forward pass slows down once it is bound by computing: arXiv 2505.19645, equation 11.

G(t; r, s) = s^t up to the ridge r and its tangent beyond: value and slope are continuous. s^r overflows for r > 1024 at
s = 2 and makes coefficients incomparable, so models here hold the scaled form g = G / (s^r ln s): a coefficient of g is
*milliseconds a token once bound by computing*, whatever r and s are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from thrifty.inference.speculation.activation import Floats


def roofline(tokens: ArrayLike, ridge: float, growth: float) -> Floats:
    """Return the paper's growth term G.

    Args:
        tokens: Tokens that share a weight (for an expert: the tokens that it sees).
        ridge: Tokens at which reading weights and multiplying take equally long: λ · FLOP/s ÷ (bytes/s) for 16-bit
            weights.
        growth: s > 1, how fast time grows before the ridge.

    Returns:
        A number of at least 1, without unit.

    Raises:
        ValueError: ``growth`` is not above 1, or ``ridge`` not above 0.

    Example:
        >>> roofline([10, 40], ridge=20, growth=1.05).round(7).tolist()
        [1.6288946, 5.2423943]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 11.
    """
    return scaled_roofline(tokens, ridge, growth) * roofline_scale(ridge, growth)


def scaled_roofline(tokens: ArrayLike, ridge: float, growth: float) -> Floats:
    """Return g = G / (s^r ln s): slope 1 a token beyond the ridge.

    Args:
        tokens: As for :func:`roofline`.
        ridge: As for :func:`roofline`.
        growth: As for :func:`roofline`; infinity is the textbook's roofline, flat up to the ridge.

    Returns:
        Tokens that would take as long if all were bound by computing, up to a constant.

    Raises:
        ValueError: ``growth`` is not above 1, or ``ridge`` not above 0.
    """
    if not growth > 1:
        raise ValueError(f"growth: expected a number above 1, got {growth}")
    if not ridge > 0:
        raise ValueError(f"ridge: expected a number of tokens above 0, got {ridge}")
    t = np.asarray(tokens, float)
    beyond = np.maximum(t - ridge, 0.0)
    if np.isinf(growth):
        return beyond
    return np.asarray(np.power(growth, np.minimum(t - ridge, 0.0)) / np.log(growth) + beyond)


def roofline_scale(ridge: float, growth: float) -> float:
    """Return s^r ln s, which turns a coefficient of G into one of g (may overflow to infinity)."""
    with np.errstate(over="ignore"):
        return float(np.power(np.float64(growth), ridge) * np.log(growth))
