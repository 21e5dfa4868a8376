"""How much of a draft is accepted, and what the many numbers that go by that name say.

Not to be confused: **α**, the chance that a draft token is accepted given that all before it were; **σ**, the tokens
gained in a round over the most that it could gain, (1 − α^{γ+1}) / ((1 − α)(γ + 1)) (arXiv 2505.19645, equation 5); the
engines' **acceptance rate**, accepted over drafted tokens, which is neither; and the **acceptance length**, tokens a
round with the bonus token. :class:`Acceptance` is what the rest takes, so that none is mistaken for another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import is_number, whole
from thrifty.inference.speculation.activation import Floats


@dataclass(frozen=True)
class Acceptance:
    """The survival of draft tokens: p_i = P(at least i of a round's draft tokens are accepted).

    Made by :meth:`from_rate`, :meth:`from_sigma`, :meth:`from_counts`, :meth:`from_length` or :meth:`from_survival`.

    Args:
        survival: p_1, p_2, ... as known; beyond them it falls by ``last`` at each position.
        last: The chance of acceptance at positions further out, given all before.

    Raises:
        ValueError: Something is no probability.

    Example:
        >>> draft = Acceptance.from_rate(0.8)
        >>> float(draft.expected_tokens(4).round(4)), float(draft.sigma(4).round(5))
        (3.3616, 0.67232)

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 5 (σ and α).
    """

    survival: tuple[float, ...]
    last: float

    def __post_init__(self) -> None:
        if not all(is_number(chance) and 0 <= chance <= 1 for chance in (*self.survival, self.last)):
            raise ValueError(f"acceptance: expected probabilities in [0, 1], got {self.survival} and {self.last}")

    @classmethod
    def from_rate(cls, alpha: float) -> Acceptance:
        """Take α, the chance of acceptance at every position.

        Raises:
            ValueError: ``alpha`` is not in [0, 1].
        """
        if not (is_number(alpha) and 0 <= alpha <= 1):
            raise ValueError(f"alpha: expected a probability in [0, 1], got {alpha}")
        return cls((), float(alpha))

    @classmethod
    def from_sigma(cls, sigma: float, gamma: int) -> Acceptance:
        """Take the paper's σ at a draft length, and assume that α is the same at every position.

        Raises:
            ValueError: ``sigma`` is not in [1/(gamma+1), 1].
        """
        low = 1 / (_length(gamma) + 1)
        if not (is_number(sigma) and low - 1e-9 <= sigma <= 1):
            raise ValueError(f"sigma: expected a number in [1/(gamma+1), 1] = [{low:.4g}, 1], got {sigma}")
        return cls.from_length(sigma * (gamma + 1), gamma)

    @classmethod
    def from_length(cls, length: float, gamma: int) -> Acceptance:
        """Take the mean tokens of a round, bonus token included, and assume that α is the same at every position.

        Raises:
            ValueError: ``length`` is not in [1, gamma+1].
        """
        _length(gamma)
        if not is_number(length) or not 1 - 1e-9 <= length <= gamma + 1 + 1e-9:
            raise ValueError(f"length: expected tokens a round in [1, gamma+1] = [1, {gamma + 1}], got {length}")
        alpha = _solve_alpha(length, gamma)
        return cls(tuple(alpha**i for i in range(1, gamma + 1)), alpha)

    @classmethod
    def from_engine_rate(cls, rate: float, gamma: int) -> Acceptance:
        """Take what vLLM and SGLang call acceptance rate: accepted over drafted tokens, in [0, 1].

        Raises:
            ValueError: ``rate`` is not in [0, 1] (vLLM's benchmark prints per cent).
        """
        if not (is_number(rate) and 0 <= rate <= 1):
            raise ValueError(f"rate: expected accepted over drafted tokens in [0, 1], got {rate} (per cent?)")
        return cls.from_length(1 + rate * gamma, gamma)

    @classmethod
    def from_counts(
        cls, drafts: float, drafted: float, accepted: float, per_position: Sequence[float] | None = None
    ) -> Acceptance:
        """Estimate from what an engine counts.

        Args:
            drafts: Rounds (a request and a verification each).
            drafted: Draft tokens in them.
            accepted: Draft tokens that were accepted.
            per_position: Accepted at position 1, 2, ..., as counts; the estimate is then exact up to that length.

        Raises:
            ValueError: There is no round, or more was accepted than drafted.
        """
        if not drafts > 0 or not drafted > 0:
            raise ValueError(f"drafts: no data: expected at least one round with a draft, got {drafts} and {drafted}")
        if not 0 <= accepted <= drafted:
            raise ValueError(f"accepted: expected at most drafted={drafted}, got {accepted}")
        if per_position is not None and len(per_position):
            return cls.from_survival([count / drafts for count in per_position])
        return cls.from_length(1 + accepted / drafts, max(1, round(drafted / drafts)))

    @classmethod
    def from_survival(cls, survival: Sequence[float]) -> Acceptance:
        """Take p_i = P(at least i accepted), i = 1, 2, ...

        Raises:
            ValueError: They are not probabilities, or rise.
        """
        p = [float(value) for value in survival]
        if not p or not all(0 <= value <= 1 for value in p):
            raise ValueError(f"survival: expected probabilities in [0, 1], got {list(survival)}")
        if any(b > a + 1e-9 for a, b in pairwise(p)):
            raise ValueError(f"survival: P(at least i accepted) cannot rise with i, got {p}")
        before = p[-2] if len(p) > 1 else 1.0
        return cls(tuple(p), p[-1] / before if before else 0.0)

    def expected_tokens(self, gamma: ArrayLike) -> Floats:
        """Return the tokens of a round with that many draft tokens: 1 + Σ_{i≤γ} p_i.

        Raises:
            ValueError: A draft length is negative.
        """
        lengths = np.asarray(gamma, int)
        if np.any(lengths < 0) or np.any(lengths != np.asarray(gamma)):
            raise ValueError(f"gamma: expected draft lengths, whole and at least 0, got {gamma!r}")
        sums = np.concatenate(([1.0], 1 + np.cumsum(self.curve(int(lengths.max(initial=0))))))
        return np.asarray(sums[lengths])

    def curve(self, gamma: int) -> Floats:
        """Return p_1 ... p_γ."""
        known = np.asarray(self.survival[:gamma], float)
        start = self.survival[-1] if self.survival else 1.0
        more = start * np.power(self.last, np.arange(1, gamma - len(known) + 1))
        return np.concatenate((known, more))

    def sigma(self, gamma: ArrayLike) -> Floats:
        """Return σ, the tokens of a round over the most that it could give."""
        return np.asarray(self.expected_tokens(gamma) / (np.asarray(gamma, int) + 1))

    @property
    def alpha(self) -> float:
        """The chance of acceptance, if it is the same at every position: accepted / (accepted + rejections)."""
        if not self.survival:
            return self.last
        accepted, rejections = sum(self.survival), 1 - self.survival[-1]
        return accepted / (accepted + rejections) if accepted + rejections else 1.0


def sigma_of_alpha(alpha: ArrayLike, gamma: int) -> Floats:
    """Return σ = Σ_{i≤γ} α^i / (γ + 1), by the sum, which unlike the quotient is exact near α = 1.

    Args:
        alpha: Chance that a draft token is accepted, in [0, 1].
        gamma: Draft tokens of a round.

    Returns:
        Tokens of a round over the most that it could give, in [1/(γ+1), 1], of the shape of ``alpha``.

    Raises:
        ValueError: ``alpha`` is no probability, or ``gamma`` no draft length.

    Example:
        >>> sigma_of_alpha([0.8, 1.0], 4).round(5).tolist()
        [0.67232, 1.0]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 5.
    """
    _length(gamma)
    chance = np.asarray(alpha, float)
    if not np.all((chance >= 0) & (chance <= 1)):
        raise ValueError(f"alpha: expected probabilities in [0, 1], got {alpha!r}")
    powers = np.power.outer(chance, np.arange(gamma + 1))
    return np.asarray(powers.sum(-1) / (gamma + 1))


def estimate_alpha(accepted: ArrayLike, gamma: int) -> float:
    """Return the maximum-likelihood α of rounds that accepted so many draft tokens: A / (A + rounds with a rejection).

    Args:
        accepted: Draft tokens accepted in each round, each at most ``gamma``.
        gamma: Draft tokens of every round.

    Raises:
        ValueError: There is no round, or a number outside of [0, gamma].

    Example:
        >>> estimate_alpha([4, 2, 0, 4], gamma=4)  # ten accepted, two rejections
        0.8333333333333334

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, equation 5: its geometric
        distribution, cut off at γ.
    """
    _length(gamma)
    counts = np.asarray(accepted)
    if counts.dtype.kind not in "iu" and counts.size:
        raise ValueError(f"accepted: expected whole numbers of tokens, got {accepted!r}")
    if counts.size == 0 or counts.min() < 0 or counts.max() > gamma:
        raise ValueError(f"accepted: expected at least one round, each in [0, gamma={gamma}]")
    total, rejected = int(counts.sum()), int((counts < gamma).sum())
    return total / (total + rejected) if total + rejected else 0.0


def _solve_alpha(length: float, gamma: int) -> float:
    """Return the α for which 1 + α + ... + α^γ is ``length``, by bisection (the sum rises with α)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(sigma_of_alpha(middle, gamma)) * (gamma + 1) < length:
            low = middle
        else:
            high = middle
    return high if length >= gamma + 1 else low if length <= 1 else (low + high) / 2


def _length(gamma: int) -> int:
    return whole("gamma", gamma, what="a draft length")
