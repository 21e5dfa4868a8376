"""Tables as users have them (frames, arrays, mappings, lists of mappings), read as frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.extras import require


def to_frame(X: Any, names: Sequence[str], argument: str) -> Any:
    """Return a table with columns of these names, in this order.

    Args:
        X: A DataFrame (columns by name), a Series or mapping (one row), a list of mappings, or an array
            ``[n, columns]``.
        names: The columns.
        argument: How errors call it.

    Raises:
        ValueError: Columns are missing, doubled or too few.
    """
    pd = require("pandas", extra="tabular")
    if isinstance(X, pd.Series):
        X = X.to_frame().T.infer_objects()
    elif isinstance(X, dict):
        X = pd.DataFrame([X])
    elif isinstance(X, (list, tuple)) and X and all(isinstance(row, dict) for row in X):
        X = pd.DataFrame(list(X))
    if isinstance(X, pd.DataFrame):
        if len(set(X.columns)) < len(X.columns):
            raise ValueError(f"{argument}: expected each column name once, got {[str(name) for name in X.columns]}")
        named = X.rename(columns=str)
        if missing := [name for name in names if name not in named.columns]:
            raise ValueError(f"{argument}: expected the columns {missing} too, got {list(named.columns)}")
        return named[list(names)]
    values = dense(X, argument)
    values = values[None, :] if values.ndim == 1 and values.size else values
    if values.size == 0:
        values = np.empty((0, len(names)))
    if values.ndim != 2 or values.shape[1] != len(names):
        raise ValueError(f"{argument}: expected {len(names)} columns, got shape {values.shape}")
    return pd.DataFrame(values, columns=list(names))


def is_number(values: ArrayLike) -> bool:
    """Tell whether a column holds numbers (True and False count as such)."""
    dtype = getattr(values, "dtype", values)
    return bool(dtype is not None and getattr(dtype, "kind", "O") in "iufb")


def names_of(X: Any) -> list[str]:
    """Return the column names of a table; ``x0``, ``x1`` ... for an array."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    values = dense(X, "X")
    if values.ndim != 2:
        raise ValueError(f"X: expected two dimensions, rows and columns, got {values.ndim}")
    return [f"x{column}" for column in range(values.shape[1])]


def dense(X: Any, argument: str) -> Any:
    """Return a table that is no DataFrame as an array; masked cells become missing.

    Raises:
        ValueError: It is sparse, or complex.
    """
    if hasattr(X, "toarray"):
        raise ValueError(f"{argument}: expected dense rows ({argument}.toarray()), got a sparse {type(X).__name__}")
    if isinstance(X, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(X), np.nan, np.ma.getdata(X)) if X.mask.any() else np.ma.getdata(X)
    values = np.asarray(X)
    if values.dtype.kind == "c":
        raise ValueError(f"{argument}: expected real numbers, got complex ones")
    return values
