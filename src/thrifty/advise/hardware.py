"""What a device holds and does at best, and what optimizers keep: tables that a user extends with JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

#: Parts of a weight's shape that an optimizer's state may be counted in.
SIZES = ("mn", "mr", "nr", "m", "n")


@dataclass(frozen=True)
class Device:
    """One accelerator.

    Args:
        name: For the reader.
        memory: Bytes that a program can have.
        flops: FLOP/s of matrix products by dtype.
        bandwidth: Bytes/s of its memory.
        link: Bytes/s that it sends to its neighbours.
    """

    name: str
    memory: float
    flops: Mapping[str, float]
    bandwidth: float
    link: float


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps for every weight.

    Args:
        name: For the reader.
        matrix: Numbers of state of a matrix, as multiples of mn, mr, nr, m and n (m the larger side, r the rank).
        others: Numbers of state for each number of an embedding, a head, a norm or a bias.
        bytes: Of a number of state; 0: as the weights.
        copies: Bytes a number of a copy of the weights in higher precision.
    """

    name: str
    matrix: Mapping[str, float]
    others: float
    bytes: float
    copies: float

    def numbers(self, rows: int, columns: int, rank: int) -> float:
        """Return the numbers kept for one matrix."""
        n, m = sorted((rows, columns))
        r = min(rank, n)
        sizes = {"mn": m * n, "mr": m * r, "nr": n * r, "m": m, "n": n}
        return sum(times * sizes[name] for name, times in self.matrix.items())


def device(name: str, folder: str | Path | None = None) -> Device:
    """Look a device up by name, or read it from a JSON file.

    Args:
        name: ``"h100-80gb"``, an alias, or the path of a JSON file with the fields of the table.
        folder: Further JSON files, each one device, named as the device.

    Raises:
        ValueError: There is none of that name, or a field is missing or no number.

    Example:
        >>> round(device("h100").memory / 2**30, 1)
        79.2
    """
    entry, found = _look_up("devices", name, folder)
    needed = ("gib", "tflops", "tflops32", "tb_per_s", "link_gb_per_s")
    gib, wide, full, speed, link = (_number(found, entry, field) for field in needed)
    return Device(found, gib * 2**30, {"bfloat16": wide * 1e12, "float32": full * 1e12}, speed * 1e12, link * 1e9)


def optimizer(name: str, folder: str | Path | None = None) -> Optimizer:
    """Look an optimizer up by name, or read it from a JSON file.

    Raises:
        ValueError: There is none of that name, or a field is missing or unknown.

    Example:
        >>> optimizer("galore").numbers(4096, 11008, 128) == 2 * 11008 * 128 + 4096 * 128
        True
    """
    entry, found = _look_up("optimizers", name, folder)
    matrix = entry.get("matrix")
    if not isinstance(matrix, dict) or not set(matrix) <= set(SIZES):
        raise ValueError(f"{found}: expected 'matrix' with some of {', '.join(SIZES)}, got {matrix!r}")
    others, width, copies = (_number(found, entry, field, least=0) for field in ("others", "bytes", "copies"))
    return Optimizer(found, {size: float(times) for size, times in matrix.items()}, others, width, copies)


def names(table: str) -> Sequence[str]:
    """Return the names in the table ``"devices"`` or ``"optimizers"``."""
    return list(_table(table))


@cache
def _table(table: str) -> dict[str, dict[str, Any]]:
    text = resources.files("thrifty.advise.profiles").joinpath(f"{table}.json").read_text()
    entries: dict[str, dict[str, Any]] = json.loads(text)[table]
    return entries


def _look_up(table: str, name: str, folder: str | Path | None) -> tuple[dict[str, Any], str]:
    wanted = name.casefold().replace("_", "-").replace(" ", "-")
    paths = [Path(name)] if Path(name).suffix == ".json" else []
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"--profiles: expected a folder of JSON files, got {str(folder)!r}")
        paths.append(Path(folder) / f"{wanted}.json")
    for path in paths:
        if path.is_file():
            return _read(path), path.stem
    for known, entry in _table(table).items():
        if wanted == known or wanted in entry.get("aliases", ()):
            return entry, known
    kind = table.removesuffix("s")
    raise ValueError(
        f"{kind}: expected one of {', '.join(_table(table))}, or a JSON file that describes it, got {name!r}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        entry = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON ({error})") from None
    if not isinstance(entry, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(entry).__name__}")
    return entry


def _number(name: str, entry: Mapping[str, Any], field: str, least: float = 1e-9) -> float:
    value = entry.get(field)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}: expected the number {field!r}, got {value!r}")
    return float(value)
