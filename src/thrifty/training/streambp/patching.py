"""Attributes of live objects, replaced so that they can be put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_ABSENT = object()


def set_attribute(owner: Any, name: str, value: Any, undo: list[Callable[[], object]]) -> None:
    """Set an attribute of an instance, and append to ``undo`` what restores it (or removes it, if there was none)."""
    before = owner.__dict__.get(name, _ABSENT)
    owner.__dict__[name] = value

    def restore() -> None:
        if before is _ABSENT:
            owner.__dict__.pop(name, None)
        else:
            owner.__dict__[name] = before

    undo.append(restore)
