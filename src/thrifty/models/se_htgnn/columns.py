"""Columns of tables of events: entities as numbers, numbers as numbers, and their means by period and entity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def codes_of(pd: Any, column: Any, code: dict[Any, int]) -> np.ndarray:
    """Return the number of each label, new ones added to ``code``; -1 where it is missing."""
    places, labels = pd.factorize(column)
    known = np.array([code.setdefault(label, len(code)) for label in labels], dtype=np.int64)
    return np.where(places >= 0, known[places], -1) if len(known) else places.astype(np.int64)


def numbers_of(pd: Any, column: Any, name: str) -> NDArray[np.float64]:
    """Return a column of numbers, NaN where there is none.

    Raises:
        ValueError: Something in it is no number.
    """
    found: np.ndarray = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    lost = np.isnan(found) & column.notna().to_numpy()
    if lost.any():
        raise ValueError(
            f"values: expected numbers in {name!r}, got {column[lost].iloc[0]!r} and {int(lost.sum()) - 1} more"
        )
    return found


def means_of(
    values: np.ndarray | None, snapshot: np.ndarray, code: np.ndarray, periods: int, nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a value, and how many there are of it, by period and entity; without values, of rows."""
    known = code >= 0 if values is None else (code >= 0) & np.isfinite(values)
    cell = snapshot[known] * nodes + code[known]
    count = np.bincount(cell, minlength=periods * nodes)
    total = count if values is None else np.bincount(cell, values[known], minlength=periods * nodes)
    mean = np.divide(total, count, out=np.zeros(len(count)), where=count > 0)
    return mean.reshape(periods, nodes), count.reshape(periods, nodes)
