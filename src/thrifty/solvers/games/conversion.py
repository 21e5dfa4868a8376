"""Small games to and from OpenSpiel, nashpy and Gambit, as tables of payoffs: a payoff is minus a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from thrifty._common.extras import require
from thrifty.solvers.games.normal_form import NormalFormGame, payoff_tables


def action_names(game: Any) -> list[list[str]]:
    """Return every player's actions in words, in the order of the tables."""
    return [[actions.describe(row[row >= 0]) for row in actions.enumerate_compact()] for actions in game.sets]


def to_pyspiel(game: Any, limit: int = 200_000) -> Any:
    """Return a small game as OpenSpiel's matrix game (two players) or tensor game (more), its actions named.

    ``pyspiel.cce_dist`` takes what ``pyspiel.convert_to_turn_based`` makes of it.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        limit: The most joint actions to be written down.

    Raises:
        ValueError: There are more joint actions.
        ImportError: OpenSpiel is not installed.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> to_pyspiel(ColonelBlotto([1, 1], [1, 2])).row_utilities().tolist()
        [[-0.75, -0.5], [-1.0, -0.75]]

    Source:
        OpenSpiel's normal-form games.
    """
    pyspiel = require("pyspiel", extra="bench")
    tables, names = payoff_tables(game, limit), action_names(game)
    title = type(game).__name__
    if len(tables) == 2:
        return pyspiel.create_matrix_game(title, title, *names, *tables)
    return pyspiel.create_tensor_game(title, title, names, tables.reshape(len(tables), -1))


def from_pyspiel(game: Any) -> NormalFormGame:
    """Return OpenSpiel's matrix or tensor game as one that can be learned here.

    Args:
        game: A ``pyspiel.MatrixGame`` or ``pyspiel.TensorGame``.

    Raises:
        ValueError: It is OpenSpiel's ``blotto``, whose payoffs have no structure.
        TypeError: It is no table of payoffs.

    Example:
        >>> import pyspiel
        >>> from_pyspiel(pyspiel.load_matrix_game("matrix_rps")).loss_vectors([[0], [1]])[0].tolist()
        [1.0, 0.5, 0.0]

    Source:
        OpenSpiel's normal-form games.
    """
    pyspiel = require("pyspiel", extra="bench")
    if isinstance(game, pyspiel.Game) and game.get_type().short_name == "blotto":
        raise ValueError(
            "game: OpenSpiel's blotto pays ±1 to whoever wins more battlefields, which is no sum over battlefields, so "
            "that no kernel is exact for it; ColonelBlotto pays the value of each battlefield won, and to_pyspiel "
            "gives it to OpenSpiel"
        )
    if isinstance(game, pyspiel.MatrixGame):
        return NormalFormGame([game.row_utilities(), game.col_utilities()])
    if isinstance(game, pyspiel.TensorGame):
        shape = tuple(game.shape())
        return NormalFormGame([np.reshape(game.player_utilities(i), shape) for i in range(len(shape))])
    raise TypeError(
        f"game: expected a pyspiel.MatrixGame or TensorGame, got {game}; pyspiel.extensive_to_tensor_game makes one of "
        "a small sequential game"
    )


def to_nashpy(game: Any, limit: int = 200_000) -> Any:
    """Return a small game of two players as a ``nashpy.Game``.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        limit: The most joint actions to be written down.

    Raises:
        ValueError: There are more joint actions, or not two players.
        ImportError: nashpy is not installed.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> to_nashpy(ColonelBlotto([1, 1], [1, 2])).payoff_matrices[0].tolist()
        [[-0.75, -0.5], [-1.0, -0.75]]

    Source:
        nashpy's bimatrix games.
    """
    nashpy = require("nashpy", extra="bench")
    if len(game.sets) != 2:
        raise ValueError(f"game: expected two players, which is what nashpy has, got {len(game.sets)}")
    return nashpy.Game(*payoff_tables(game, limit))


def from_nashpy(game: Any) -> NormalFormGame:
    """Return a ``nashpy.Game`` as one that can be learned here.

    Args:
        game: Of two players.

    Example:
        >>> import nashpy
        >>> from_nashpy(nashpy.Game([[3, 0], [5, 1]], [[3, 5], [0, 1]])).scale
        5.0

    Source:
        nashpy's bimatrix games.
    """
    return NormalFormGame(game.payoff_matrices)


def to_gambit(game: Any, limit: int = 200_000) -> Any:
    """Return a small game as a ``pygambit.Game``, its actions named; ``to_nfg()`` then writes Gambit's file.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        limit: The most joint actions to be written down.

    Raises:
        ValueError: There are more joint actions.
        ImportError: pygambit is not installed; it is compiled from source, so that no extra but its own brings it.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> to_gambit(ColonelBlotto([1, 1], [1, 2])).to_nfg()[:5]  # doctest: +SKIP
        'NFG 1'

    Source:
        Gambit's strategic games.
    """
    pygambit = require("pygambit", extra="gambit")
    made = pygambit.Game.from_arrays(*payoff_tables(game, limit), title=type(game).__name__)
    for player, names in zip(made.players, action_names(game), strict=True):
        for strategy, name in zip(player.strategies, names, strict=True):
            strategy.label = name
    return made


def from_gambit(game: Any) -> NormalFormGame:
    """Return a ``pygambit.Game`` in strategic form as one that can be learned here.

    Args:
        game: Of two or more players.

    Example:
        >>> import pygambit  # doctest: +SKIP
        >>> from_gambit(pygambit.read_nfg("pd.nfg")).scale  # doctest: +SKIP
        5.0

    Source:
        Gambit's strategic games.
    """
    return NormalFormGame(np.array(game.to_arrays(dtype=float)))
