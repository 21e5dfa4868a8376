"""How far independent players are from a Nash equilibrium, from their marginals alone, and one of zero-sum games."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.solvers.games.actions.base import Floats
from thrifty.solvers.games.play import solve_cce
from thrifty.solvers.games.result import CCEResult


def nash_gaps(game: Any, marginals: Sequence[ArrayLike]) -> Floats:
    """Return what each player would save by the best answer to the others, all of whom draw independently.

    Losses are linear in a player's own action and depend on the others' coordinates one resource at a time, so that
    marginals say everything: no action is listed.

    Args:
        game: With ``sets`` and ``expected_losses``.
        marginals: The probability of each coordinate, ``(d,)`` a player.

    Returns:
        ``(P,)``, at least 0 but for rounding where the marginals are those of some mixed strategy.

    Raises:
        ValueError: The shapes do not fit, or a number is not in [0, 1].

    Example:
        >>> from thrifty.solvers.games import NormalFormGame
        >>> pennies = NormalFormGame([[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]])
        >>> nash_gaps(pennies, [[0.5, 0.5], [0.75, 0.25]]).tolist()
        [0.25, 0.0]

    Source:
        the definition of a Nash equilibrium; best answers by the sets' linear oracles.
    """
    found = [np.asarray(x, float) for x in marginals]
    sizes = [actions.d for actions in game.sets]
    if [x.shape for x in found] != [(d,) for d in sizes]:
        raise ValueError(f"marginals: expected vectors of {sizes}, got shapes {[x.shape for x in found]}")
    if not all(((x >= -1e-9) & (x <= 1 + 1e-9)).all() for x in found):
        raise ValueError("marginals: expected probabilities, got numbers outside [0, 1]")
    losses = game.expected_losses(found)
    gaps: Floats = np.array(
        [loss @ x - actions.argmin(loss)[1] for loss, x, actions in zip(losses, found, game.sets, strict=True)]
    )
    return gaps


def exploitability(game: Any, marginals: Sequence[ArrayLike]) -> float:
    """Return the mean of :func:`nash_gaps` over players, which is what OpenSpiel calls exploitability.

    Args:
        game: With ``sets`` and ``expected_losses``.
        marginals: The probability of each coordinate, ``(d,)`` a player.

    Example:
        >>> from thrifty.solvers.games import NormalFormGame
        >>> pennies = NormalFormGame([[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]])
        >>> exploitability(pennies, [[0.5, 0.5], [0.75, 0.25]])
        0.125

    Source:
        OpenSpiel's ``exploitability``: NashConv over the number of players.
    """
    return float(nash_gaps(game, marginals).mean())


def solve_nash(game: Any, horizon: int = 10_000, **options: Any) -> CCEResult:
    """Return an approximate Nash equilibrium of a game of two players with opposite interests.

    Both learn from expected losses, by optimistic multiplicative weights; the averages of their laws are a Nash
    equilibrium up to :attr:`CCEResult.exploitability`, which is exact. ``result.sample(n, rng, independent=True)``
    draws from it, and ``result.marginals`` are its marginals.

    Args:
        game: Of two players, zero-sum.
        horizon: Rounds.
        **options: As of :func:`solve_cce`.

    Raises:
        ValueError: The game is not zero-sum, where averages would be no Nash equilibrium.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> solve_nash(ColonelBlotto([6, 5], [1, 2, 3]), 2000).exploitability < 0.01
        True

    Source:
        the paper's remark on zero-sum games; Farina et al. (2022).
    """
    if not game.zero_sum:
        raise ValueError(
            "game: expected two players whose losses sum to a constant, as averages of play are a Nash equilibrium "
            "only then; solve_cce finds a coarse correlated equilibrium of any game"
        )
    return solve_cce(game, options.pop("feedback", "expected"), horizon, **options)
