"""Colonel Blotto: who sends most soldiers to a battlefield wins its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import one_of, whole
from thrifty.solvers.games import losses
from thrifty.solvers.games.actions import ActionSet, BlottoSet
from thrifty.solvers.games.actions.base import Floats

#: What who shares the first place wins.
TIES = {"share": losses.SHARE, "half": losses.HALF, "lose": losses.LOSE}


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
        one_of("tie", tie, tuple(TIES))
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
        self.tie, self.contest, self.at_most, self._given = tie, contest, bool(at_most), given
        limits = {"min_alloc": min_alloc, "max_alloc": max_alloc}
        self._limits = {name: None if limit is None else np.asarray(limit).tolist() for name, limit in limits.items()}
        self.values: Floats = np.broadcast_to(given, (players, given.shape[-1])) / given.max()
        self.sets: list[ActionSet] = [
            BlottoSet(n, given.shape[-1], min_alloc, max_alloc, at_most) for n in self.soldiers
        ]

        kind = losses.RATIO if contest == "ratio" else TIES[tie]
        #: The game as compiled code reads it.
        self.rules = losses.contest_rules(kind, self.soldiers, self.values)

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
        return losses.realised_losses(self.rules, joint)

    def expected_losses(self, marginals: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's expected loss vector where all draw independently, from all players' marginals."""
        return losses.expected_losses(self.rules, marginals)

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game."""
        return {
            "game": "blotto",
            "soldiers": self.soldiers,
            "values": self._given.tolist(),
            "tie": self.tie,
            "contest": self.contest,
            "at_most": self.at_most,
            **{name: limit for name, limit in self._limits.items() if limit is not None},
        }
