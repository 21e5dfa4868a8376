"""Small games as tables of payoffs: made from a structured game, or played like one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import whole
from thrifty.solvers.games.actions import ActionSet, MSet
from thrifty.solvers.games.actions.base import Floats, Ints


class NormalFormGame:
    """A game written down, played as if it had structure: one coordinate an action.

    A loss is how far a payoff is below the player's best, in units of the widest range of any player.

    Args:
        payoffs: To each player under each joint action, ``(P, N_1, ..., N_P)``.

    Raises:
        ValueError: The shape does not fit, a payoff is not finite, or nothing depends on what is played.

    Example:
        >>> game = NormalFormGame([[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]])  # matching pennies
        >>> [loss.tolist() for loss in game.loss_vectors([[0], [1]])], game.zero_sum
        ([[1.0, 0.0], [1.0, 0.0]], True)

    Source:
        multiplicative weights over a list are the case m = 1 of the paper's m-sets.
    """

    def __init__(self, payoffs: ArrayLike) -> None:
        try:
            given = np.asarray(payoffs, float)
        except ValueError as error:
            raise ValueError(f"payoffs: expected a table of one shape for every player, got {error}") from None
        if given.ndim < 3 or len(given) != given.ndim - 1:
            raise ValueError(f"payoffs: expected the shape (P, N_1, ..., N_P), at least two players, got {given.shape}")
        if not np.isfinite(given).all():
            raise ValueError("payoffs: expected finite numbers, got NaN or infinity")
        self.payoffs: Floats = given
        tables = given.reshape(len(given), -1)
        #: The best payoff of each player, which is a loss of 0.
        self.best: Floats = tables.max(axis=1)
        #: What one unit of loss is.
        self.scale = float((self.best - tables.min(axis=1)).max())
        if not 0 < self.scale < math.inf:
            raise ValueError(f"payoffs: expected payoffs that differ by a finite number, got a range of {self.scale:g}")
        self.sets: list[ActionSet] = [MSet(count, 1) for count in given.shape[1:]]

    @property
    def loss_bound(self) -> float:
        """The most that a player can lose in a round."""
        return 1.0

    @property
    def zero_sum(self) -> bool:
        """Whether two players' payoffs always sum to the same."""
        sums = self.payoffs.sum(axis=0)
        return len(self.sets) == 2 and bool(np.ptp(sums) <= 1e-12 * np.abs(self.payoffs).max())

    def loss_vectors(self, joint: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's loss vector, from the coordinates that all played."""
        played = [int(np.asarray(taken).item()) for taken in joint]
        return [
            (self.best[i] - np.moveaxis(table, i, -1)[tuple(played[:i] + played[i + 1 :])]) / self.scale
            for i, table in enumerate(self.payoffs)
        ]

    def expected_losses(self, marginals: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's expected loss vector where all draw independently, from all players' marginals."""
        mixed = [np.asarray(x, float) for x in marginals]
        found = []
        for i, table in enumerate(self.payoffs):
            left = np.moveaxis(table, i, -1)
            for j, x in enumerate(mixed):
                if j != i:
                    left = np.tensordot(x, left, axes=(0, 0))
            found.append((self.best[i] - left) / self.scale)
        return found

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game."""
        return {"game": "normal-form", "payoffs": self.payoffs.tolist()}


def payoff_tables(game: Any, limit: int = 200_000) -> Floats:
    """Return what a structured game pays under every joint action: minus the loss.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        limit: The most joint actions to be written down.

    Returns:
        ``(P, N_1, ..., N_P)``; actions are in the order of :meth:`ActionSet.enumerate`.

    Raises:
        ValueError: There are more joint actions.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> payoff_tables(ColonelBlotto([1, 1], [1, 2]))[0].tolist()
        [[-0.75, -0.5], [-1.0, -0.75]]

    Source:
        losses are linear in a player's own action, so one loss vector for each action of the others does.
    """
    log_size = sum(actions.log_size for actions in game.sets)
    if log_size > math.log(whole("limit", limit)) + 1e-9:
        raise ValueError(
            f"limit: expected a game of at most {limit} joint actions, got 10^{log_size / math.log(10):.1f}"
        )
    listed: list[list[Ints]] = [
        [row[row >= 0].astype(np.int64) for row in actions.enumerate_compact(limit)] for actions in game.sets
    ]
    tables = np.empty((len(listed), *map(len, listed)))
    for i, actions in enumerate(game.sets):
        vectors = actions.enumerate(limit).astype(float)
        others = [range(1) if j == i else range(len(rows)) for j, rows in enumerate(listed)]
        for at in itertools.product(*others):
            loss = game.loss_vectors([rows[a] for rows, a in zip(listed, at, strict=True)])[i]
            np.moveaxis(tables[i], i, -1)[at[:i] + at[i + 1 :]] = -(vectors @ loss)
    return tables
