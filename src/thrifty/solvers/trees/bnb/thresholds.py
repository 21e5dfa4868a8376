"""All thresholds of one feature at a cut that is changed, with bounds on what further changes can do at each.

For budgets of three and more. Each side's fewest errors are monotone in the points on that side and grow by at most
a point's weight, so a bound found at one position bounds every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.filling import add_point, clear_holding, clear_leaves, first_enough
from thrifty.solvers.trees.bnb.scene import Scene, Work, n_present
from thrifty.solvers.trees.instance.ranks import MISSING

LEFT, RIGHT = 0, 1


@dataclass(eq=False)
class Thresholds:
    """One feature and missing direction at one cut, on one set of points.

    Attributes:
        feature: Feature.
        missing_left: Whether missing values go left.
        place: Where each point of the set stands in the order in which points go left; int32 ``[n]``.
        n_left: Points on the left, for each threshold, ascending; ``[positions]``.
        rank: Rank of each threshold; ``[positions]``.
        weight: Weight of the points on the left; ``[positions]``.
        allowed: Whether the leaves under each child hold their floors with no further change; bool ``[2, positions]``.
        lower: Bounds on the relaxed errors under each child for each number of changes there;
            float64 ``[2, budget + 1, positions]``. Those for no change are exact.
        is_open: Which positions may still be looked at; bool ``[positions]``.
    """

    feature: int
    missing_left: bool
    place: NDArray[np.int32]
    n_left: NDArray[np.int64]
    rank: NDArray[np.int64]
    weight: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    lower: NDArray[np.float64]
    is_open: NDArray[np.bool_]

    @property
    def least_errors(self) -> float:
        """Errors under the cut at the best of the thresholds, with no further change."""
        return float((self.lower[LEFT, 0] + self.lower[RIGHT, 0]).min())

    def value(self, side: int, i: int) -> float:
        """Allowed errors under one child with no further change."""
        return float(self.lower[side, 0, i]) if self.allowed[side, i] else np.inf

    def bounds(self, splits: list[tuple[int, int]]) -> NDArray[np.float64]:
        """Lower bound at each position over the given splits of the budget; inf where it is not open."""
        bound = np.full(len(self.rank), np.inf)
        for n_left, n_right in splits:
            np.minimum(bound, self.lower[LEFT, n_left] + self.lower[RIGHT, n_right], out=bound)
        bound[~self.is_open] = np.inf
        return bound

    def raise_bounds(self, side: int, budget: int, i: int, errors: float) -> None:
        """Spread a lower bound at position ``i`` over all positions, for ``budget`` changes and fewer."""
        apart = self.weight[i] - self.weight  # positive on the left of i
        fewer_points = apart if side == LEFT else -apart
        bound = errors - np.maximum(fewer_points, 0.0)
        np.maximum(self.lower[side, 1 : budget + 1], bound, out=self.lower[side, 1 : budget + 1])

    def room(self, i: int, bound: NDArray[np.float64], threshold: float) -> float:
        """Weight from position ``i`` to the farther end of the run of positions with bounds below ``threshold``."""
        closed = np.flatnonzero(bound >= threshold)
        at = int(np.searchsorted(closed, i))
        first = int(closed[at - 1]) + 1 if at > 0 else 0
        last = int(closed[at]) - 1 if at < len(closed) else len(bound) - 1
        return float(max(self.weight[i] - self.weight[first], self.weight[last] - self.weight[i]))


def all_thresholds(
    u: int, order: NDArray[np.int32], features: NDArray[np.intp], budget: int, scene: Scene, work: Work
) -> Iterator[Thresholds]:
    """Sweep each of ``features`` at cut ``u`` in each missing direction.

    Args:
        u: Cut.
        order: Points at ``u`` by each feature; int32 ``[d, m]``.
        features: Features to sweep.
        budget: Most changes that either child may get.
        scene: The problem.
        work: Buffers.
    """
    shape = scene.shape
    a, b = shape.left[u], shape.right[u]
    bounds = (int(shape.leaf_start[u]), int(shape.leaf_stop[a]), int(shape.leaf_stop[u]))
    below = (scene.leaf_of[a], scene.leaf_of[b])
    for j in features.tolist():
        m = order.shape[1]
        present = n_present(order[j], m, scene.ranks[j])
        own = bool(scene.missing_left[u])
        for missing_left in (own, not own) if scene.turns_missing and present < m else (own,):
            sequence = np.roll(order[j], m - present) if missing_left else order[j]
            errors = np.empty((2, m + 1))
            need, most = sweep_sides(sequence, bounds, *below, scene.data, work.leaves, errors)
            ranks = scene.ranks[j, sequence]
            ranks[ranks == MISSING] = -1
            n_left = np.arange(m + 1)
            first = m - present if missing_left else 0
            inside = (n_left >= first) & (n_left <= first + present)
            inside[1:-1] &= (n_left[1:-1] == first) | (n_left[1:-1] == first + present) | (ranks[:-1] != ranks[1:])
            n_left = n_left[inside]

            lower = np.empty((2, budget + 1, len(n_left)))
            lower[:, 0] = errors[:, n_left]
            unavoidable = np.concatenate([[0.0], np.cumsum(scene.data.unavoidable[sequence])])
            lower[LEFT, 1:] = unavoidable[n_left]
            lower[RIGHT, 1:] = unavoidable[-1] - unavoidable[n_left]
            place = np.full(scene.ranks.shape[1], -1, dtype=np.int32)
            place[sequence] = np.arange(m, dtype=np.int32)
            yield Thresholds(
                feature=j,
                missing_left=missing_left,
                place=place,
                n_left=n_left,
                rank=np.concatenate([[-1], ranks])[n_left].astype(np.int64),
                weight=np.concatenate([[0.0], np.cumsum(scene.data.weight[sequence])])[n_left],
                allowed=np.stack([n_left >= need, n_left <= most]),
                lower=lower,
                is_open=np.ones(len(n_left), dtype=np.bool_),
            )


@njit(cache=True, nogil=True)
def sweep_sides(sequence, bounds, left, right, data, leaves, errors):  # type: ignore[no-untyped-def]
    """Errors under each child of a cut with the first p points of ``sequence`` on the left, for every p.

    Args:
        sequence: ``[m]``.
        bounds: First leaf under the cut; first under its right child; one past the last.
        left: Leaf of each point if sent left; ``[n]``.
        right: Leaf of each point if sent right; ``[n]``.
        data: Points and floors.
        leaves: Buffers.
        errors: Written; ``[2, m + 1]``.

    Returns:
        How many points must go left for the floors there, and how many may at most for those on the right.
    """
    m = len(sequence)
    start, middle, stop = bounds
    clear_leaves(leaves.counts, leaves.largest, start, stop)
    clear_holding(leaves.holding, start, stop)
    errors[0, 0] = 0.0
    errors[1, m] = 0.0
    for p in range(m):
        e = sequence[p]
        errors[0, p + 1] = errors[0, p] + add_point(left[e], data.y[e], data.weight[e], leaves.counts, leaves.largest)
    for p in range(m - 1, -1, -1):
        e = sequence[p]
        errors[1, p] = errors[1, p + 1] + add_point(right[e], data.y[e], data.weight[e], leaves.counts, leaves.largest)
    need = first_enough(sequence, 0, 1, m, left, start, middle, 0, 0, data, leaves.holding)
    most = m - first_enough(sequence, m - 1, -1, m, right, middle, stop, 0, 0, data, leaves.holding)
    return need, most
