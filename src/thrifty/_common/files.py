"""Writing files so that a reader never meets half of one.

A file appears whole or not at all: it is written beside its place and renamed into it, so an interrupt or a full
disk leaves whatever was there before.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: str | os.PathLike[str], content: str | bytes, *, force: bool = False) -> Path:
    """Write ``content`` to ``path`` in one step.

    Args:
        path: Where the file shall be. Its folder is made if it is missing.
        content: Text (stored as UTF-8) or bytes.
        force: Replace a file that is already there.

    Returns:
        The path written to.

    Raises:
        FileExistsError: ``path`` exists and ``force`` is False.
        OSError: The folder cannot be written, or the disk is full; what was at ``path`` is still there.
    """
    path = Path(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} already exists; choose another path, or use --force (force=True) to replace it")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return path
