"""What may happen at the boxes of a cut, as `expansion` writes it and `combination` reads it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SETTLED = -1
"""Child whose errors are known: the move holds them."""


class Moves(NamedTuple):
    """What may happen at each box of a cut; those of box ``i`` are ``start[i] .. start[i + 1] - 1``."""

    start: NDArray[np.int64]
    case: NDArray[np.int8]
    feature: NDArray[np.int32]
    rank: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    child: NDArray[np.int32]  # [n_moves, 2], numbers of the boxes at the left and right child, or SETTLED
    errors: NDArray[np.float64]  # [n_moves, 2], errors of a settled child


def room_for_moves(n_boxes: int, n_moves: int) -> Moves:
    """Room for ``n_moves`` moves of ``n_boxes`` boxes."""
    return Moves(
        start=np.zeros(n_boxes + 1, dtype=np.int64),
        case=np.empty(n_moves, dtype=np.int8),
        feature=np.empty(n_moves, dtype=np.int32),
        rank=np.empty(n_moves, dtype=np.int32),
        missing_left=np.empty(n_moves, dtype=np.bool_),
        child=np.empty((n_moves, 2), dtype=np.int32),
        errors=np.empty((n_moves, 2)),
    )


def take_moves(moves: Moves, which: NDArray[np.integer]) -> Moves:
    """Some moves, without regard to their boxes."""
    return moves._replace(
        case=moves.case[which],
        feature=moves.feature[which],
        rank=moves.rank[which],
        missing_left=moves.missing_left[which],
        child=moves.child[which],
        errors=moves.errors[which],
    )
