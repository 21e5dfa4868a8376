"""What a sentence of a proof claims: its equations, whom and what it names.

Names are matched whole, possessives included, so that "Melvyn’s teacher" is never Melvyn. Expressions are compiled once
and for all; a problem's names are looked up by their first word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.problems.templates import straight

_NUM = r"\(?-?\d+(?:\.\d+)?\)?"
_UNIT = r"(?:\s+[a-z][a-z'-]*){0,3}?"
_TERMS = rf"(?:{_UNIT}\s*[-+*/]\s*{_NUM})"
_CHAIN = re.compile(rf"{_NUM}{_TERMS}+(?:{_UNIT}\s*=\s*{_NUM}{_TERMS}*)+(?!\d)")
_SPLIT = re.compile(r"([-+*/])(?=\s*\(?-?\d)")
_VALUE = re.compile(r"-?\d+(?:\.\d+)?")
#: What is somebody's own, and no person.
_OWN = frozenset(
    {"number", "total", "count", "amount", "share", "collection", "new", "final", "initial", "current", "original"}
)
_CAPITAL = re.compile(r"(?<!\w)[^\W\d_a-z][\w-]*")
_LOWER = re.compile(r"[a-z][a-z-]*")
_POSSESSIVE = re.compile(r"'s ([a-z][a-z-]*)")
#: Words that make a sentence with one number something else than "X has N".
_RELATIVE = re.compile(
    r"\b(?:more|fewer|less|times|per|each|gives?|gets?|receives?|donates?|another|if|let|step)\b", re.I
)


class Equation(NamedTuple):
    """``operands`` joined by ``operators`` are said to be ``value``; where it stands in its sentence."""

    operands: tuple[int, ...]
    operators: tuple[str, ...]
    value: int
    true: bool
    start: int
    end: int


class Claim(NamedTuple):
    """A piece of a sentence: an equation, or (``operands`` empty) the plain claim of a value."""

    text: str
    value: int
    equation: Equation | None
    subject: str | None
    agents: frozenset[str]
    things: frozenset[str]


class Vocabulary:
    """The agents and things of one problem, as expressions that find them in text.

    Args:
        problem: The problem.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        agents: set[str] = set()
        things: set[str] = set()

        def gather(part: object) -> None:
            if isinstance(part, tuple) and len(part) == 3 and isinstance(part[2], int):
                agents.add(part[0].replace("’", "'"))
                things.add(part[1])
            elif isinstance(part, tuple):
                for piece in part:
                    gather(piece)

        for node in problem.graph.nodes:
            gather(node.key[1:])
        if problem.goal.predicate == "total":
            things.add(problem.goal.key[1])
        self._lemma = {form: thing for thing in things for form in (thing, problem.lexicon.plural(thing))}
        self._agents = _by_first_word(agents)
        self._things = _by_first_word(self._lemma)

    def agents(self, text: str) -> list[tuple[int, str]]:
        """Return the agents that a text names, with their places; also relatives that the problem does not know."""
        found = []
        past = 0
        for word in _CAPITAL.finditer(text):
            start = word.start()
            if start < past:
                continue
            name = next((n for n in self._agents.get(word[0], ()) if _stands(n, text, start)), None)
            past = start + len(name or word[0])
            relatives = self._relatives(text, past)
            if relatives > past:  # "Pia's drums" speaks of Pia; "Pia's landlady" of somebody else, whoever that is
                past, name = relatives, text[start:relatives]
            if name is not None:
                found.append((start, name))
        return found

    def _relatives(self, text: str, at: int) -> int:
        """Return where the possessives that stand at a place end, each of a person."""
        while (owner := _POSSESSIVE.match(text, at)) and owner[1] not in _OWN and owner[1] not in self._things:
            at = owner.end()
        return at

    def things(self, text: str) -> frozenset[str]:
        """Return the things that it names, in the singular."""
        found = set()
        past = 0
        for word in _LOWER.finditer(text):
            start = word.start()
            if start < past or word[0] not in self._things:
                continue
            form = next((form for form in self._things[word[0]] if _stands(form, text, start)), None)
            if form is not None:
                found.add(self._lemma[form])
                past = start + len(form)
        return frozenset(found)

    @cached_property
    def by_value(self) -> dict[int, list[int]]:
        """The theorems of each value; of a comparison, of its size."""
        found: dict[int, list[int]] = {}
        for node, (key, value) in enumerate(self._problem.graph.nodes):
            found.setdefault(abs(value) if key[0] == "comp" else value, []).append(node)
        return found

    @cached_property
    def by_operands(self) -> dict[tuple[int, ...], list[int]]:
        """The rule instances whose premises have each set of values, in ascending order and without signs."""
        graph = self._problem.graph
        found: dict[tuple[int, ...], list[int]] = {}
        for number, edge in enumerate(graph.edges):
            premises = (graph.nodes[node] for node in edge.tail)
            values = sorted(abs(value) for key, value in premises if key[0] != "compeq")
            found.setdefault(tuple(values), []).append(number)
        return found

    @cached_property
    def axioms(self) -> dict[str, int]:
        """The number of the axiom that each sentence of the problem tells."""
        return {straight(text): node for node, text in self._problem.axiom_texts.items()}

    def claims(self, sentence: str) -> list[Claim]:
        """Return what a sentence (plain, see :func:`~.text.normalised`) claims, in order."""
        found = equations(sentence)
        if not found:
            return self._plain(sentence)
        claims = []
        begin = 0
        for at, equation in enumerate(found):
            stop = len(sentence)
            if at + 1 < len(found) and found[at + 1].start > equation.end:
                cut = re.search(r"[,;.]| and | so | then ", sentence[equation.end : found[at + 1].start])
                stop = equation.end + cut.start() if cut else found[at + 1].start
            elif at + 1 < len(found):
                stop = equation.end
            piece = sentence[begin:stop]
            claims.append(self._claim(piece, equation.value, equation, equation.start - begin))
            begin = stop if at + 1 < len(found) and found[at + 1].start > equation.end else begin
        return claims

    def _plain(self, sentence: str) -> list[Claim]:
        numbers = list(_VALUE.finditer(sentence))
        if len(numbers) != 1 or "." in numbers[0][0] or _RELATIVE.search(sentence):
            return []
        claim = self._claim(sentence, int(numbers[0][0]), None, numbers[0].start())
        return [claim] if (claim.agents or claim.things) else []

    def _claim(self, text: str, value: int, equation: Equation | None, place: int) -> Claim:
        named = self.agents(text)
        before = [name for at, name in named if at < place]
        subject = before[-1] if before else named[0][1] if named else None
        return Claim(text, value, equation, subject, frozenset(name for _, name in named), self.things(text))


