"""The source of Python's standard library as bytes: real text of a few megabytes that every installation has.

Files are read in sorted order and go, whole, to one of three splits by their place in it: no file is on two sides. The
text differs a little between Python versions; ``Text.sha256`` says which one a run saw.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Not the library itself, or mostly tables.
LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings"})

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Text:
    """Bytes in three splits.

    Args:
        train: To learn from, eight files in ten.
        validation: To tune on, one in ten.
        test: To report on, one in ten.
        sha256: Of the three, one after the other.
    """

    train: Bytes
    validation: Bytes
    test: Bytes
    sha256: str


def load(folder: str | Path | None = None) -> Text:
    """Read the standard library, or any other folder of ``.py`` files.

    Args:
        folder: In place of this interpreter's standard library.

    Raises:
        ValueError: The folder holds fewer than ten ``.py`` files.
    """
    root = Path(folder or sysconfig.get_paths()["stdlib"])
    files = list(_files(root))
    if len(files) < 10:
        raise ValueError(f"folder: expected at least ten .py files below {root}, got {len(files)}")
    parts: dict[str, list[bytes]] = {"train": [], "validation": [], "test": []}
    for place, path in enumerate(files):
        parts[{8: "validation", 9: "test"}.get(place % 10, "train")].append(path.read_bytes())
    arrays = {name: np.frombuffer(b"\n".join(texts), dtype=np.uint8) for name, texts in parts.items()}
    digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest()
    return Text(**arrays, sha256=digest)


def windows(text: Bytes, length: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``count`` windows of ``length`` + 1 bytes, uniformly: inputs are [:, :-1], targets [:, 1:].

    Raises:
        ValueError: The text is not longer than a window.
    """
    if len(text) <= length + 1:
        raise ValueError(f"text: expected more than {length + 1} bytes for windows of {length}, got {len(text)}")
    starts = rng.integers(0, len(text) - length - 1, size=count)
    return np.stack([text[start : start + length + 1] for start in starts]).astype(np.int64)


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        if not LEFT_OUT.intersection(path.relative_to(root).parts):
            yield path
