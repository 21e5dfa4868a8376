"""What a sentence of a proof claims: its equations, whom and what it names.

Names are matched whole, possessives included, so that "Melvyn’s teacher" is never Melvyn; one compiled expression for
each problem finds them all.
"""

from __future__ import annotations

import re
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
_OWN = ("number", "total", "count", "amount", "share", "collection", "new", "final", "initial", "current", "original")
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
        words = problem.lexicon
        self._lemma = {form: thing for thing in things for form in (thing, words.plural(thing))}
        known = "|".join(sorted(map(re.escape, agents), key=len, reverse=True)) or r"(?!)"
        own = "|".join([*map(re.escape, self._lemma), *_OWN])
        # "Pia's drums" speaks of Pia; "Pia's landlady" of somebody else, whoever that is.
        somebody = rf"'s (?!(?:{own})\b)[a-z][a-z-]*"
        self._agents = re.compile(rf"(?<!\w)(?:(?:{known})(?!\w)(?!{somebody})|[^\W\d_a-z][\w-]*(?:{somebody})+)")
        self._things = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, self._lemma), key=len, reverse=True))})\b")

    def agents(self, text: str) -> list[tuple[int, str]]:
        """Return the agents that a text names, with their places."""
        return [(match.start(), match[0]) for match in self._agents.finditer(text)]

    def things(self, text: str) -> frozenset[str]:
        """Return the things that it names, in the singular."""
        return frozenset(self._lemma[match] for match in self._things.findall(text))

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


def equations(sentence: str) -> list[Equation]:
    """Return the equations in a sentence; ``a + b = c + d = e`` are two, ``a + b = c = c`` is one."""
    found = []
    for chain in _CHAIN.finditer(sentence):
        parts = chain[0].split("=")
        for left, right in pairwise(parts):
            pieces = _SPLIT.split(left)
            if len(pieces) < 3:
                continue
            values = [_VALUE.search(piece.replace("(", "").strip()) for piece in pieces[::2]]
            result = _VALUE.search(right)
            if None in values or result is None:
                continue
            numbers = [Fraction(value[0]) for value in values if value]
            claimed = Fraction(result[0])
            true = _worth(numbers, pieces[1::2]) == claimed
            if any(number.denominator != 1 for number in (*numbers, claimed)):
                continue
            operands = tuple(int(number) for number in numbers)
            found.append(Equation(operands, tuple(pieces[1::2]), int(claimed), true, chain.start(), chain.end()))
    return found


def _worth(numbers: list[Fraction], operators: list[str]) -> Fraction | None:
    """Work out a sum of products."""
    terms, signs = [numbers[0]], [1]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "*":
            terms[-1] *= number
        elif operator == "/":
            if number == 0:
                return None
            terms[-1] /= number
        else:
            terms.append(number)
            signs.append(1 if operator == "+" else -1)
    return sum((sign * term for sign, term in zip(signs, terms, strict=True)), Fraction(0))
