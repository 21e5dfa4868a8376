"""Arrays and a JSON text in one npz file; nothing is pickled."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common import settings
from thrifty._common.files import write_whole

#: What reading may end in where a file is another's, cut off, or damaged.
NOT_OURS = (KeyError, ValueError, TypeError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)


def write_npz(path: str | os.PathLike[str], facts: dict[str, Any], arrays: dict[str, NDArray], *, force: bool) -> Path:
    """Write arrays and a JSON text into one npz file, whole or not at all."""
    held: dict[str, Any] = {"facts": np.array(json.dumps(facts)), **arrays}
    return write_whole(path, lambda file: np.savez_compressed(file, **held), force=force)


def read_npz(
    path: str | os.PathLike[str], schema: str, version: int, *, facts: Collection[str], shapes: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, NDArray[np.float64]]]:
    """Read what :func:`write_npz` wrote; nothing is unpickled.

    Args:
        path: The file.
        schema: What it must be.
        version: In which version.
        facts: The keys of its text.
        shapes: Array to its axes: ``"n d"`` has as many columns as every other array with a ``d``.

    Raises:
        ValueError: It is no such file, or of another version, or damaged.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            said = json.loads(str(stored["facts"]))
            said = settings.check(said, schema, version, known=facts, needed=facts, name="facts")
            arrays = {name: stored[name] for name in shapes}
        _refuse_misfits(arrays, shapes)
    except NOT_OURS as error:
        raise ValueError(f"{path}: expected a file that was saved here, got another: {error}") from None
    return said, arrays


def _refuse_misfits(arrays: Mapping[str, NDArray], shapes: Mapping[str, str]) -> None:
    """Raise for arrays that are not of float64, not finite, or not of shapes that go together."""
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        axes = shapes[name].split()
        fits = array.ndim == len(axes) and all(
            size == sizes.setdefault(axis, size) for axis, size in zip(axes, array.shape, strict=True)
        )
        if not (fits and array.dtype == np.float64 and np.isfinite(array).all()):
            raise ValueError(f"{name}: expected finite numbers [{shapes[name]}], got {array.dtype} {array.shape}")
