"""How far play is from a coarse correlated equilibrium: exact, by best response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty.solvers.games.actions.base import Floats


def cce_gaps(game: Any, plays: Sequence[Sequence[ArrayLike]]) -> Floats:
    """Return for each player what the best fixed action would have saved a round, over the plays; it may be negative.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        plays: Rounds of the coordinates that each player played.

    Raises:
        ValueError: There is no round.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> game = ColonelBlotto([3, 3], [1, 2, 3])
        >>> first, second = [(0, 0, 3), (1, 1, 1), (0, 1, 2), (3, 0, 0)], [(1, 1, 1), (0, 1, 2), (0, 0, 3), (1, 1, 1)]
        >>> at = lambda allocation: [h * 4 + s for h, s in enumerate(allocation)]
        >>> [round(float(gap), 7) for gap in cce_gaps(game, [(at(a), at(b)) for a, b in zip(first, second)])]
        [0.4166667, -0.0833333]

    Source:
        the paper's definition of an approximate coarse correlated equilibrium.
    """
    if len(plays) == 0:
        raise ValueError("plays: expected at least one round, got none")
    paid = np.zeros(len(game.sets))
    totals = [np.zeros(actions.d) for actions in game.sets]
    for joint in plays:
        for i, loss in enumerate(game.loss_vectors(joint)):
            paid[i] += loss[np.asarray(joint[i], np.int64)].sum()
            totals[i] += loss
    best = [actions.argmin(total)[1] for actions, total in zip(game.sets, totals, strict=True)]
    gaps: Floats = (paid - best) / len(plays)
    return gaps


def cce_gap(game: Any, plays: Sequence[Sequence[ArrayLike]]) -> float:
    """Return the largest of :func:`cce_gaps`, at least 0.

    Args:
        game: With ``sets`` and ``loss_vectors``.
        plays: Rounds of the coordinates that each player played.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto
        >>> cce_gap(ColonelBlotto([2, 2], [1, 1]), [([1, 4], [1, 4])])
        0.0

    Source:
        the paper's definition of an approximate coarse correlated equilibrium.
    """
    return max(0.0, float(cce_gaps(game, plays).max()))
