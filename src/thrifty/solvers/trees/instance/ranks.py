"""The training table as small integers: every solver works on ranks, and only the answer is turned into thresholds.

Column j has the distinct values ``values[j][0] < values[j][1] < ...``; a point holds the rank of its value, and a cut
at rank r sends the points of rank ``<= r`` left. Rank -1 is the paper's threshold -inf (everything right), the last
rank sends everything left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numba import njit
from numpy.typing import NDArray

from thrifty.solvers.trees.model.labels import leaf_errors

MISSING = np.iinfo(np.int32).max
"""Rank of a missing value: above every other, so that sorted orders hold missing values last."""

BELOW_ALL = -1
"""Rank of a cut that sends every value right."""


@dataclass(frozen=True, eq=False)
class RankTable:
    """A weighted training table on ranks, feature-major, equal rows merged.

    A *point* stands for all rows of one class that agree in every column used: ``weight`` adds theirs up, ``n_rows``
    counts them. Points come in the order of their ranks, so that the order of the rows does not matter.

    Attributes:
        columns: Column of the user's table behind each feature here; int32 ``[d]``, ascending.
        values: Distinct values of each feature, ascending, as they are compared; ``d`` float64 arrays.
        ranks: Rank of each point's value, `MISSING` where there is none; int32 ``[d, n]``.
        order: Points by ascending rank (then by number), missing last; int32 ``[d, n]``.
        y: Class of each point; int32 ``[n]``.
        weight: Weight of each point, positive; float64 ``[n]``.
        n_rows: Rows merged into each point; int64 ``[n]``.
        group: Points that share all ranks (and differ in class only) share a group; int32 ``[n]``.
        n_classes: Classes of the tree.
    """

    columns: NDArray[np.int32]
    values: tuple[NDArray[np.float64], ...]
    ranks: NDArray[np.int32]
    order: NDArray[np.int32]
    y: NDArray[np.int32]
    weight: NDArray[np.float64]
    n_rows: NDArray[np.int64]
    group: NDArray[np.int32]
    n_classes: int

    @property
    def n_points(self) -> int:
        """Points, after merging."""
        return len(self.y)

    @property
    def n_features(self) -> int:
        """Features used (d)."""
        return len(self.columns)

    @cached_property
    def domain_sizes(self) -> NDArray[np.int64]:
        """Distinct values of each feature (the D_i of the paper without -inf); int64 ``[d]``."""
        return np.array([len(distinct) for distinct in self.values], dtype=np.int64)

    @cached_property
    def has_integer_weights(self) -> bool:
        """Whether all sums of weights are exact: whole numbers that float64 adds without rounding."""
        return bool((self.weight == np.rint(self.weight)).all() and self.weight.sum() < 2**53)

    @cached_property
    def tolerance(self) -> float:
        """Differences between errors up to this size are rounding: 0 for integer weights."""
        return 0.0 if self.has_integer_weights else 1e-9 * float(self.weight.sum())

    def class_counts(self, bins: NDArray[np.integer], n_bins: int) -> NDArray[np.float64]:
        """Weight of each class in each bin, float64 ``[n_bins, n_classes]``; ``bins`` gives each point's."""
        cell = bins.astype(np.int64) * self.n_classes + self.y
        counts: NDArray[np.float64] = np.bincount(cell, weights=self.weight, minlength=n_bins * self.n_classes).astype(
            np.float64
        )
        return counts.reshape(n_bins, self.n_classes)

    @cached_property
    def unavoidable_errors(self) -> float:
        """Errors that every tree on these features makes: rows that agree in all features and not in class."""
        return float(leaf_errors(self.class_counts(self.group, int(self.group.max()) + 1)).sum())

    def rank_of(self, j: int, threshold: float) -> int:
        """Rank of the largest value of feature ``j`` that is ``<= threshold``; -1 if there is none."""
        return int(np.searchsorted(self.values[j], threshold, side="right")) - 1

    def goes_left(self, j: int, rank: int, missing_left: bool) -> NDArray[np.bool_]:
        """Which points the cut at ``rank`` of feature ``j`` sends left."""
        return np.where(self.ranks[j] == MISSING, missing_left, self.ranks[j] <= rank)

    def halves(
        self, points: NDArray[np.int32], j: int, rank: int, missing_left: bool
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Those of some points that the cut at ``rank`` of feature ``j`` sends left, and the others."""
        at = self.ranks[j, points]
        goes_left = np.where(at == MISSING, missing_left, at <= rank)
        return points[goes_left], points[~goes_left]

    def threshold_at(self, j: int, rank: int) -> float:
        """A finite threshold that sends exactly the ranks ``<= rank`` of feature ``j`` left."""
        return self.threshold_between(j, rank, rank + 1)

    def threshold_between(self, j: int, low: int, high: int) -> float:
        """The midpoint between two values of feature ``j``.

        Args:
            j: Feature.
            low: Rank of the largest value that goes left; -1 for none.
            high: Rank of the smallest value that goes right; the domain size for none.

        Returns:
            A finite threshold: one unit below or above all values where one side has none; 0 if there are no values.
        """
        distinct = self.values[j]
        if len(distinct) == 0:
            return 0.0
        if low < 0:
            return float(min(distinct[0] - 1.0, np.nextafter(distinct[0], -np.inf)))
        if high >= len(distinct):
            return float(distinct[-1] + 1.0)
        return midpoint(float(distinct[low]), float(distinct[high]))


def midpoint(low: float, high: float) -> float:
    """A float in ``[low, high)``: the mean, or ``low`` where the mean rounds to ``high``."""
    middle = low / 2 + high / 2
    return middle if low <= middle < high else low


def rank_table(
    X: NDArray[np.float64],
    codes: NDArray[np.int32],
    weight: NDArray[np.float64],
    n_classes: int,
    columns: NDArray[np.int32],
) -> RankTable:
    """Rank the columns of a checked table, drop rows without weight, and merge equal rows.

    Args:
        X: Values as they are compared, NaN where missing; ``[n, n_features]``.
        codes: Class of each row; ``[n]``.
        weight: Weight of each row, at least 0 and positive somewhere; ``[n]``.
        n_classes: Number of classes.
        columns: Columns of ``X`` to use, ascending; at least one.
    """
    kept = np.flatnonzero(weight > 0)
    n, d = len(kept), len(columns)
    ranks = np.empty((d, n), dtype=np.int32)
    values = []
    for j, column in enumerate(columns):
        ranks[j], distinct = _rank(X[kept, column])
        values.append(distinct)
    sizes = np.array([len(distinct) for distinct in values], dtype=np.int64)

    group = _groups(ranks, sizes)
    key, first, point = np.unique(
        group * n_classes + codes[kept].astype(np.int64), return_index=True, return_inverse=True
    )
    ranks = np.ascontiguousarray(ranks[:, first])
    return RankTable(
        columns=columns.astype(np.int32),
        values=tuple(values),
        ranks=ranks,
        order=_orders(ranks, int(sizes.max(initial=0))),
        y=codes[kept][first],
        weight=np.bincount(point, weights=weight[kept]).astype(np.float64),
        n_rows=np.bincount(point).astype(np.int64),
        group=(key // n_classes).astype(np.int32),
        n_classes=n_classes,
    )


def _rank(x: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Ranks of ``x`` and its distinct values, NaN apart."""
    order = np.argsort(x)
    ascending = x[order]
    present = len(x) - int(np.isnan(x).sum())
    ascending = ascending[:present]
    new = np.ones(present, dtype=bool)
    new[1:] = ascending[1:] != ascending[:-1]
    ranks = np.full(len(x), MISSING, dtype=np.int32)
    ranks[order[:present]] = np.cumsum(new) - 1
    return ranks, ascending[new]


def _groups(ranks: NDArray[np.int32], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the distinct columns of ``ranks`` in lexicographic order; ``[n]``.

    Features join one at a time and the numbering is closed up after each, until every point stands alone.
    """
    d, n = ranks.shape
    group = np.zeros(n, dtype=np.int64)
    for j in range(d):
        joined = group * (sizes[j] + 1) + np.minimum(ranks[j], sizes[j])
        distinct, group = np.unique(joined, return_inverse=True)
        if len(distinct) == n:
            break
    return group


@njit(cache=True, nogil=True)
def _orders(ranks: NDArray[np.int32], max_size: int) -> NDArray[np.int32]:
    """Points of each feature by ascending rank, missing last: one counting sort a feature."""
    d, n = ranks.shape
    order = np.empty((d, n), dtype=np.int32)
    slot = np.zeros(max_size + 2, dtype=np.int64)
    for j in range(d):
        slot[:] = 0
        for e in range(n):
            slot[min(ranks[j, e], max_size) + 1] += 1
        for r in range(1, max_size + 2):
            slot[r] += slot[r - 1]
        for e in range(n):
            r = min(ranks[j, e], max_size)
            order[j, slot[r]] = e
            slot[r] += 1
    return order
