"""The way up of the dynamic programme: tables of a cut's boxes from those of its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.boxes.boxes import Boxes
from thrifty.solvers.trees.boxes.cases import SETTLED, Moves
from thrifty.solvers.trees.boxes.splits import Splits

_SLICE = 20_000_000
"""Steps between two looks at the clock."""

NO_MOVE = -1
"""Choice at an entry that cannot be met, or was not asked for."""


class Choices(NamedTuple):
    """How each entry of each box is reached."""

    move: NDArray[np.int32]  # [n_boxes, size], number of a move, or NO_MOVE
    triple: NDArray[np.int32]  # [n_boxes, size], number of a triple of `Splits`


def combine(
    boxes: Boxes,
    moves: Moves,
    splits: Splits,
    left: tuple[NDArray[np.float64], Splits],
    right: tuple[NDArray[np.float64], Splits],
    tolerance: float,
    is_late: Callable[[], bool],
) -> tuple[NDArray[np.float64], Choices] | None:
    """Fewest errors for every box and entry.

    Of equally good ways one that spends fewer changes is chosen.

    Args:
        boxes: Boxes at the cut.
        moves: What may happen at each.
        splits: Table of the cut.
        left: Tables of the left child's boxes, ``[n_boxes, size]``, and their description.
        right: Likewise.
        tolerance: Differences of errors that are rounding.
        is_late: Whether to give up; asked now and then.

    Returns:
        Errors, float64 ``[n_boxes, size]``, and how they are reached. Entries that cannot be met are inf; entries
        that nobody asked for mean nothing. ``None`` if it was given up.
    """
    shape = (len(boxes.start) - 1, splits.size)
    errors = np.full(shape, np.inf)
    choices = Choices(np.full(shape, NO_MOVE, dtype=np.int32), np.zeros(shape, dtype=np.int32))
    steps = np.cumsum(np.diff(moves.start)) * int(np.diff(splits.start).max())
    first = 0
    while first < shape[0]:
        if is_late():
            return None
        done = steps[first - 1] if first > 0 else 0
        last = max(first + 1, int(np.searchsorted(steps, done + _SLICE, side="right")))
        _combine(
            first, last, boxes.need, moves, splits.triples, splits.start, splits.n_prunings, splits.fewer,
            left[0], left[1].shape_only, right[0], right[1].shape_only, tolerance,
            errors, choices.move, choices.triple,
        )  # fmt: skip
        first = last
    return errors, choices


@njit(cache=True, nogil=True)
def _combine(  # type: ignore[no-untyped-def]
    first, last, need, moves, triples, case_start, n_prunings, fewer, left, shape_left, right, shape_right, tolerance,
    errors, chosen, chosen_triple,
):  # fmt: skip
    for i in range(first, last):
        best = errors[i]
        for number in range(moves.start[i], moves.start[i + 1]):
            case = moves.case[number]
            a, b = moves.child[number, 0], moves.child[number, 1]
            errors_a, errors_b = moves.errors[number, 0], moves.errors[number, 1]
            for t in range(case_start[case], case_start[case + 1]):
                entry = triples[t, 0]
                if not need[i, entry // n_prunings]:
                    continue
                x, y = triples[t, 1], triples[t, 2]
                on_left = errors_a + shape_left[x] if a == SETTLED else left[a, x]
                on_right = errors_b + shape_right[y] if b == SETTLED else right[b, y]
                if on_left + on_right < best[entry] - tolerance:
                    best[entry] = on_left + on_right
                    chosen[i, entry], chosen_triple[i, entry] = number, t
        for q in range(fewer.shape[0]):
            for entry in range(len(best)):
                less = fewer[q, entry]
                if less >= 0 and best[less] <= best[entry] + tolerance and best[less] < np.inf:
                    best[entry] = best[less]
                    chosen[i, entry], chosen_triple[i, entry] = chosen[i, less], chosen_triple[i, less]
