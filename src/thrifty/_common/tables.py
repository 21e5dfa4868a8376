"""Tables as users have them: CSV with a header line, or Parquet; and the numbers that estimators want of them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty._common.extras import require

#: How a missing cell is written in a CSV file.
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "<null>", "?"})

Columns = dict[str, NDArray]


def read_table(path: str | os.PathLike[str]) -> Columns:
    """Read a CSV or Parquet file into columns.

    Args:
        path: ``.parquet`` or ``.pq`` is read as Parquet, everything else as CSV whose first line names the columns.

    Returns:
        Name to column: float64 where every cell is a number (missing ones are NaN), else text (``None`` where missing).

    Raises:
        ValueError: There is no header or no row, a name stands twice, or a row is shorter or longer than the header.
        ImportError: A Parquet file, without the extra ``tabular``.
    """
    path = Path(path)
    if path.suffix in {".parquet", ".pq"}:
        table = require("pyarrow.parquet", extra="tabular").read_table(path)
        if not table.num_rows:
            raise ValueError(f"{path}: expected rows, got none")
        return {name: typed(column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True)}
    names, rows = read_cells(path)
    return {name: typed(cells) for name, cells in zip(names, zip(*rows, strict=True), strict=True)}


def read_cells(path: str | os.PathLike[str]) -> tuple[list[str], list[list[str]]]:
    """Read a CSV file as it is written: the names in its first line, and the text of every cell, row by row.

    Raises:
        ValueError: It is no CSV file in UTF-8, there is no header or no row, a name stands twice, or a row is shorter
            or longer than the header.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            names = [name.strip() for name in next(lines, [])]
            rows = [[cell.strip() for cell in row] for row in lines if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a CSV file in UTF-8, got what cannot be read as one: {error}") from error
    if not names or not rows:
        raise ValueError(f"{path}: expected a header line and rows, got {len(rows)} rows under {len(names)} names")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path}: the header names {twice} more than once")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names):
            raise ValueError(f"{path}, row {number}: expected {len(names)} cells as in the header, got {len(row)}")
    return names, rows


def one_hot(columns: Mapping[str, NDArray]) -> tuple[Float[np.ndarray, "n d"], tuple[str, ...]]:
    """Turn columns into one matrix of numbers, and name its columns.

    Numbers stay as they are. A column of text becomes one 0/1 column a value, in sorted order, named ``column=value``;
    where it is missing, all of them are NaN.
    """
    pieces = [piece for name, column in columns.items() for piece in _numeric(name, column)]
    return np.column_stack([values for _, values in pieces]), tuple(name for name, _ in pieces)


def split_target(columns: Mapping[str, NDArray], target: str) -> tuple[Columns, NDArray]:
    """Return the features of a table, and its classes: whole numbers as int64, text as strings.

    Args:
        columns: Name to column, as :func:`read_table` gives them.
        target: The column that holds the classes.

    Raises:
        ValueError: There is no such column, no other one, or a class is missing.
    """
    if target not in columns:
        raise ValueError(f"--target: expected a column among {listed(columns)}, got {target!r}")
    features = {name: column for name, column in columns.items() if name != target}
    if not features:
        raise ValueError(f"--target: expected a table with features too, got {target!r} as its only column")
    classes = columns[target]
    missing = np.array([label is None for label in classes]) if classes.dtype == object else ~np.isfinite(classes)
    if missing.any():
        raise ValueError(
            f"--target: expected a class in every row, got {int(missing.sum())} without (the first is row "
            f"{int(missing.argmax()) + 1})"
        )
    return features, classes.astype(str) if classes.dtype == object else whole_numbers(classes)


def listed(columns: Mapping[str, NDArray]) -> str:
    """Return the names of columns for a message: the first twenty."""
    return ", ".join(list(columns)[:20]) + (", ..." if len(columns) > 20 else "")


def whole_numbers(values: NDArray) -> NDArray:
    """Return whole numbers as such: a CSV file does not say which columns are."""
    whole = values.dtype.kind == "f" and bool((np.abs(values) < 2**53).all() and (values == np.rint(values)).all())
    return values.astype(np.int64) if whole else values


def typed(cells: Sequence[object]) -> NDArray:
    """Turn cells into a column: float64 if every one is a number or missing, else text."""
    known = [None if cell is None or (isinstance(cell, str) and cell in MISSING) else cell for cell in cells]
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in known])  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return np.array([None if cell is None else str(cell) for cell in known], dtype=object)


def _numeric(name: str, column: NDArray) -> Iterator[tuple[str, NDArray[np.float64]]]:
    if column.dtype != object:
        yield name, column
        return
    missing = np.array([value is None for value in column])
    for value in sorted(set(column[~missing])):
        yield f"{name}={value}", np.where(missing, np.nan, column == value)
