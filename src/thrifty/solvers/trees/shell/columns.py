"""A user's table for a tree: columns matched by name, text turned into 0/1 columns the same way every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from thrifty._common.tables import listed, one_hot
from thrifty.solvers.trees.model.tree import Tree


def columns_for(names: Iterable[str], columns: Mapping[str, NDArray]) -> NDArray[np.float64]:
    """The matrix with the given columns, in their order, from a table that may hold more.

    ``colour=red`` is 1 where the column ``colour`` holds ``red``, 0 where it holds something else, and NaN where it
    is missing: what `one_hot` gives, also if this table lacks some of the values, or has new ones.

    Args:
        names: Columns of the matrix, as `one_hot` names them.
        columns: Name to column.

    Returns:
        float64 ``[n, len(names)]``.

    Raises:
        ValueError: A column is not there, or holds text where numbers are expected.
    """
    return np.column_stack([_column(name, columns) for name in names])


def matrix_for(tree: Tree, columns: Mapping[str, NDArray]) -> NDArray[np.float64]:
    """The matrix that a tree reads, from a table.

    Args:
        tree: Its columns are found by name; if it has no names, all columns are taken in order.
        columns: Name to column, without the target.

    Raises:
        ValueError: As `columns_for`; or the tree has no names, and reads another number of columns.
    """
    if tree.feature_names is not None:
        return columns_for(tree.feature_names, columns)
    X, names = one_hot(columns)
    if X.shape[1] != tree.n_features:
        raise ValueError(
            f"--data: expected {tree.n_features} columns, since the tree has no column names, got {X.shape[1]}: "
            f"{', '.join(names[:20])}"
        )
    return X


def labels_for(classes: NDArray, y: NDArray) -> NDArray:
    """``y`` in the type of a tree's ``classes``, where a file cannot tell: ``1`` or ``"1"``, ``True`` or ``"True"``."""
    if classes.dtype.kind in "US" and y.dtype.kind in "if":
        return np.array([f"{label:g}" if y.dtype.kind == "f" else str(label) for label in y.tolist()])
    if classes.dtype.kind == "b" and set(y.tolist()) <= {"True", "False"}:
        return np.asarray(y == "True")
    return y


def _column(name: str, columns: Mapping[str, NDArray]) -> NDArray[np.float64]:
    found = columns.get(name)
    if found is not None and found.dtype != object:
        return found.astype(np.float64)
    for at in (i for i, sign in enumerate(name) if sign == "="):
        text = columns.get(name[:at])
        if text is not None:
            return _indicator(text, name[at + 1 :])
    if found is not None:
        example = next((value for value in found if value is not None), None)
        raise ValueError(
            f"--data: expected numbers in column {name!r}, as the tree compares, got text such as {example!r}"
        )
    raise ValueError(f"--data: expected a column {name!r}, which the tree reads, got {listed(columns)}")


def _indicator(column: NDArray, value: str) -> NDArray[np.float64]:
    """1 where a column holds ``value``, NaN where it is missing; a column that reads as numbers here is compared so."""
    if column.dtype == object:
        missing = np.array([cell is None for cell in column])
        return np.where(missing, np.nan, column == value)
    try:
        number = float(value)
    except ValueError:
        number = np.inf
    return np.where(np.isnan(column), np.nan, column == number)
