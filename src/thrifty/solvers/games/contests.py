"""Colonel Blotto: who sends most soldiers to a battlefield wins its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import one_of, whole
from thrifty.solvers.games.actions import ActionSet, BlottoSet
from thrifty.solvers.games.actions.base import Floats, Ints


class ColonelBlotto:
    """A Blotto game of two or more players; a loss is the share of the values that one does not win.

    Args:
        soldiers: Of each player.
        values: Of the battlefields, ``(k,)``, or to each player, ``(P, k)``; losses are in units of the largest.
        tie: Who shares the first place wins its part (``"share"``), half (``"half"``), or nothing (``"lose"``).
        contest: ``"all-pay"``: most soldiers win; ``"ratio"``: each wins in proportion to soldiers.
        min_alloc: The fewest soldiers on a battlefield, for all players; see :class:`BlottoSet`.
        max_alloc: The most.
        at_most: Soldiers may stay at home.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> game = ColonelBlotto([3, 3], [1, 2, 3])
        >>> joint = [[0, 4, 11], [1, 5, 9]]  # coordinates of (0, 0, 3) and of (1, 1, 1)
        >>> [round(float(loss[taken].sum()), 4) for loss, taken in zip(game.loss_vectors(joint), joint)]
        [1.0, 1.0]

    Source:
        the paper's section on Colonel Blotto; ties and contests are ours.
    """

    def __init__(
        self,
        soldiers: Sequence[int],
        values: ArrayLike,
        tie: str = "half",
        contest: str = "all-pay",
        min_alloc: ArrayLike | None = None,
        max_alloc: ArrayLike | None = None,
        at_most: bool = False,
    ) -> None:
        one_of("tie", tie, ("share", "half", "lose"))
        one_of("contest", contest, ("all-pay", "ratio"))
        self.soldiers = [whole("soldiers", n) for n in soldiers]
        players = len(self.soldiers)
        given = np.asarray(values, float)
        if players < 2:
            raise ValueError(f"soldiers: expected one number a player, at least two players, got {list(soldiers)}")
        if given.ndim not in (1, 2) or not np.isfinite(given).all() or (given < 0).any() or not given.any():
            raise ValueError(f"values: expected numbers of at least 0, (k,) or (P, k), got {values!r}")
        if given.ndim == 2 and len(given) != players:
            raise ValueError(f"values: expected {players} rows, one a player, got {len(given)}")
        self.tie, self.contest = tie, contest
        self.values: Floats = np.broadcast_to(given, (players, given.shape[-1])) / given.max()
        self.sets: list[ActionSet] = [
            BlottoSet(n, given.shape[-1], min_alloc, max_alloc, at_most) for n in self.soldiers
        ]

    @property
    def loss_bound(self) -> float:
        """The most that a player can lose in a round."""
        return float(self.values.sum(axis=1).max())

    @property
    def zero_sum(self) -> bool:
        """Whether two players' losses always sum to the same."""
        fair = self.contest == "ratio" or self.tie != "lose"
        return len(self.sets) == 2 and fair and bool((self.values[0] == self.values[1]).all())

    def loss_vectors(self, joint: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's loss vector, from the coordinates that all played."""
        k = self.values.shape[1]
        sent = np.zeros((len(joint), k))
        for i, taken in enumerate(joint):
            coordinates: Ints = np.asarray(taken, np.int64)
            sent[i, coordinates // (self.soldiers[i] + 1)] = coordinates % (self.soldiers[i] + 1)
        return [self._losses(i, np.delete(sent, i, axis=0)) for i in range(len(joint))]

    def _losses(self, i: int, others: Floats) -> Floats:
        units = np.arange(self.soldiers[i] + 1.0)
        if self.contest == "ratio":
            rest = others.sum(axis=0)[:, None]
            with np.errstate(invalid="ignore"):
                won = np.where(units + rest > 0, units / (units + rest), 1 / (len(others) + 1))
        else:
            most = others.max(axis=0)[:, None]
            rivals = (others == others.max(axis=0)).sum(axis=0)[:, None]
            part = {"share": 1 / (rivals + 1), "half": np.full(most.shape, 0.5), "lose": np.zeros(most.shape)}
            won = np.where(units > most, 1.0, np.where(units == most, part[self.tie], 0.0))
        return np.ascontiguousarray((self.values[i][:, None] * (1 - won)).ravel())

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game."""
        return {"tie": self.tie, "contest": self.contest, "values": self.values.tolist(), "soldiers": self.soldiers}
