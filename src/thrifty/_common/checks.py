"""Refusing arguments that will not do, in one wording: ``name: expected what would do, got what came``."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from numbers import Integral, Real
from typing import Any


def one_of(name: str, value: Any, known: Collection[Any]) -> None:
    """Refuse what is not among the known values.

    Raises:
        ValueError: It is not.
    """
    if not (isinstance(value, Hashable) and value in known):  # arrays and lists are not hashable
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}")


def whole(name: str, value: Any, *, least: int | None = 1, what: str = "a whole number") -> int:
    """Return a whole number of any kind (numpy's included) as Python's.

    Args:
        name: How the argument is called.
        value: What came; a bool is none.
        least: The smallest that would do; ``None`` for any.
        what: What is counted, for the message.

    Raises:
        ValueError: It is none, or smaller.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name}: expected {what}{bound}, got {value!r}")
    return int(value)


def number(name: str, value: Any, what: str, *, least: float = -math.inf, below: float = math.inf) -> float:
    """Return a finite number in ``[least, below)``.

    Args:
        name: How the argument is called.
        value: What came; a bool is none.
        what: What would do, for the message.
        least: The smallest that would.
        below: What it must stay below.

    Raises:
        ValueError: It is none, or out of range.
    """
    try:
        will_do = is_number(value) and math.isfinite(value) and least <= value < below
    except OverflowError:  # a whole number that no float holds
        will_do = False
    if not will_do:
        raise ValueError(f"{name}: expected {what}, got {value!r}")
    return float(value)


def is_number(value: object) -> bool:
    """Tell whether it is a real number; a bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def positive(name: str, value: Any, what: str = "a positive number") -> float:
    """Return a finite number above 0.

    Raises:
        ValueError: It is none.
    """
    if number(name, value, what, least=0) == 0:
        raise ValueError(f"{name}: expected {what}, got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False; a text is true whatever it says.

    Raises:
        ValueError: It is neither.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name}: expected True or False, got {value!r}")
