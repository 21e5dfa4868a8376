"""What a program speaks of: containers of things, comparisons, transfers, rates and totals.

A theorem is a key and a value. Keys are nested tuples whose first part names the predicate; a *container* is
``(agent, entity, time)``, where the time counts the transfers that have touched it.

=========  =================================================  =======================================
predicate  key                                                value
=========  =================================================  =======================================
cont       ("cont", agent, entity, time)                      how many the agent has
comp       ("comp", container, container), in sorted order    how many more the first has (may be < 0)
times      ("times", container, container)                    how many times the second the first is
transfer   ("transfer", receiver, sender), before it          how many change hands
rate       ("rate", super container, sub container)           how many sub-entities a super-entity holds
compeq     ("compeq", A, B, C, D)                             0: A − B is C − D
total      ("total", whole, containers in sorted order)       how many they have together
=========  =================================================  =======================================

Source: arXiv 2510.25626, and the concepts of MathGAP (arXiv 2410.13502) that it builds on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

#: ``(agent, entity, time)``.
Container = tuple[str, str, int]
Key = tuple[Any, ...]

PREDICATES = ("cont", "comp", "times", "transfer", "rate", "compeq", "total")


class Theorem(NamedTuple):
    """A ground statement: what it is about, and its value (``None`` in a goal that asks for it)."""

    key: Key
    value: int | None

    @property
    def predicate(self) -> str:
        """Its predicate's name."""
        return str(self.key[0])

    def __str__(self) -> str:
        return f"{spell(self.key)} = {'?' if self.value is None else self.value}"


def cont(agent: str, entity: str, value: int | None, time: int = 0) -> Theorem:
    """An agent has so many of an entity."""
    return Theorem(("cont", agent, entity, time), value)


def comp(a: Container, b: Container, more: int | None) -> Theorem:
    """``a`` is so many more than ``b`` (fewer, if negative); either order gives the same theorem."""
    if a == b:
        raise ValueError(f"comp: expected two different containers, got {a} twice")
    if a < b:
        return Theorem(("comp", a, b), more)
    return Theorem(("comp", b, a), None if more is None else -more)


def times(a: Container, b: Container, factor: int) -> Theorem:
    """``a`` is so many times ``b``."""
    if a == b or factor == 0:
        raise ValueError(f"times: expected two different containers and a factor other than 0, got {a}, {b}, {factor}")
    return Theorem(("times", a, b), factor)


def transfer(receiver: Container | None, sender: Container | None, amount: int) -> Theorem:
    """So many go from one container to another; their times are those before the transfer."""
    if receiver == sender:
        raise ValueError(f"transfer: expected two different containers, got {receiver} twice")
    return Theorem(("transfer", receiver, sender), amount)


def rate(agent: str, whole: str, part: str, value: int, times: tuple[int, int] = (0, 0)) -> Theorem:
    """Each of the agent's wholes (boxes) holds so many parts (pens)."""
    return Theorem(("rate", (agent, whole, times[0]), (agent, part, times[1])), value)


def compeq(a: Container, b: Container, c: Container, d: Container) -> Theorem:
    """``a`` − ``b`` equals ``c`` − ``d``."""
    return Theorem(("compeq", a, b, c, d), 0)


def total(whole: str, parts: Sequence[Container], value: int | None) -> Theorem:
    """What containers hold together."""
    if len(set(parts)) < 2 or len(set(parts)) < len(parts):
        raise ValueError(f"total: expected at least two different containers, got {list(parts)}")
    return Theorem(("total", whole, tuple(sorted(parts))), value)


def spell(key: Any) -> str:
    """Write a key as :meth:`Program.from_text` reads it."""
    if isinstance(key, tuple) and key and isinstance(key[0], str) and not _is_container(key):
        return f"{key[0]}({', '.join(_word(part) for part in key[1:])})"
    return _word(key)


def _word(part: Any) -> str:
    if part is None:
        return "nobody"
    if isinstance(part, tuple):
        inner = ", ".join(_word(piece) for piece in part)
        return f"({inner})"
    if isinstance(part, int) or (part.isidentifier() and part != "nobody"):
        return str(part)
    return '"' + str(part).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _is_container(key: tuple) -> bool:
    return len(key) == 3 and isinstance(key[0], str) and isinstance(key[1], str) and isinstance(key[2], int)


def from_lists(value: Any) -> Any:
    """Turn the nested lists of JSON back into a key's tuples."""
    return tuple(from_lists(part) for part in value) if isinstance(value, list) else value
