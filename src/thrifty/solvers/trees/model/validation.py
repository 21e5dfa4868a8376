"""Checks of a table against a tree: the messages that a user sees come from here."""

from __future__ import annotations

import warnings
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from thrifty.solvers.trees.model.tree import Tree


def check_features(tree: Tree, X: ArrayLike) -> NDArray[np.float64]:
    """The table as the tree compares it.

    Args:
        tree: The tree that will read it.
        X: ``[n, n_features]``; an array or a data frame.

    Returns:
        float64 ``[n, n_features]``, rounded to float32 values if the tree compares those; missing values are NaN.

    Raises:
        ValueError: Another number of columns, other column names, an infinite value, or a missing value in a table
            for a tree that does not accept them.
    """
    names = _column_names(X)
    exact: NDArray[np.float64] = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan", input_name="X")
    if exact.shape[1] != tree.n_features:
        raise ValueError(f"X has {exact.shape[1]} features, but the tree has {tree.n_features}")
    if tree.feature_names is not None and names is not None and names != tree.feature_names:
        wrong = next(j for j, name in enumerate(names) if name != tree.feature_names[j])
        raise ValueError(f"column {wrong} of X is {names[wrong]!r}; the tree expects {tree.feature_names[wrong]!r}")
    missing = np.isnan(exact).any(axis=0)
    if tree.missing_left is None and missing.any():
        columns = ", ".join(tree.feature_name(int(j)) for j in np.flatnonzero(missing)[:5])
        raise ValueError(f"X has missing values (NaN) in {columns}, which this tree does not accept: impute them first")
    if tree.dtype == "float64":
        return exact
    with np.errstate(over="ignore"):
        compared: NDArray[np.float64] = exact.astype(np.float32).astype(np.float64)
    if np.isinf(compared).any():
        raise ValueError("X has values too large for float32, in which this tree compares: scale the column")
    return compared


def check_table(
    tree: Tree, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """A training table as the tree compares it, its classes as numbers, and its weights.

    Returns:
        ``X`` as `check_features`; indices into ``tree.classes``, int32 ``[n]``; weights, float64 ``[n]``.

    Raises:
        ValueError: As `check_features`; lengths differ; ``y`` holds a class that the tree does not know; a weight is
            negative, infinite or missing, or all are zero.
    """
    compared = check_features(tree, X)
    labels: NDArray = column_or_1d(y)
    check_consistent_length(compared, labels)
    codes = class_codes(tree.classes, labels)
    if sample_weight is None:
        return compared, codes, np.ones(len(labels))
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight holds what is no number ({error}); weights are finite, at least 0") from None
    if weight.shape != codes.shape:
        raise ValueError(f"sample_weight has shape {weight.shape}; X has {len(codes)} rows, one weight each")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight holds a negative, infinite or missing weight; weights are finite, at least 0")
    if not weight.any():
        raise ValueError("sample_weight is zero everywhere; at least one row needs a positive weight")
    return compared, codes, weight


def class_codes(classes: NDArray, y: NDArray) -> NDArray[np.int32]:
    """The place of each label in ``classes``.

    Raises:
        ValueError: A label is not among them.
    """
    names, inverse = np.unique(y, return_inverse=True)
    place = {name: i for i, name in enumerate(classes.tolist())}
    strange = [name for name in names.tolist() if name not in place]
    if strange:
        raise ValueError(f"y holds classes {strange[:5]} that the tree does not know; it has {classes.tolist()}")
    return np.array([place[name] for name in names.tolist()], dtype=np.int32)[inverse]


def check_limits(time_limit: float | None, memory_limit_mb: float) -> None:
    """Refuse a time or a memory that no search could keep to.

    Raises:
        ValueError: ``time_limit`` is no positive number, or ``memory_limit_mb`` no number at least 0.
    """
    if time_limit is not None and not (is_number(time_limit) and time_limit > 0):
        raise ValueError(f"time_limit is {time_limit!r}; it is a positive number of seconds, or None")
    if not (is_number(memory_limit_mb) and memory_limit_mb >= 0):
        raise ValueError(f"memory_limit_mb is {memory_limit_mb!r}; it is a number of megabytes, at least 0")


def check_whole(argument: str, given: int, least: int) -> None:
    """Refuse what is no whole number, or below ``least``.

    Raises:
        ValueError: It is one of those.
    """
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < least:
        raise ValueError(f"{argument} is {given!r}; it is a whole number, at least {least}")


def is_number(given: object) -> bool:
    """Whether it is a real number; a bool is none."""
    return isinstance(given, Real) and not isinstance(given, bool)


def warn_where_rounding_moves_rows(tree: Tree, X: ArrayLike) -> None:
    """Warn if a row changes sides at a cut once it is rounded to float32.

    Args:
        tree: A tree; nothing is done unless it compares float32.
        X: A checked table.
    """
    exact = np.asarray(X)
    if tree.dtype == "float64" or exact.dtype != np.float64:
        return
    for v in tree.topology.cuts:
        x, threshold = exact[:, tree.feature[v]], tree.threshold[v]
        if ((x <= threshold) != (x.astype(np.float32) <= threshold)).any():
            name = tree.feature_name(int(tree.feature[v]))
            warnings.warn(
                f"rounded to float32, as this tree compares, some rows of X change sides at cut {v} "
                f"({name} <= {float(threshold)!r}); they are counted where the tree sends them",
                UserWarning,
                stacklevel=3,
            )
            return


def _column_names(X: ArrayLike) -> tuple[str, ...] | None:
    columns = getattr(X, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return tuple(columns)
