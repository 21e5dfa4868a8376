"""The paper's parameter delta_max: in how many features two rows of different classes differ at most."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.ranks import RankTable

_STEPS_A_CALL = 200_000_000
_TILE = 256  # rows held in cache while the others pass by


def delta_max(table: RankTable) -> int:
    """The largest number of features in which two rows of different classes differ; 0 if there is one class only.

    O(n^2 d) comparisons of ranks, cut short once a pair differs in all features. A missing value differs from every
    number, not from another missing value. Rows are compared a block at a time, so that an interrupt is heard.

    Args:
        table: The training table, with all features that shall count.
    """
    rows = np.ascontiguousarray(table.ranks.T)
    n, d = rows.shape
    block = max(_TILE, _STEPS_A_CALL // max(n * d, 1))
    most = 0
    for first in range(0, n, block):
        most = _largest_difference(rows, table.y, first, min(first + block, n), most)
        if most == d:
            break
    return int(most)


@njit(cache=True, nogil=True)
def _largest_difference(rows: NDArray[np.int32], y: NDArray[np.int32], first: int, last: int, most: int) -> int:
    """The largest difference between rows ``first .. last - 1`` and those before them, at least ``most``."""
    d = rows.shape[1]
    for start in range(0, last, _TILE):
        for a in range(first, last):
            for b in range(start, min(start + _TILE, a)):
                if y[a] == y[b]:
                    continue
                same = 0
                for j in range(d):
                    same += rows[a, j] == rows[b, j]
                    if same >= d - most:
                        break
                if d - same > most:
                    most = d - same
                    if most == d:
                        return most
    return most
