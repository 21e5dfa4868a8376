"""The rules of word problems, grounded: which theorems, if known, give which, and by what arithmetic.

Every instance follows from the statements alone (a comparison names both of its sides), so that the closure is unit
propagation over these instances. Comparisons of containers that no statement or query names are left out unless they
are asked for, and totals are formed for the queried group only: otherwise unasked theorems flood the closure.

Source: arXiv 2510.25626, section on inference rules; MathGAP (arXiv 2410.13502), Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations
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


def instances(statements: Sequence[Theorem], goal: Theorem | None, *, pairwise: str = "named") -> Iterator[Instance]:
    """Yield every rule instance that the statements and the goal allow, in text order; some may come twice.

    Args:
        statements: The axioms.
        goal: What is asked, which names groups and pairs; or ``None``.
        pairwise: ``"named"`` or ``"all"``: every pair of containers of one entity is compared.
    """
    found = [*chain.from_iterable(map(_of, statements)), *(() if goal is None else _asked(goal))]
    yield from found
    if pairwise == "all":
        keys = [*chain.from_iterable((*rule.tail, rule.head) for rule in found), *(axiom.key for axiom in statements)]
        places = {key[1:] for key in keys if key[0] == "cont"}
        for a, b in combinations(sorted(places), 2):
            if a[1] == b[1]:
                yield from _compared(a, b)


def _of(statement: Theorem) -> Iterator[Instance]:
    key = statement.key
    if key[0] == "comp":
        yield from _from_comparison(key)
    elif key[0] == "times":
        a, b = key[1:]
        yield Instance((_holds(b), key), _holds(a), product, "times")
        yield Instance((_holds(a), key), _holds(b), quotient, "times")
    elif key[0] == "transfer":
        changes: tuple[Callable[..., int | None], ...] = (plus, minus)
        for place, compute in zip(key[1:], changes, strict=True):
            if place is not None:
                after = (place[0], place[1], place[2] + 1)
                yield Instance((_holds(place), key), _holds(after), compute, "transfer")
    elif key[0] == "rate":
        yield Instance((_holds(key[1]), key), _holds(key[2]), product, "rate")
    elif key[0] == "compeq":
        a, b, c, d = key[1:]
        yield from _compared(c, d)
        difference = ("comp", *sorted((c, d)))
        up: Callable[..., int | None] = _first if c < d else _second
        down: Callable[..., int | None] = _second if c < d else _first
        yield Instance((_holds(b), difference, key), _holds(a), up, "compeq")
        yield Instance((_holds(a), difference, key), _holds(b), down, "compeq")


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
