"""Arrays and a JSON text in one npz file; nothing is pickled."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common import settings
from thrifty._common.files import write_whole


def write_npz(path: str | os.PathLike[str], facts: dict[str, Any], arrays: dict[str, NDArray], *, force: bool) -> Path:
    """Write arrays and a JSON text into one npz file, whole or not at all."""
    held: dict[str, Any] = {"facts": np.array(json.dumps(facts)), **arrays}
    return write_whole(path, lambda file: np.savez_compressed(file, **held), force=force)


def read_npz(path: str | os.PathLike[str], schema: str, version: int) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read what :func:`write_npz` wrote; nothing is unpickled.

    Raises:
        ValueError: It is no such file, or of another version.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            facts = json.loads(str(stored["facts"]))
            arrays = {name: stored[name] for name in stored.files if name != "facts"}
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: expected a file that was saved here, got another: {error}") from None
    return settings.check(facts, schema, version, known=None, name=str(path)), arrays
