"""Checks of a table against a tree: the messages that a user sees come from here."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from thrifty._common.checks import is_number
from thrifty.solvers.trees.model.tree import Tree

LARGEST_TOTAL = 1e300
"""Sums of weights stay below this, so that what is worked out from them stays finite."""


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
        raise ValueError(f"X: expected {tree.n_features} features, as the tree has, got {exact.shape[1]}")
    if tree.feature_names is not None and names is not None and names != tree.feature_names:
        wrong = next(j for j, name in enumerate(names) if name != tree.feature_names[j])
        raise ValueError(f"X: expected {tree.feature_names[wrong]!r} as column {wrong}, got {names[wrong]!r}")
    missing = np.isnan(exact).any(axis=0)
    if tree.missing_left is None and missing.any():
        columns = ", ".join(tree.feature_name(int(j)) for j in np.flatnonzero(missing)[:5])
        raise ValueError(f"X: expected no missing values for this tree, got NaN in {columns}: impute them first")
    if tree.dtype == "float64":
        return exact
    with np.errstate(over="ignore"):
        compared: NDArray[np.float64] = exact.astype(np.float32).astype(np.float64)
    if np.isinf(compared).any():
        raise ValueError(
            "X: expected numbers within float32, in which this tree compares, got larger ones: scale the column"
        )
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
        raise ValueError(f"sample_weight: expected finite numbers of at least 0, got what is none ({error})") from None
    if weight.shape != codes.shape:
        raise ValueError(f"sample_weight: expected one weight for each of {len(codes)} rows, got shape {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(
            "sample_weight: expected finite numbers of at least 0, got a negative, infinite or missing one"
        )
    if not weight.any():
        raise ValueError("sample_weight: expected a row of positive weight, got zero everywhere")
    if weight.max() >= LARGEST_TOTAL / len(weight):
        raise ValueError(f"sample_weight: expected weights that add up to less than {LARGEST_TOTAL:g}, got larger ones")
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
        raise ValueError(f"y: expected the tree's classes {classes.tolist()}, got also {strange[:5]}")
    return np.array([place[name] for name in names.tolist()], dtype=np.int32)[inverse]


def check_limits(time_limit: float | None, memory_limit_mb: float = 0.0) -> None:
    """Refuse a time or a memory that no search could keep to.

    Raises:
        ValueError: ``time_limit`` is no positive number, or ``memory_limit_mb`` no number at least 0.
    """
    if time_limit is not None and not (is_number(time_limit) and time_limit > 0):
        raise ValueError(f"time_limit: expected a positive number of seconds, or None, got {time_limit!r}")
    if not (is_number(memory_limit_mb) and memory_limit_mb >= 0):
        raise ValueError(f"memory_limit_mb: expected a number of megabytes of at least 0, got {memory_limit_mb!r}")


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
