"""Writing files so that a reader never meets half of one.

A file appears whole or not at all: it is written beside its place and renamed into it, so an interrupt or a full
disk leaves whatever was there before.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO


def refuse_existing(path: str | os.PathLike[str] | None, force: bool) -> None:
    """Raise before any work is done if its result could not be written in the end.

    Raises:
        FileExistsError: ``path`` exists and ``force`` is False.
    """
    if path is not None and Path(path).exists() and not force:
        raise FileExistsError(f"{path} already exists; choose another path, or use --force (force=True) to replace it")


def write_whole(
    path: str | os.PathLike[str], content: str | bytes | Callable[[IO[bytes]], object], *, force: bool = False
) -> Path:
    """Write ``content`` to ``path`` in one step.

    Args:
        path: Where the file shall be. Its folder is made if it is missing.
        content: Text (stored as UTF-8), bytes, or a function that writes to the open file that it is given.
        force: Replace a file that is already there.

    Returns:
        The path written to.

    Raises:
        FileExistsError: ``path`` exists and ``force`` is False.
        IsADirectoryError: It is a folder.
        OSError: The folder cannot be written, or the disk is full; what was at ``path`` is still there.
    """
    path = Path(path)
    refuse_existing(path, force)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: expected a file to write, got a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return path
