"""Rows computed once: kept in memory, or in a folder that survives a kill and refuses to be used for anything else.

Examples are put in order of length and cut into pieces; each piece is one file, written whole. A manifest says of which
model, data and settings the rows are, by digests of their content; a folder whose manifest says otherwise is refused.
Processes that share the work write different pieces of one folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from thrifty._common.files import write_whole
from thrifty._common.weights import load_tensors
from thrifty.data.influence.sharding import Shard

#: Examples in a file.
PIECE = 128

SCHEMA = 1

Progress = Callable[[int, int, str], object]


class StaleStoreError(ValueError):
    """A folder holds rows of another model, other data or other settings.

    Example:
        >>> issubclass(StaleStoreError, ValueError)
        True
    """


def pieces_of(indices: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Cut examples, in order of length, into pieces."""
    ordered = indices[np.argsort(lengths[indices], kind="stable")]
    return [ordered[start : start + PIECE] for start in range(0, len(ordered), PIECE)]


def filled(
    pieces: list[np.ndarray],
    compute: Callable[[np.ndarray], Tensor],
    *,
    what: str,
    shard: Shard,
    folder: Path | None = None,
    key: Mapping[str, str] | None = None,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> list[tuple[np.ndarray, Tensor]]:
    """Return (indices, rows) of the pieces that belong to this process, computing those that no file holds.

    Args:
        pieces: All pieces, the same in every process.
        compute: Gives the rows of one piece.
        what: What progress is reported as.
        shard: Which pieces are this process's.
        folder: Where the files of these rows are kept; ``None`` keeps nothing.
        key: Digests of what the rows depend on.
        dtype: Of the rows that are kept.
        progress: Told (done, total, what).

    Raises:
        StaleStoreError: The folder belongs to another model, other data or other settings.
        ValueError: A file in it is damaged.
    """
    place = None if folder is None else _open(folder, {**(key or {}), "examples": digest_of(*pieces)}, dtype)
    mine = [number for number in range(len(pieces)) if shard.owns(number)]
    out = []
    for done, number in enumerate(mine):
        if progress is not None:
            progress(done, len(mine), what)
        path = None if place is None else place / f"rows-{number:06d}.safetensors"
        rows = _read(path, len(pieces[number])) if path is not None and path.exists() else None
        if rows is None:
            rows = compute(pieces[number]).to(device="cpu", dtype=dtype)
            if path is not None:
                write_whole(path, save({"rows": rows.contiguous()}), force=True)
        out.append((pieces[number], rows))
    if progress is not None:
        progress(len(mine), len(mine), what)
    return out


def tensors_digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """Return a digest of named tensors' contents."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def digest_of(*parts: np.ndarray | str) -> str:
    """Return a digest of indices or names."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part.astype(np.int64).tobytes())
    return digest.hexdigest()


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of settings that JSON can carry."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _open(folder: Path, key: Mapping[str, str], dtype: torch.dtype) -> Path:
    manifest = folder / "manifest.json"
    wanted: dict[str, Any] = {"schema": SCHEMA, "dtype": str(dtype), "key": dict(key)}
    if not manifest.exists():
        with suppress(FileExistsError):  # another process was faster
            write_whole(manifest, json.dumps(wanted, indent=1))
    try:
        found = json.loads(manifest.read_text())
        found.get("key", {}).get("model")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"store: {manifest} is damaged ({error}); remove its folder") from error
    if found != wanted:
        other = [name for name in wanted["key"] if found.get("key", {}).get(name) != wanted["key"][name]]
        other += [name for name in ("schema", "dtype") if found.get(name) != wanted[name]]
        raise StaleStoreError(
            f"store: {folder} holds rows that were made with another {', '.join(other)}; "
            "give an empty folder, or remove this one"
        )
    return folder


def _read(path: Path, count: int) -> Tensor:
    try:
        rows: Tensor = load_tensors(path, name="rows", extra="llm")["rows"]
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"store: {path} is damaged ({error}); remove it, and it is computed again") from error
    if rows.dim() != 2 or len(rows) != count:
        raise ValueError(f"store: {path} holds rows of shape {tuple(rows.shape)} where {count} belong; remove it")
    return rows
