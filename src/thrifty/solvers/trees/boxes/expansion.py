"""The way down of the dynamic programme: every case at every box of a cut, and the boxes that it hands to the children.

Cases are read off sweeps: one pass over the points of a box in the order of a
feature gives, for every threshold, the key of the set on either side, the errors of both sides as the subtrees below
stand, and the errors that nothing can avoid. So most children need no state of their own: a side that nothing can
improve, or for which no budget is left, is a number. Leaves always are. Only the others are looked up or added.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.boxes.boxes import EVERYTHING, find_or_add, is_sent_left
from thrifty.solvers.trees.boxes.cases import SETTLED
from thrifty.solvers.trees.boxes.sides import SideSums, fill_sides, in_order, side_sum
from thrifty.solvers.trees.boxes.splits import CHANGE, KEEP, RAISE_LEFT, RAISE_RIGHT, REPLACE
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING
from thrifty.solvers.trees.sweeps.sweep import Floors, LeafCounts


class CutPlace(NamedTuple):
    """The cut that is expanded."""

    feature: int
    rank: int
    missing_left: bool
    features: NDArray[np.int64]  # its own, then all that it may be changed to
    allowed: NDArray[np.bool_]  # [n_kinds, d]
    turns_missing: NDArray[np.bool_]  # [n_kinds]
    unit: NDArray[np.int64]  # [n_kinds], see splits.Splits
    needs_left: NDArray[np.int32]
    needs_right: NDArray[np.int32]
    first_leaf: int  # leaves under its left child are first_leaf .. middle_leaf - 1,
    middle_leaf: int  # those under its right child middle_leaf .. last_leaf - 1
    last_leaf: int
    leaf_left: NDArray[np.int32]  # [n], leaf of each point if sent left, by the cuts as given
    leaf_right: NDArray[np.int32]
    raises: NDArray[np.bool_]  # [2], whether the budgets are enough to raise the left child, the right
    prunes: NDArray[np.bool_]  # whether there are pruning budgets at the cut, at its left and its right child
    least_rows: NDArray[np.int64]  # rows that a leaf in the cut's place, the left and the right subtree must hold
    least_weight: NDArray[np.float64]  # likewise weight
    tolerance: float  # differences of errors that are rounding


class Workspace(NamedTuple):
    """Memory that the kernel reuses."""

    sums: SideSums
    leaves: LeafCounts
    floors: Floors
    need_left: NDArray[np.bool_]  # [1 + n_kinds, n_changes of the left child]
    need_right: NDArray[np.bool_]
    is_deep: NDArray[np.bool_]  # [2, 1 + n_kinds], whether any of these leaves changes for the child


@njit(cache=True, nogil=True)
def expand(first, last, boxes, cut, table, work, moves, n_moves, left, right):  # type: ignore[no-untyped-def]
    """Write the moves of boxes ``first .. last - 1`` and collect their children.

    Args:
        first: See above.
        last: See above.
        boxes: Boxes at the cut.
        cut: The cut.
        table: All points.
        work: Workspace.
        moves: Written from number ``n_moves`` on.
        n_moves: Moves so far.
        left: Children on the left so far.
        right: Children on the right so far.

    Returns:
        Moves now.
    """
    n_kinds = len(cut.unit)
    wanted = np.zeros(n_kinds, dtype=np.bool_)
    for i in range(first, last):
        here = boxes.points[boxes.start[i] : boxes.start[i + 1]]
        need = boxes.need[i]
        _child_needs(need, cut.needs_left, work.need_left, work.is_deep[0])
        _child_needs(need, cut.needs_right, work.need_right, work.is_deep[1])
        for q in range(n_kinds):
            wanted[q] = cut.unit[q] >= 0 and need[cut.unit[q]]
        own_swept = False
        for j in cut.features:
            swept = False
            for q in range(n_kinds):
                swept = swept or (wanted[q] and cut.allowed[q, j])
            if swept:
                own_swept = own_swept or j == cut.feature
                n_moves = _sweep(i, j, here, wanted, cut, table, work, moves, n_moves, left, right)
        if cut.prunes[0] or not own_swept:
            n_moves = _stand(i, here, cut, table, work, moves, n_moves, left, right)
        moves.start[i + 1] = n_moves
    return n_moves


@njit(cache=True, nogil=True)
def _child_needs(need, needs_child, out, is_deep):  # type: ignore[no-untyped-def]
    for row in range(needs_child.shape[0]):
        is_deep[row] = False
        for x in range(needs_child.shape[1]):
            out[row, x] = needs_child[row, x] >= 0 and need[needs_child[row, x]]
            is_deep[row] |= x > 0 and out[row, x]


@njit(cache=True, nogil=True)
def _sweep(i, j, here, wanted, cut, table, work, moves, n_moves, left, right):  # type: ignore[no-untyped-def]
    """The moves of box ``i`` that test feature ``j``: each of its thresholds, and the cut as it is if that is one."""
    ranks = table.ranks[j]
    ordered = in_order(here, table.place[j], table.order[j])
    m = len(ordered)
    while m > 0 and ranks[ordered[m - 1]] == MISSING:
        m -= 1
    n = len(ordered)
    turns = False
    for q in range(len(wanted)):
        turns = turns or (wanted[q] and cut.allowed[q, j] and cut.turns_missing[q])
    for turn in range(2 if n > m and turns else 1):
        missing_left = cut.missing_left != (turn == 1)
        keeps = j == cut.feature and turn == 0 and not cut.prunes[0]
        opens = cut.prunes[0] or (keeps and work.is_deep[:, 0].any())
        for q in range(len(wanted)):
            opens = opens or (wanted[q] and cut.allowed[q, j] and work.is_deep[:, 1 + q].any())
        low, high = fill_sides(ordered, m, missing_left, opens, cut, table, work)
        if keeps:
            p = 0
            while p < m and ranks[ordered[p]] <= cut.rank:
                p += 1
            n_moves = _add(np.int64(KEEP), p, p, i, j, ranks, ordered, m, missing_left, low, high, cut, work,
                           moves, n_moves, left, right)  # fmt: skip
        for q in range(len(wanted)):
            if wanted[q] and cut.allowed[q, j] and (turn == 0 or cut.turns_missing[q]):
                n_moves = _add(CHANGE + q, np.int64(0), m, i, j, ranks, ordered, m, missing_left, low, high, cut, work,
                               moves, n_moves, left, right)  # fmt: skip
    return n_moves


@njit(cache=True, nogil=True)
def _stand(i, here, cut, table, work, moves, n_moves, left, right):  # type: ignore[no-untyped-def]
    """The moves of box ``i`` that test nothing new: the cut as it is, a leaf in its place, or one of its children.

    All can be read off one sweep of the points in any order with those that go left first.
    """
    ranks, n = table.ranks[cut.feature], len(here)
    ordered = np.empty(n, dtype=np.int32)
    p, back = 0, n
    for e in here:
        if is_sent_left(ranks[e], cut.rank, cut.missing_left):
            ordered[p] = e
            p += 1
        else:
            back -= 1
            ordered[back] = e
    opens = cut.prunes[0] or work.is_deep[:, 0].any()
    low, high = fill_sides(ordered, n, cut.missing_left, opens, cut, table, work)
    n_moves = _add(np.int64(KEEP), p, p, i, np.int64(cut.feature), ranks, ordered, n, cut.missing_left, low, high,
                   cut, work, moves, n_moves, left, right)  # fmt: skip
    if not cut.prunes[0]:
        return n_moves
    sums = work.sums
    if sums.rows[n] >= cut.least_rows[0] and sums.weight[n] >= cut.least_weight[0]:
        moves.case[n_moves], moves.feature[n_moves] = REPLACE, EVERYTHING
        moves.child[n_moves, 0] = moves.child[n_moves, 1] = SETTLED
        moves.errors[n_moves, 0], moves.errors[n_moves, 1] = sums.merged[0, n], 0.0
        n_moves += 1
    none, everything = np.int64(0), np.int64(EVERYTHING)  # numba compiles anew for each literal argument
    if cut.raises[0]:
        n_moves = _add(np.int64(RAISE_LEFT), n, n, i, everything, ranks, ordered, n, cut.missing_left, low, high,
                       cut, work, moves, n_moves, left, right)  # fmt: skip
    if cut.raises[1]:
        n_moves = _add(np.int64(RAISE_RIGHT), none, none, i, everything, ranks, ordered, n, cut.missing_left, low, high,
                       cut, work, moves, n_moves, left, right)  # fmt: skip
    return n_moves


@njit(cache=True, nogil=True)
def _add(  # type: ignore[no-untyped-def]
    case, first, last, i, j, ranks, ordered, m, missing_left, low, high, cut, work, moves, n_moves, left, right
):  # fmt: skip
    """Write the moves with ``first .. last`` of the ``m`` swept points on the left, where that splits no equal ranks.

    None is written of which a side cannot hold what its leaves must; of those with both sides settled, only the best.
    The other child of a raised one gets nothing and is settled without errors. All is done in this one loop, as
    handing workspaces on costs more than a step of it.
    """
    sums, n = work.sums, len(ordered)
    row = max(0, case - CHANGE + 1)
    settled, settled_errors = np.int64(-1), np.inf  # number of the best such move, so far
    if first < last and not (cut.prunes[0] or work.is_deep[0, row] or work.is_deep[1, row]):
        fewest, best = np.inf, last + 1
        for p in range(max(first, low), min(last, high) + 1):
            errors = sums.errors[0, p] + sums.errors[1, m - p]
            if errors < fewest and (p in (0, m) or ranks[ordered[p - 1]] != ranks[ordered[p]]):
                fewest, best = errors, p
        first, last = best, min(best, last)
    for p in range(first, last + 1):
        if 0 < p < m and first < last and ranks[ordered[p - 1]] == ranks[ordered[p]]:
            continue
        is_open_left, is_open_right, fits = False, False, True
        errors_left, errors_right = 0.0, 0.0
        for side in range(2):
            if case == (RAISE_RIGHT if side == 0 else RAISE_LEFT):
                continue
            feasible = p >= low if side == 0 else p <= high
            standing = known = sums.errors[side, p if side == 0 else m - p]
            with_missing = missing_left == (side == 0)
            if cut.prunes[1 + side]:
                known = sums.merged[side, p if side == 0 else m - p]
            elif not feasible and (
                not work.is_deep[side, row]
                or side_sum(sums.rows, side, p, m, n, with_missing) < cut.least_rows[1 + side]
                or side_sum(sums.weight, side, p, m, n, with_missing) < cut.least_weight[1 + side]
            ):
                fits = False
                break
            is_open = (work.is_deep[side, row] or cut.prunes[1 + side]) and not (
                feasible and known <= side_sum(sums.unavoidable, side, p, m, n, with_missing) + cut.tolerance
            )
            if side == 0:
                errors_left, is_open_left = standing, is_open
            else:
                errors_right, is_open_right = standing, is_open
        if not fits:
            continue
        number = n_moves
        if not (is_open_left or is_open_right):
            if errors_left + errors_right >= settled_errors:
                continue
            settled_errors = errors_left + errors_right
            if settled >= 0:
                number = settled
            settled = number
        rank = cut.rank if case == KEEP else ranks[ordered[p - 1]] if p > 0 else BELOW_ALL
        moves.case[number], moves.feature[number], moves.rank[number] = case, j, rank
        moves.missing_left[number] = missing_left
        moves.errors[number, 0], moves.errors[number, 1] = errors_left, errors_right
        moves.child[number, 0] = moves.child[number, 1] = SETTLED
        if is_open_left:
            size = p + (n - m if missing_left else 0)
            moves.child[n_moves, 0] = _refer(
                side_sum(sums.key[0], 0, p, m, n, missing_left), side_sum(sums.key[1], 0, p, m, n, missing_left),
                size, i, j, rank, missing_left, work.need_left[row], left,
            )  # fmt: skip
        if is_open_right:
            moves.child[n_moves, 1] = _refer(
                side_sum(sums.key[0], 1, p, m, n, not missing_left),
                side_sum(sums.key[1], 1, p, m, n, not missing_left),
                m - p + (0 if missing_left else n - m), i, j, rank, missing_left, work.need_right[row], right,
            )  # fmt: skip
        n_moves += number == n_moves
    return n_moves


@njit(cache=True, nogil=True)
def _refer(key1, key2, size, i, j, rank, missing_left, need, children):  # type: ignore[no-untyped-def]
    """The number of a child box; its recipe is written if it is new, and what is asked of it is added in any case."""
    number, is_new = find_or_add(key1, key2, children)
    if is_new:
        children.parent[number], children.feature[number], children.rank[number] = i, j, rank
        children.missing_left[number], children.size[number] = missing_left, size
        children.need[number] = need
    else:
        for x in range(len(need)):
            children.need[number, x] |= need[x]
    return number
