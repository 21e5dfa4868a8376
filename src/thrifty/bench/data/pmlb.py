"""Tables of the Penn Machine Learning Benchmarks, from a folder that holds them. Nothing is downloaded.

The folder is a copy of PMLB's ``datasets`` (``<name>/<name>.tsv.gz``, with ``metadata.yaml`` beside it) or simply
holds ``<name>.tsv.gz``.

Reference: Olson et al., "PMLB: a large benchmark suite for machine learning evaluation and comparison", 2017;
https://github.com/EpistasisLab/pmlb.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thrifty._common.tables import one_hot, typed
from thrifty.bench.data.keel import Table

TARGET = "target"
_FEATURE = re.compile(r"^\s*- name:\s*['\"]?(?P<name>.+?)['\"]?\s*\n\s+type:\s*(?P<type>\w+)", re.MULTILINE)


def names(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of all tables in a folder, sorted.

    Raises:
        ValueError: There is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"data folder: {folder} is no folder; expected PMLB's tables, <name>.tsv.gz")
    return sorted(
        {path.name.removesuffix(".tsv.gz") for path in (*folder.glob("*.tsv.gz"), *folder.glob("*/*.tsv.gz"))}
    )


def load_columns(name: str, folder: str | os.PathLike[str]) -> tuple[dict[str, NDArray], NDArray]:
    """Read one table: its columns, those that its metadata call categorical as text, and the classes as text.

    Raises:
        ValueError: There is no such table in the folder, or it has no column ``target`` or no row.
    """
    found = [
        path for path in (Path(folder) / f"{name}.tsv.gz", Path(folder) / name / f"{name}.tsv.gz") if path.exists()
    ]
    if not found:
        raise ValueError(
            f"name: there is no table {name!r} in {folder}; there are {', '.join(names(folder)) or 'none'}"
        )
    with gzip.open(found[0], "rt", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t")
    if TARGET not in header or not rows:
        raise ValueError(f"{found[0]}: expected a column {TARGET!r} and rows, got {header} and {len(rows)} rows")
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    labels = np.array(cells.pop(TARGET))
    categorical = _categorical(found[0].with_name("metadata.yaml"))
    columns = {
        feature: np.array(column, dtype=object) if feature in categorical else typed(column)
        for feature, column in cells.items()
    }
    return columns, labels


def load(name: str, folder: str | os.PathLike[str]) -> Table:
    """Read one table, text and categories one-hot, classes coded in sorted order. Raises as `load_columns`."""
    columns, labels = load_columns(name, folder)
    X, feature_names = one_hot(columns)
    class_names, y = np.unique(labels, return_inverse=True)
    return Table(name, X, y, feature_names, tuple(map(str, class_names)))


def _categorical(metadata: Path) -> frozenset[str]:
    """Features of type ``categorical``; none where there is no metadata."""
    if not metadata.exists():
        return frozenset()
    listed = _FEATURE.finditer(metadata.read_text(encoding="utf-8"))
    return frozenset(feature["name"] for feature in listed if feature["type"] == "categorical")
