"""Rules with variables: Datalog programs, chains of the PrOntoQA kind among them, grounded as far as they fire.

Semi-naïve with an index by (predicate, position, constant): a new fact is tried in every body slot, and the rest of
the body is joined from facts that were known before. Variables are written ``?x``.

Source: Abiteboul, Hull, Vianu, "Foundations of Databases", chapters 12 and 13.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from thrifty.evaluation.reasoning.logic.arithmetic import Instance
from thrifty.evaluation.reasoning.logic.errors import InconsistentProgram
from thrifty.evaluation.reasoning.logic.theorems import PREDICATES, Key, Theorem, spell

#: The value of a fact that is no quantity.
TRUE = 1


@dataclass(frozen=True)
class Rule:
    """If the body holds, so does the head.

    Args:
        head: A key whose arguments may be variables (``"?x"``); each must stand in the body.
        body: Keys; at least one.
        name: How the rule is called; empty: as it is written.

    Raises:
        ValueError: There is no body, a variable of the head is not bound, or a predicate is one of the built-in ones.

    Example:
        >>> print(Rule(("mammal", "?x"), (("cat", "?x"),)))
        mammal(?x) :- cat(?x).
    """

    head: Key
    body: tuple[Key, ...]
    name: str = ""

    def __post_init__(self) -> None:
        bound = {part for atom in self.body for part in atom[1:] if is_variable(part)}
        if not self.body:
            raise ValueError(f"body: expected at least one atom, got none for {self.head}")
        if free := [part for part in self.head[1:] if is_variable(part) and part not in bound]:
            raise ValueError(f"head: {', '.join(free)} of {self.head} does not stand in the body")
        if built_in := [atom[0] for atom in (self.head, *self.body) if atom[0] in PREDICATES]:
            raise ValueError(f"head, body: {built_in[0]!r} has rules of its own; expected another predicate")

    def __str__(self) -> str:
        return f"{written(self.head)} :- {', '.join(map(written, self.body))}."


def is_variable(part: object) -> bool:
    """Tell whether an argument is a variable."""
    return isinstance(part, str) and part.startswith("?")


def written(key: Key) -> str:
    """Write an atom, variables as such."""
    inner = ", ".join(part if is_variable(part) else spell((("x"), part))[2:-1] for part in key[1:])
    return f"{key[0]}({inner})"


def ground(axioms: Iterable[Theorem], rules: Sequence[Rule], *, limit: int) -> list[Instance]:
    """Return every instance of the rules that fires.

    Raises:
        InconsistentProgram: More than ``limit`` facts follow.
    """
    known: set[Key] = set()
    index: dict[tuple[str, int, object], list[Key]] = {}
    slots: dict[tuple[str, int], list[tuple[Rule, int]]] = {}
    for rule in rules:
        for place, atom in enumerate(rule.body):
            slots.setdefault((atom[0], len(atom)), []).append((rule, place))
    found: dict[tuple[frozenset[Key], Key, str], Instance] = {}
    queued: dict[Key, None] = dict.fromkeys(axiom.key for axiom in axioms if axiom.predicate not in PREDICATES)
    agenda = deque(queued)
    while agenda:
        fact = agenda.popleft()
        known.add(fact)
        for place, part in enumerate(fact):
            index.setdefault((fact[0], place, part), []).append(fact)
        for rule, slot in slots.get((fact[0], len(fact)), ()):
            start = _unify(rule.body[slot], fact, {})
            for binding in () if start is None else _join(rule.body, slot, start, index):
                head = _bind(rule.head, binding)
                tail = tuple(_bind(atom, binding) for atom in rule.body)
                if head in tail:
                    continue
                name = rule.name or str(rule)
                found.setdefault((frozenset(tail), head, name), Instance(tail, head, _holds, name))
                if head not in queued:
                    queued[head] = None
                    agenda.append(head)
                    if len(queued) > limit:
                        raise InconsistentProgram(f"program: more than {limit} theorems follow; it is unbounded")
    return list(found.values())


def _holds(*_: int) -> int:
    return TRUE


def _unify(atom: Key, fact: Key, binding: dict[str, object]) -> dict[str, object] | None:
    if len(atom) != len(fact):
        return None
    bound = dict(binding)
    for pattern, part in zip(atom, fact, strict=True):
        if is_variable(pattern):
            if bound.setdefault(pattern, part) != part:
                return None
        elif pattern != part:
            return None
    return bound


def _join(
    body: tuple[Key, ...], done: int, binding: dict[str, object], index: dict[tuple[str, int, object], list[Key]]
) -> Iterator[dict[str, object]]:
    rest = [atom for place, atom in enumerate(body) if place != done]

    def extend(depth: int, bound: dict[str, object]) -> Iterator[dict[str, object]]:
        if depth == len(rest):
            yield bound
            return
        atom = rest[depth]
        fixed = [
            (atom[0], place, bound.get(part, part) if is_variable(part) else part)
            for place, part in enumerate(atom)
            if not is_variable(part) or part in bound
        ]
        candidates = min((index.get(key, []) for key in fixed), key=len)
        for fact in list(candidates):
            further = _unify(atom, fact, bound)
            if further is not None:
                yield from extend(depth + 1, further)

    yield from extend(0, binding)


def _bind(atom: Key, binding: dict[str, object]) -> Key:
    return tuple(binding.get(part, part) if is_variable(part) else part for part in atom)
