"""How many experts a forward pass wakes: arXiv 2505.19645, equations 8, 9 and 10, and two refinements of our own.

With E routed experts of which each token takes K, t independent tokens with uniform marginals touch
N(t) = E (1 − (1 − K/E)^t) experts of a layer in expectation, whatever the dependence between the experts of one token
(linearity), so group-limited routing needs no change. Shared experts are dense weights, and no part of N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import is_number

Floats = NDArray[np.float64]


def expected_active_experts(
    tokens: ArrayLike,
    num_experts: int,
    top_k: ArrayLike,
    *,
    router_probs: ArrayLike | None = None,
    block_experts: ArrayLike | None = None,
) -> Floats:
    """Return the expected number of distinct experts of one layer that a forward pass reads.

    Args:
        tokens: Tokens in the pass, all requests together (real numbers are fine); with ``block_experts`` the number
            of requests.
        num_experts: Routed experts of a layer, E.
        top_k: Experts of a token, K; broadcasts with ``tokens``.
        router_probs: Probability that a token takes each expert, summing to K: a router that is not uniform wakes
            fewer. Shape (E,).
        block_experts: Distinct experts that the consecutive tokens of *one* request wake together, as measured:
            neighbours overlap, so it is less than N(s). Broadcasts with ``tokens``.

    Returns:
        Experts, in [0, E].

    Raises:
        ValueError: Something is outside of its range, or both refinements are given.

    Example:
        >>> expected_active_experts([1, 8, 32], 64, 8).round(2).tolist()
        [8.0, 42.01, 63.11]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 8.
    """
    t, k = np.asarray(tokens, float), np.asarray(top_k, float)
    check_experts(num_experts, k)
    if not np.all(t >= 0):
        raise ValueError(f"tokens: expected numbers of at least 0, got {tokens!r}")
    if router_probs is not None and block_experts is not None:
        raise ValueError("router_probs and block_experts: expected at most one of them")
    if router_probs is not None:
        p = np.asarray(router_probs, float)
        if p.shape != (num_experts,) or not np.all((p >= 0) & (p <= 1)):
            raise ValueError(f"router_probs: expected {num_experts} probabilities, got shape {p.shape}")
        if not np.allclose(p.sum(), k, rtol=1e-3):
            raise ValueError(f"router_probs: expected a sum of top_k={top_k!r}, got {p.sum():.6g}")
        return np.asarray((1 - (1 - p) ** t[..., None]).sum(-1))
    share = k / num_experts
    if block_experts is not None:
        share = np.asarray(block_experts, float) / num_experts
        if not np.all((share >= 0) & (share <= 1)):
            raise ValueError(f"block_experts: expected numbers in [0, {num_experts}], got {block_experts!r}")
    return num_experts * _touched(t, share)


def tokens_per_expert(tokens: ArrayLike, num_experts: int, top_k: ArrayLike) -> Floats:
    """Return how many tokens an awake expert sees: t K / N(t) = ρt / (1 − (1 − ρ)^t), with ρ = K/E.

    For t > 1 it rises strictly with ρ: the sparser the model, the longer its experts stay bound by memory.

    Args:
        tokens: Tokens in the pass, above 0.
        num_experts: E.
        top_k: K.

    Returns:
        Tokens, from 1 (one token in all) to ``tokens`` (dense: K = E).

    Raises:
        ValueError: Something is outside of its range.

    Example:
        >>> tokens_per_expert([1, 64], 64, 8).round(4).tolist()
        [1.0, 8.0016]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 10.
    """
    t, k = np.asarray(tokens, float), np.asarray(top_k, float)
    check_experts(num_experts, k)
    if not np.all(t > 0):
        raise ValueError(f"tokens: expected numbers above 0, got {tokens!r}")
    return np.asarray(t * k / (num_experts * _touched(t, k / num_experts)))


def full_activation_tokens(num_experts: int, top_k: int, threshold: float = 0.95) -> int:
    """Return the tokens from which on a pass reads at least ``threshold`` of the experts.

    Args:
        num_experts: E.
        top_k: K.
        threshold: Share of the experts that counts as almost all, in (0, 1).

    Returns:
        Tokens; 1 for a dense model.

    Raises:
        ValueError: Something is outside of its range.

    Example:
        >>> full_activation_tokens(64, 8)
        23

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 9.
    """
    check_experts(num_experts, top_k)
    if not 0 < threshold < 1:
        raise ValueError(f"threshold: expected a share in (0, 1), got {threshold}")
    if top_k == num_experts:
        return 1
    return max(1, math.ceil(math.log1p(-threshold) / math.log1p(-top_k / num_experts)))


def experts_of_block(tokens: ArrayLike, block_experts: Sequence[float], num_experts: int) -> Floats:
    """Return the distinct experts that so many consecutive tokens of one request wake.

    Args:
        tokens: Of the request.
        block_experts: What 1, 2, ... tokens were seen to wake; each further one wakes as many more as the last of them.
        num_experts: E, and no more than that.
    """
    seen = np.array([0.0, *block_experts])
    widths = np.asarray(tokens, float)
    beyond = np.maximum(widths - len(block_experts), 0.0)
    awake = np.interp(widths, np.arange(len(seen)), seen) + beyond * (seen[-1] - seen[-2])
    return np.asarray(np.minimum(awake, num_experts))


def check_experts(num_experts: float, top_k: ArrayLike) -> None:
    """Refuse a number of experts per token that no router could have."""
    if not is_number(num_experts) or num_experts != num_experts // 1:
        raise ValueError(f"num_experts: expected a whole number, got {num_experts!r}")
    k = np.asarray(top_k, float)
    if not num_experts >= 1 or not np.all((k >= 1) & (k <= num_experts)):
        raise ValueError(f"top_k: expected 1 <= top_k <= num_experts={num_experts}, got {top_k!r}")


def _touched(tokens: Floats, share: ArrayLike) -> Floats:
    """Return 1 − (1 − share)^tokens, without cancellation for small shares; all of it where the share is 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_missed = tokens * np.log1p(-np.asarray(share, float))
    return -np.expm1(np.where(tokens == 0, 0.0, log_missed))
