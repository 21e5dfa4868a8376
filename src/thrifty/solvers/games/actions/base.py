"""What all sets of actions share: a law for log weights, and what follows from laws and from a linear oracle."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import number, whole
from thrifty.solvers.games import span

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Law(ABC):
    """Multiplicative weights over a set for one vector of log weights; its tables are built once and used by all.

    Attributes:
        log_partition: log K, K being the weighted number of actions.

    Example:
        >>> from thrifty.solvers.games import MSet
        >>> law = MSet(4, 2).law([0.0, 0.0, 0.0, 0.0])
        >>> round(2.718281828 ** law.log_partition), law.marginals.tolist()
        (6, [0.5, 0.5, 0.5, 0.5])

    Source:
        the paper's kernels, sections 2 and 3.
    """

    log_partition: float

    @cached_property
    @abstractmethod
    def marginals(self) -> Floats:
        """The probability of each coordinate."""

    @cached_property
    @abstractmethod
    def second_moment(self) -> Floats:
        """The probability of each pair of coordinates."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Ints:
        """Return the coordinates of an action drawn from the law, exactly."""


class ActionSet(ABC):
    """A set of 0/1 vectors with structure.

    Attributes:
        d: Length of the vectors.
        m: The most ones that one of them has.
        log_size: Natural logarithm of how many there are.

    Example:
        >>> from thrifty.solvers.games import BlottoSet
        >>> set_ = BlottoSet(3, 3)
        >>> set_.d, set_.m, set_.rank, round(2.718281828 ** set_.log_size)
        (12, 3, 9, 10)

    Source:
        the paper's section 2; :mod:`thrifty.solvers.games.span` for rank and coordinates.
    """

    d: int
    m: int
    log_size: float

    @abstractmethod
    def _law(self, theta: Floats) -> Law:
        """Return the law of checked log weights."""

    @abstractmethod
    def _cheapest(self, loss: Floats) -> tuple[Ints, float]:
        """Return the coordinates of an action of least loss, and that loss."""

    @abstractmethod
    def _rows(self, count: int) -> NDArray[np.int32]:
        """Return the coordinates of all actions, padded by -1."""

    @abstractmethod
    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""

    def _spanning(self) -> Ints | None:
        """Return coordinates on which the set has full rank, where a formula gives them."""
        return None

    def describe(self, taken: ArrayLike) -> str:
        """Return an action in words, from its coordinates."""
        return ", ".join(str(int(j)) for j in np.asarray(taken))

    def law(self, theta: ArrayLike) -> Law:
        """Return the law P(v) ∝ exp(⟨theta, v⟩).

        Args:
            theta: Log weights, ``(d,)``; -inf forbids a coordinate.

        Raises:
            ValueError: The shape is another, something is NaN or +inf, or no action is left.
        """
        checked = np.ascontiguousarray(theta, dtype=np.float64)
        if checked.shape != (self.d,):
            raise ValueError(f"theta: expected shape ({self.d},), got {checked.shape}")
        if not (checked < math.inf).all():  # NaN fails too
            raise ValueError("theta: expected numbers or -inf, got NaN or +inf")
        law = self._law(checked)
        if not math.isfinite(law.log_partition):
            raise ValueError("theta: expected weights under which some action is possible, got none")
        return law

    def log_partition(self, theta: ArrayLike) -> float:
        """Return log K(exp(theta))."""
        return self.law(theta).log_partition

    def marginals(self, theta: ArrayLike) -> Floats:
        """Return the first moment, ``(d,)``."""
        return self.law(theta).marginals

    def second_moment(self, theta: ArrayLike) -> Floats:
        """Return the second moment, ``(d, d)``."""
        return self.law(theta).second_moment

    def sample_compact(self, theta: ArrayLike, rng: np.random.Generator, size: int = 1) -> list[Ints]:
        """Draw actions, each as its coordinates."""
        law = self.law(theta)
        return [law.draw(rng) for _ in range(size)]

    def sample(self, theta: ArrayLike, rng: np.random.Generator, size: int = 1) -> NDArray[np.uint8]:
        """Draw actions as 0/1 vectors, ``(size, d)``."""
        return np.array([self.vector(taken) for taken in self.sample_compact(theta, rng, size)])

    def vector(self, taken: ArrayLike) -> NDArray[np.uint8]:
        """Return the 0/1 vector of some coordinates."""
        made = np.zeros(self.d, np.uint8)
        made[np.asarray(taken, np.int64)] = 1
        return made

    def argmin(self, loss: ArrayLike) -> tuple[NDArray[np.uint8], float]:
        """Return an action of least loss, and its loss; losses may be negative.

        Raises:
            ValueError: The shape is another, or a loss is not finite.
        """
        checked = np.ascontiguousarray(loss, dtype=np.float64)
        if checked.shape != (self.d,) or not np.isfinite(checked).all():
            raise ValueError(f"loss: expected {self.d} finite numbers, got shape {checked.shape}")
        taken, value = self._cheapest(checked)
        return self.vector(taken), value

    @cached_property
    def uniform(self) -> Law:
        """The uniform law."""
        return self.law(np.zeros(self.d))

    @cached_property
    def support(self) -> Ints:
        """Coordinates on which the set has full rank: linear algebra on them alone leaves every law as it is."""
        formula = self._spanning()
        return span.support(self.uniform.second_moment) if formula is None else formula

    @property
    def rank(self) -> int:
        """The dimension of what the actions span."""
        return int(self.support.size)

    def span_basis(self) -> Floats:
        """Return an orthonormal basis of what the actions span, ``(d, rank)``."""
        return span.basis(self.uniform.second_moment, self.rank)

    def spanner(self, C: float = 2.0) -> NDArray[np.uint8]:
        """Return a C-approximate barycentric spanner, ``(rank, d)``: every action is a mix with factors in [-C, C].

        Raises:
            ValueError: C is no number above 1.
        """
        return span.spanner(self, number("C", C, "a number above 1", least=1.0 + 1e-6))

    def enumerate(self, limit: int = 200_000) -> NDArray[np.uint8]:
        """Return all actions, ``(N, d)``.

        Raises:
            ValueError: There are more than ``limit``.
        """
        rows = self.enumerate_compact(limit)
        made = np.zeros((len(rows), self.d + 1), np.uint8)
        np.put_along_axis(made, np.where(rows < 0, self.d, rows).astype(np.int64), 1, axis=1)
        return made[:, : self.d]

    def enumerate_compact(self, limit: int = 200_000) -> NDArray[np.int32]:
        """Return the coordinates of all actions, ``(N, m)``, padded by -1.

        Raises:
            ValueError: There are more than ``limit``.
        """
        if self.log_size > math.log(whole("limit", limit)) + 1e-9:
            raise ValueError(
                f"limit: expected a set of at most {limit} actions to list, got 10^{self.log_size / math.log(10):.1f}"
            )
        return self._rows(round(math.exp(self.log_size)))
