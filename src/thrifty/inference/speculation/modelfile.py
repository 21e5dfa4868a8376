"""A cost model as a JSON file, with a schema and a version; an unknown field is an error."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from thrifty._common import settings
from thrifty._common.files import write_whole

SCHEMA, VERSION = "thrifty.speculation.model", 1


def write_model(model: Any, path: str | Path, *, force: bool = False) -> Path:
    """Write the fields of a model."""
    record = asdict(model)
    record["growth"] = None if record["growth"] == float("inf") else record["growth"]  # JSON has no infinity
    return write_whole(path, settings.dump(record, SCHEMA, VERSION), force=force)


def read_model(path: str | Path, kind: type) -> dict[str, Any]:
    """Return the fields of a model that :func:`write_model` wrote.

    Raises:
        ValueError: It is something else, of another version, or has a field that is unknown or missing.
    """
    known = [field.name for field in fields(kind)]
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    record = settings.parse(text, SCHEMA, VERSION, known=known, needed=known, name=str(path))
    if record["growth"] is None:
        record["growth"] = float("inf")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
