"""Settings as JSON that says what it is: a schema, a version, and no key that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any


def dump(settings: Mapping[str, Any], schema: str, version: int, **how: Any) -> str:
    """Return settings as JSON under their head; ``how`` goes to :func:`json.dumps`."""
    return json.dumps({"schema": schema, "version": version, **settings}, **({"indent": 1} | how)) + "\n"


def parse(
    text: str,
    schema: str,
    version: int,
    *,
    known: Collection[str] | None,
    needed: Collection[str] = (),
    headless: bool = False,
    name: str = "text",
) -> dict[str, Any]:
    """Read what :func:`dump` wrote.

    Args:
        text: JSON.
        schema: What it must be.
        version: In which version.
        known: Keys that it may have; ``None``: any.
        needed: Keys that it must have.
        headless: It may lack its head, as in a file that a person wrote.
        name: What is read, for messages: the argument's name, or the file's.

    Returns:
        The settings, without their head.

    Raises:
        ValueError: It is no JSON object, of another schema or version, or has a key that is unknown or lacks one.
    """
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name}: expected JSON, got {text[:40]!r}: {error}") from None
    return check(found, schema, version, known=known, needed=needed, headless=headless, name=name)


def check(
    found: Any,
    schema: str,
    version: int,
    *,
    known: Collection[str] | None,
    needed: Collection[str] = (),
    headless: bool = False,
    name: str = "text",
) -> dict[str, Any]:
    """Return the settings in a document that is read already; otherwise as :func:`parse`."""
    if not isinstance(found, Mapping):
        raise ValueError(f"{name}: expected a JSON object, got a {type(found).__name__}")
    default = (schema, version) if headless else (None, None)
    if (found.get("schema", default[0]), found.get("version", default[1])) != (schema, version):
        came = f"{found.get('schema')!r} version {found.get('version')!r}"
        raise ValueError(f"{name}: expected schema {schema!r} version {version}, got {came}")
    settings = {key: value for key, value in found.items() if key not in ("schema", "version")}
    if known is not None and (unknown := sorted(set(settings) - set(known))):
        raise ValueError(f"{name}: expected the keys {', '.join(known)}, got also {', '.join(map(repr, unknown))}")
    if missing := [key for key in needed if key not in settings]:
        raise ValueError(f"{name}: expected the keys {', '.join(needed)}, got none of {', '.join(map(repr, missing))}")
    return settings
