"""The output folder: one file a method, the file that joins them, and the page made from it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thrifty._common.files import write_whole
from thrifty.bench import registry, report

SCHEMA = 1


class Folder:
    """An output folder that is ours: new, empty, or holding an earlier run's ``results.json``.

    Args:
        path: The folder; it is made if it is missing.
        force: Take a folder that holds other things; its files stay, ours are added.

    Raises:
        FileExistsError: It holds something else, and ``force`` is False.
        OSError: It cannot be written.
    """

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self.path = path.absolute()
        if self.path.is_dir() and any(self.path.iterdir()) and not force and not self._is_ours():
            raise FileExistsError(
                f"--out: {path} holds other files and no results of ours; name another folder, or use --force"
            )
        for folder in (self.path / "results", self.path / "logs"):
            folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / ".writable", "", force=True).unlink()
        self._write_joined(self._stored("results.json") or {"schema": SCHEMA, "methods": []})

    def log(self, name: str) -> Path:
        """Return where the output of a method's process goes."""
        return self.path / "logs" / f"{name}.log"

    def add(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Store the results of one method and join them with those of the others; return the joined results."""
        (record,) = results["methods"]
        write_whole(self.path / "results" / f"{record['name']}.json", _dump(results), force=True)
        others = [self._stored(f"results/{path.name}") for path in (self.path / "results").glob("*.json")]
        methods = [method for one in others if one for method in one["methods"]]
        joined = {**results, "methods": sorted(methods, key=_place)}
        self._write_joined(joined)
        return joined

    def _write_joined(self, results: Mapping[str, Any]) -> None:
        write_whole(self.path / "results.json", _dump(results), force=True)
        if results["methods"]:
            write_whole(self.path / "index.html", report.render(results), force=True)

    def _is_ours(self) -> bool:
        stored = self._stored("results.json")
        return stored is not None and "schema" in stored and "methods" in stored

    def _stored(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object of the folder, or ``None`` if it is missing, damaged or of another schema."""
        try:
            stored = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None
        return stored if isinstance(stored, dict) and stored.get("schema") == SCHEMA else None


def machine() -> dict[str, Any]:
    """Describe this machine, for whoever reads the results elsewhere."""
    info = {"system": platform.system(), "processor": platform.processor() or platform.machine()}
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        info["processor"] = models[0] if models else info["processor"]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return {**info, "cores": os.cpu_count(), "memory_gib": round(pages / 2**30, 1)}


def _place(method: Mapping[str, Any]) -> tuple[int, str]:
    """Sort as the registry does; what it does not know comes last."""
    order = [known.name for known in registry.METHODS]
    name = method["name"]
    return (order.index(name) if name in order else len(order), name)


def _dump(results: Mapping[str, Any]) -> str:
    return json.dumps(results, indent=1, allow_nan=False) + "\n"
