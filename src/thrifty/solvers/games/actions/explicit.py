"""A set of actions that is written down: the reference for all kernels, and the enumerated rival."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from thrifty.solvers.games.actions.base import ActionSet, Floats, Ints, Law

Rows = NDArray[np.int32]


@njit(cache=True)
def _weigh(rows: Rows, theta: Floats, q: Floats) -> float:
    """Fill ``q`` with the law, an entry an action; return log K."""
    top = -math.inf
    for i in range(rows.shape[0]):
        total = 0.0
        for j in rows[i]:
            if j < 0:
                break
            total += theta[j]
        q[i] = total
        top = max(top, total)
    if top == -math.inf:
        return top
    mass = 0.0
    for i in range(q.size):
        q[i] = math.exp(q[i] - top)
        mass += q[i]
    q /= mass
    return top + math.log(mass)


@njit(cache=True)
def _first(rows: Rows, q: Floats, x: Floats) -> None:
    x[:] = 0.0
    for i in range(rows.shape[0]):
        for j in rows[i]:
            if j < 0:
                break
            x[j] += q[i]


@njit(cache=True)
def _second(rows: Rows, q: Floats, sigma: Floats) -> None:
    sigma[:, :] = 0.0
    for i in range(rows.shape[0]):
        for j in rows[i]:
            if j < 0:
                break
            for k in rows[i]:
                if k < 0:
                    break
                sigma[j, k] += q[i]


@njit(cache=True)
def _find(q: Floats, left: float) -> int:
    last = 0
    for i in range(q.size):
        if q[i] > 0.0:
            last = i
            left -= q[i]
            if left < 0.0:
                return i
    return last


@njit(cache=True)
def _least(rows: Rows, loss: Floats) -> tuple[int, float]:
    best, least = 0, math.inf
    for i in range(rows.shape[0]):
        total = 0.0
        for j in rows[i]:
            if j < 0:
                break
            total += loss[j]
        if total < least:
            best, least = i, total
    return best, least


class ExplicitLaw(Law):
    """A law as one number an action."""

    def __init__(self, actions: ExplicitSet, theta: Floats) -> None:
        self._set = actions
        #: The probability of each action.
        self.q = np.empty(len(actions.rows))
        self.log_partition = _weigh(actions.rows, theta, self.q)

    @cached_property
    def marginals(self) -> Floats:
        """The probability of each coordinate."""
        x = np.empty(self._set.d)
        _first(self._set.rows, self.q, x)
        return x

    @cached_property
    def second_moment(self) -> Floats:
        """The probability of each pair of coordinates."""
        sigma = np.empty((self._set.d, self._set.d))
        _second(self._set.rows, self.q, sigma)
        return sigma

    def draw(self, rng: np.random.Generator) -> Ints:
        """Return the coordinates of an action."""
        row = self._set.rows[_find(self.q, rng.random())]
        taken: Ints = row[row >= 0].astype(np.int64)
        return taken


class ExplicitSet(ActionSet):
    """Actions written down; every round costs as much as there are of them.

    Args:
        A: 0/1 vectors, ``(N, d)``; or coordinates, ``(N, m)`` integers padded by -1, with ``d``.
        d: Length of the vectors, where coordinates are given.

    Raises:
        ValueError: There is no action, or an entry is neither 0 nor 1.

    Example:
        >>> ExplicitSet([[1, 0, 1], [0, 1, 1]]).marginals([0, 0, 0]).tolist()
        [0.5, 0.5, 1.0]

    Source:
        EXP2: Dani, Hayes and Kakade (2007), over a list.
    """

    def __init__(self, A: ArrayLike, d: int | None = None) -> None:
        given = np.asarray(A)
        if given.ndim != 2 or 0 in given.shape:
            raise ValueError(f"A: expected vectors as rows, got shape {given.shape}")
        if d is None:
            if not np.isin(given, (0, 1)).all():
                raise ValueError("A: expected entries 0 and 1")
            self.d = given.shape[1]
            self.m = int(given.sum(axis=1).max())
            order = np.argsort(1 - given.astype(np.int8), axis=1, kind="stable")[:, : self.m]
            self.rows: Rows = np.where(np.take_along_axis(given, order, axis=1) == 1, order, -1).astype(np.int32)
        else:
            self.d, self.rows, self.m = d, given.astype(np.int32), given.shape[1]
        self.log_size = math.log(len(given))

    def _law(self, theta: Floats) -> Law:
        return ExplicitLaw(self, theta)

    def _cheapest(self, loss: Floats) -> tuple[Ints, float]:
        i, value = _least(self.rows, loss)
        return self.rows[i][self.rows[i] >= 0].astype(np.int64), value

    def _rows(self, count: int) -> Rows:
        return self.rows

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""
        return {"rows": self.rows.tolist(), "d": self.d}
