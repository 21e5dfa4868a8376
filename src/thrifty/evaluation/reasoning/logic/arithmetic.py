"""The rules of word problems, grounded: which theorems, if known, give which, and by what arithmetic.

Every instance follows from the statements alone (a comparison names both of its sides), so that the closure is unit
propagation over these instances. Comparisons of containers that no statement or query names are left out unless they
are asked for, and totals are formed for the queried group only: otherwise unasked theorems flood the closure.

Source: arXiv 2510.25626, section on inference rules; MathGAP (arXiv 2410.13502), Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from thrifty.evaluation.reasoning.logic.theorems import Container, Key, Theorem

PAIRWISE = ("named", "all")


class Instance(NamedTuple):
    """Known premises give a conclusion; ``compute`` returns ``None`` where the arithmetic has no whole result."""

    tail: tuple[Key, ...]
    head: Key
    compute: Callable[..., int | None]
    rule: str


def plus(*values: int) -> int:
    """Add."""
    return sum(values)


def minus(a: int, b: int) -> int:
    """Subtract."""
    return a - b


def product(a: int, b: int) -> int:
    """Multiply."""
    return a * b


def quotient(a: int, b: int) -> int | None:
    """Divide, where it goes evenly."""
    return a // b if b and a % b == 0 else None


def _first(a: int, b: int, _: int) -> int:
    return a + b


def _second(a: int, b: int, _: int) -> int:
    return a - b


def _holds(place: Container) -> Key:
    return ("cont", *place)


def instances(statements: Iterable[Theorem], goal: Theorem | None, *, pairwise: str = "named") -> list[Instance]:
    """Return every rule instance that the statements and the goal allow, in text order, without duplicates.

    Args:
        statements: The axioms.
        goal: What is asked, which names groups and pairs; or ``None``.
        pairwise: ``"named"`` or ``"all"``: every pair of containers of one entity is compared.
    """
    found: dict[tuple[frozenset[Key], Key, str], Instance] = {}
    statements = list(statements)

    def keep(several: Iterable[Instance]) -> None:
        for instance in several:
            found.setdefault((frozenset(instance.tail), instance.head, instance.rule), instance)

    for statement in statements:
        keep(_of(statement))
    if goal is not None:
        keep(_asked(goal))
    if pairwise == "all":
        places = {key[1:] for instance in found.values() for key in (*instance.tail, instance.head) if key[0] == "cont"}
        places |= {statement.key[1:] for statement in statements if statement.predicate == "cont"}
        for a, b in combinations(sorted(places), 2):
            if a[1] == b[1]:
                keep(_compared(a, b))
    return list(found.values())


def _of(statement: Theorem) -> Iterator[Instance]:
    key = statement.key
    if statement.predicate == "comp":
        yield from _from_comparison(key)
    elif statement.predicate == "times":
        a, b = key[1:]
        yield Instance((_holds(b), key), _holds(a), product, "times")
        yield Instance((_holds(a), key), _holds(b), quotient, "times")
    elif statement.predicate == "transfer":
        changes: tuple[Callable[..., int | None], ...] = (plus, minus)
        for place, compute in zip(key[1:], changes, strict=True):
            if place is not None:
                after = (place[0], place[1], place[2] + 1)
                yield Instance((_holds(place), key), _holds(after), compute, "transfer")
    elif statement.predicate == "rate":
        yield Instance((_holds(key[1]), key), _holds(key[2]), product, "rate")
    elif statement.predicate == "compeq":
        a, b, c, d = key[1:]
        yield from _compared(c, d)
        difference = ("comp", *sorted((c, d)))
        up: Callable[..., int | None] = _first if c < d else _second
        down: Callable[..., int | None] = _second if c < d else _first
        yield Instance((_holds(b), difference, key), _holds(a), up, "compeq")
        yield Instance((_holds(a), difference, key), _holds(b), down, "compeq")
    elif statement.predicate == "total":
        yield from ()


def _from_comparison(key: Key) -> Iterator[Instance]:
    a, b = key[1:]
    yield Instance((_holds(b), key), _holds(a), plus, "comp")
    yield Instance((_holds(a), key), _holds(b), minus, "comp")


def _compared(a: Container, b: Container) -> Iterator[Instance]:
    low, high = (a, b) if a < b else (b, a)
    key = ("comp", low, high)
    yield Instance((_holds(low), _holds(high)), key, minus, "difference")
    yield from _from_comparison(key)


def _asked(goal: Theorem) -> Iterator[Instance]:
    if goal.predicate == "total":
        yield Instance(tuple(_holds(place) for place in goal.key[2]), goal.key, plus, "total")
    elif goal.predicate == "comp":
        yield from _compared(*goal.key[1:])
