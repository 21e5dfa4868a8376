"""Tables as the paper prepares them: one-hot, the largest class against the rest, no contradictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.tables import one_hot


@dataclass(frozen=True, eq=False)
class PreparedTable:
    """A table with two classes in which no two rows agree in all features and differ in class.

    Attributes:
        X: Numbers, ``[n, d]``.
        y: 1 for the largest class, 0 for the rest; ``[n]``.
        feature_names: Columns of ``X``.
        largest_class: The class that became 1.
        rows: Rows of the original table that were kept, ascending; ``[n]``.
        n_removed: How many were not.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    largest_class: object
    rows: NDArray[np.intp]
    n_removed: int


def prepare(columns: Mapping[str, NDArray], y: ArrayLike) -> PreparedTable:
    """Prepare a table as in the experiments of the paper.

    Text becomes one 0/1 column a value; the largest class (of equally large ones the first in order) becomes 1 and
    all others 0; then every row goes whose features also occur with the other class. No tree can tell such rows
    apart, so what remains has no unavoidable errors. Rows that agree in class too are kept.

    Args:
        columns: Name to column, ``[n]`` each; text as objects, as `read_table` gives it.
        y: Classes, ``[n]``.

    Returns:
        The rows that are left, the class as 0 and 1, and where both came from.

    Raises:
        ValueError: A column and ``y`` differ in length, or nothing is left.

    Example:
        >>> table = prepare({"size": np.array([1.0, 2.0, 2.0, 3.0])}, ["small", "small", "large", "small"])
        >>> table.X.tolist(), table.y.tolist()
        ([[1.0], [3.0]], [1, 1])

    Source:
        section 6 of the paper (which does not say which of the contradicting rows it removes; we remove all).
    """
    classes = np.asarray(y)
    if strange := [name for name, column in columns.items() if len(column) != len(classes)]:
        raise ValueError(
            f"columns: expected {len(classes)} rows, as y has, got {len(columns[strange[0]])} in {strange[0]!r}"
        )
    X, names = one_hot(columns)
    values, counts = np.unique(classes, return_counts=True)
    largest = values[counts.argmax()]
    target = (classes == largest).astype(np.int64)

    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in X.T])
    group = np.unique(codes, axis=0, return_inverse=True)[1].ravel()
    ones, size = np.bincount(group, weights=target), np.bincount(group)
    rows = np.flatnonzero(((ones == 0) | (ones == size))[group])
    if len(rows) == 0:
        raise ValueError(
            f"columns: expected rows that no other contradicts (same features, other class), got none of {len(classes)}"
        )
    return PreparedTable(X[rows], target[rows], names, largest.item(), rows, len(classes) - len(rows))
