"""What a bug report should say of the machine: versions, extras, folders."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from thrifty.bench import carried
from thrifty.bench.results import machine


def describe() -> Iterator[tuple[str, str]]:
    """Yield pairs of a name and what is found under it."""
    here = machine()
    yield "thrifty", metadata.version("thrifty")
    yield "python", f"{sys.version.split()[0]} ({sys.executable})"
    yield "machine", f"{here['processor']}, {here['cores']} cores, {here['memory_gib']} GiB, {here['system']}"
    yield "cache", str(carried.cache_folder())
    yield "THRIFTY_DATA", os.environ.get("THRIFTY_DATA") or "not set (optional: a folder with further real data)"
    for extra, packages in extras().items():
        missing = [package for package in packages if not _installed(package)]
        yield f"[{extra}]" if extra else "core", f"missing: {', '.join(missing)}" if missing else "complete"


def extras() -> dict[str, list[str]]:
    """Return the packages that each extra asks for itself; ``""`` is the core."""
    asked: dict[str, list[str]] = {"": []}
    for requirement in metadata.requires("thrifty") or []:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", requirement)
        asked.setdefault(extra.group(1) if extra else "", [])
        if name != "thrifty":
            asked[extra.group(1) if extra else ""].append(name)
    return asked


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
