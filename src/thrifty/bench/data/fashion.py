"""Fashion-MNIST, carried by Debian's package ``dataset-fashion-mnist``: 28 x 28 grey images of ten kinds of clothes.

Reference: Xiao, Rasul and Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning
Algorithms", 2017.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thrifty.bench import carried

NAME = "dataset-fashion-mnist"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_STEM = {"train": "train", "test": "t10k"}


def load(split: Literal["train", "test"]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 28, 28) and classes (n,): 60 000 to train on, 10 000 to test.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    return _read(carried.archive(NAME), split)


@cache
def _read(package: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    stem = f"./{carried.CARRIED[NAME].inside}{_STEM[split]}"
    with tarfile.open(fileobj=io.BytesIO(_member(package.read_bytes(), "data.tar.xz"))) as held:
        files = (f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz")
        images, labels = (gzip.decompress(held.extractfile(name).read()) for name in files)  # type: ignore[union-attr]
    # IDX: a magic number, the sizes as big-endian 32-bit integers, then one byte a value.
    count, rows, columns = np.frombuffer(images, ">u4", 3, offset=4)
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(count, rows, columns)
    return pixels, np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)


def _member(deb: bytes, name: str) -> bytes:
    """Return a file of an ``ar`` archive, which is what a Debian package is."""
    at = len(b"!<arch>\n")
    while at < len(deb):
        head = deb[at : at + 60]
        size = int(head[48:58])
        if head[:16].decode().strip().rstrip("/") == name:
            return deb[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    raise ValueError(f"deb: expected a member {name!r} in the package, found none")
