"""Profiles by name: one table of devices for every method and the adviser; one's own are JSON files of the same fields.

Devices are described by ``tflops`` and ``tflops32`` (dense 16- and 32-bit TFLOP/s), ``tb_per_s`` (of their memory),
``gib`` (of memory that a program can have), ``link_gb_per_s`` (sent to neighbours) and ``host_gb_per_s`` (sent to the
host; it need not be given), as their makers state them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

Entries = Mapping[str, Mapping[str, Any]]


def devices() -> Entries:
    """Return the table of devices."""
    return read_table("thrifty._common", "devices")


@cache
def read_table(package: str, name: str) -> Entries:
    """Return the table that ``name.json`` in a package holds under that name."""
    entries: Entries = json.loads(resources.files(package).joinpath(f"{name}.json").read_text())[name]
    return entries


def look_up(
    kind: str, name: str, table: Entries, folder: str | Path | None = None, *, also: str = ""
) -> tuple[str, Mapping[str, Any]]:
    """Return an entry and its name.

    Args:
        kind: What is looked up, for the message (``"device"``).
        name: In the table, or an alias of an entry; in the folder; or the path of a JSON file.
        table: The entries that come with the package.
        folder: Further JSON files, each one entry, named as the entry.
        also: What else would do, for the message.

    Raises:
        ValueError: There is none of that name, or a file holds no JSON object.

    Example:
        >>> look_up("device", "H100", devices())[0]
        'h100-80gb'
    """
    wanted = name.casefold().replace("_", "-").replace(" ", "-")
    paths = [Path(name)] if Path(name).suffix == ".json" else []
    if folder is not None:
        if not Path(folder).is_dir():
            raise ValueError(f"--profiles: expected a folder of JSON files, got {str(folder)!r}")
        paths += [Path(folder) / f"{each}.json" for each in (name, wanted)]
    for path in paths:
        if path.is_file():
            return path.stem, _read(path)
    for known, entry in table.items():
        if wanted == known or wanted in entry.get("aliases", ()):
            return known, entry
    own = sorted(path.stem for path in Path(folder).glob("*.json")) if folder is not None else []
    raise ValueError(
        f"{kind}: expected one of {', '.join([*table, *own])}, or a JSON file that describes it{also}, got {name!r}"
    )


def number(name: str, entry: Mapping[str, Any], field: str, least: float = 1e-9, most: float = math.inf) -> float:
    """Return a number of an entry.

    Raises:
        ValueError: It is missing, no number, below ``least`` or above ``most``.
    """
    value = entry.get(field)
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is None or not good or not least <= value <= most:
        bound = "" if math.isinf(most) else f", at most {most:g}"
        raise ValueError(f"{name}: expected the number {field!r}{bound}, got {value!r}")
    return float(value)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        entry = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected JSON ({error})") from None
    if not isinstance(entry, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(entry).__name__}")
    return entry
