"""Statistics of scores: intervals of shares, distances of orders, and differences between conditions.

Source: arXiv 2510.25626, section on evaluation; Wilson, JASA 22 (1927).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from thrifty._common.checks import number, whole
from thrifty._common.extras import require


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


def wilson(successes: int, n: int, z: float = 1.96) -> Interval:
    """Return Wilson's interval of a share, moved outwards by 1/(2n) and clipped to [0, 1].

    Args:
        successes: How many of them.
        n: Trials; at least one.
        z: Quantile of the normal distribution.

    Returns:
        Its two ends.

    Raises:
        ValueError: There are more successes than trials, or no trial.

    Example:
        >>> [round(end, 5) for end in wilson(325, 500)]
        [0.60619, 0.69152]

    Source:
        Wilson, JASA 22 (1927), with the continuity correction of the paper's notebooks.
    """
    n, successes = whole("n", n), whole("successes", successes, least=0)
    z = number("z", z, "a number above 0", least=1e-9)
    if successes > n:
        raise ValueError(f"successes: expected at most n = {n}, got {successes}")
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale, correction = 1 + z * z / n, 1 / (2 * n)
    return Interval(max(0.0, (centre - half) / scale - correction), min(1.0, (centre + half) / scale + correction))


def levenshtein(a: Sequence[int], b: Sequence[int]) -> float:
    """Return the edit distance of two lists over the longer one's length; 0 for two empty ones."""
    longest = max(len(a), len(b))
    distance = require("rapidfuzz.distance", extra="reasoning").Levenshtein.distance(list(a), list(b))
    return distance / longest if longest else 0.0


def lcs_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common subsequence of two lists, whose items are whole."""
    return int(require("rapidfuzz.distance", extra="reasoning").LCSseq.similarity(list(a), list(b)))


class Anova(NamedTuple):
    """F and p of a one-way analysis of variance; NaN where there is too little to compare."""

    f: float
    p: float


def anova(groups: Sequence[Sequence[float]]) -> Anova:
    """Compare the means of groups, NaN left out."""
    from scipy.stats import f_oneway

    kept = [[value for value in group if not math.isnan(value)] for group in groups]
    kept = [group for group in kept if len(group) > 1]
    if len(kept) < 2 or len({value for group in kept for value in group}) < 2:
        return Anova(math.nan, math.nan)
    result = f_oneway(*kept)
    return Anova(float(result.statistic), float(result.pvalue))


def paired_drop(
    before: Sequence[float], after: Sequence[float], *, seed: int = 0, draws: int = 2000
) -> tuple[float, Interval]:
    """Return the mean of ``before`` − ``after`` over pairs, with the 95 % interval of a paired bootstrap.

    Raises:
        ValueError: The two differ in length, or are empty.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"before, after: expected as many numbers, at least one, got {len(before)} and {len(after)}")
    gaps = np.asarray(before, float) - np.asarray(after, float)
    rng = np.random.default_rng(seed)
    means = gaps[rng.integers(len(gaps), size=(draws, len(gaps)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(gaps.mean()), Interval(float(low), float(high))
