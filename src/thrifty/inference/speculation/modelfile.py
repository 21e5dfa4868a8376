"""A cost model as a JSON file, with a schema and a version; an unknown field is an error."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from thrifty._common.files import write_whole

SCHEMA, VERSION = "thrifty.speculation.model", 1


def write_model(model: Any, path: str | Path, *, force: bool = False) -> Path:
    """Write the fields of a model."""
    record = {"schema": SCHEMA, "version": VERSION, **asdict(model)}
    record["growth"] = None if record["growth"] == float("inf") else record["growth"]  # JSON has no infinity
    return write_whole(path, json.dumps(record, indent=1) + "\n", force=force)


def read_model(path: str | Path, kind: type) -> dict[str, Any]:
    """Return the fields of a model that :func:`write_model` wrote.

    Raises:
        ValueError: It is something else, of another version, or has a field that is unknown or missing.
    """
    try:
        record = json.loads(Path(path).read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a speculation model as JSON ({error})") from None
    if not isinstance(record, dict) or (record.pop("schema", None), record.pop("version", None)) != (SCHEMA, VERSION):
        raise ValueError(f"{path}: expected a {SCHEMA} of version {VERSION}")
    known = {field.name for field in fields(kind)}
    if wrong := sorted(set(record) ^ known):
        raise ValueError(f"{path}: unknown or missing fields: {', '.join(wrong)}")
    if record["growth"] is None:
        record["growth"] = float("inf")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