def _by_first_word(names: Iterable[str]) -> dict[str, list[str]]:
    """Return names by the word that they begin with, the longest first."""
    found: dict[str, list[str]] = {}
    for name in sorted(names, key=len, reverse=True):
        first = re.match(r"[\w-]*", name)
        found.setdefault(first[0] if first else "", []).append(name)
    return found


def _stands(name: str, text: str, at: int) -> bool:
    """Tell whether a name stands at a place, and ends there."""
    end = at + len(name)
    return text.startswith(name, at) and not (end < len(text) and (text[end].isalnum() or text[end] == "_"))


def equations(sentence: str) -> list[Equation]:
    """Return the equations in a sentence; ``a + b = c + d = e`` are two, ``a + b = c = c`` is one."""
    if "=" not in sentence:
        return []
    found = []
    for chain in _CHAIN.finditer(sentence):
        for left, right in pairwise(chain[0].split("=")):
            pieces = _SPLIT.split(left)
            if len(pieces) < 3:
                continue
            matches = [_VALUE.search(piece.replace("(", "").strip()) for piece in (*pieces[::2], right)]
            numbers = [_number(match[0]) for match in matches if match]
            if len(numbers) < len(matches):
                continue
            *terms, claimed = numbers
            true = _worth(terms, pieces[1::2]) == claimed
            whole = [int(number) for number in numbers if number == int(number)]
            if len(whole) == len(numbers):
                operators = tuple(pieces[1::2])
                found.append(Equation(tuple(whole[:-1]), operators, whole[-1], true, chain.start(), chain.end()))
    return found


def _number(text: str) -> int | Fraction:
    return Fraction(text) if "." in text else int(text)


def _worth(numbers: Sequence[int | Fraction], operators: Sequence[str]) -> int | Fraction | None:
    """Work out a sum of products."""
    total: int | Fraction = 0
    sign, product = 1, numbers[0]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "*":
            product *= number
        elif operator == "/":
            if number == 0:
                return None
            product = Fraction(product, number)
        else:
            total += sign * product
            sign, product = 1 if operator == "+" else -1, number
    return total + sign * product
