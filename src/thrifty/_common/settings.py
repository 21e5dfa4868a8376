"""Settings as JSON that says what it is: a schema, a version, and no key that nobody knows."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from thrifty._common.files import write_whole


class Settings:
    """A frozen dataclass of plain values that travels as JSON: inherit, and name the schema (and the file).

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Oven(Settings):
        ...     schema = "kitchen.oven"
        ...     degrees: int = 180
        >>> Oven.from_json(Oven(220).to_json()).with_overrides(degrees=200)
        Oven(degrees=200)
    """

    schema: ClassVar[str]
    version: ClassVar[int] = 1
    #: Its name in a model's folder.
    file: ClassVar[str]

    def with_overrides(self, **overrides: Any) -> Self:
        """Return a copy with some settings changed.

        Raises:
            ValueError: There is no such setting.
        """
        known = [field.name for field in fields(self)]  # type: ignore[arg-type]
        if unknown := sorted(set(overrides) - set(known)):
            raise ValueError(f"{', '.join(unknown)}: no such setting; there are {', '.join(known)}")
        return replace(self, **overrides)  # type: ignore[type-var]

    def to_json(self) -> str:
        """Return the settings as JSON, with schema and version."""
        return dump(asdict(self), self.schema, self.version)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: It is not JSON, of another schema or version, or has a key that is unknown or missing.
        """
        of_its_own = fields(cls)  # type: ignore[arg-type]
        needed = [field.name for field in of_its_own if field.default is field.default_factory is MISSING]
        known = [field.name for field in of_its_own]
        return cls(**parse(text, cls.schema, cls.version, known=known, needed=needed, name="config"))

    def save_pretrained(self, folder: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the settings beside a model's own files.

        Raises:
            FileExistsError: They are there already, and ``force`` is False.
        """
        return write_whole(Path(folder) / self.file, self.to_json(), force=force)

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save_pretrained` wrote; raises as :meth:`from_json`."""
        return cls.from_json(read_text(Path(folder) / cls.file))


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file.

    Raises:
        ValueError: It is no UTF-8.
        OSError: It cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected text in UTF-8, got other bytes: {error}") from None


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
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"{name}: expected JSON as text, got a {type(text).__name__}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, or nested beyond all sense
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
