"""Sentences into a program: the inverse of the wording.

Time in text: a statement about an agent's things refers to the state after all transfers of them that precede it; a
transfer moves the clocks of both of its sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from thrifty.evaluation.reasoning.logic.program import Program
from thrifty.evaluation.reasoning.logic.theorems import Container, Theorem, comp, compeq, cont, times, total, transfer
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.templates import Read, Reader, unlisted


class TextClock:
    """Counts, for every agent and thing, the transfers told so far, and keeps what was spoken of."""

    def __init__(self) -> None:
        self.transfers: Counter[tuple[str, str]] = Counter()
        self.mentioned: dict[tuple[str, str], None] = {}

    def now(self, agent: str, entity: str) -> Container:
        """Return the container that a statement made now is about."""
        self.mentioned.setdefault((agent, entity))
        return (agent, entity, self.transfers[agent, entity])

    def tick(self, *places: Container | None) -> None:
        """Let a transfer pass."""
        for place in places:
            if place is not None:
                self.transfers[place[0], place[1]] += 1


def read_program(sentences: Iterable[str], question: str, reader: Reader) -> Program:
    """Read a problem's sentences and its question into a logic program.

    Args:
        sentences: The statements, in the order of the text.
        question: "How many ...?" or "Prove that ...".
        reader: Knows the grammar and the words.

    Raises:
        ValueError: A sentence is none of the grammar's; it is shown.
    """
    clock = TextClock()
    axioms = tuple(read_statement(sentence, reader, clock) for sentence in sentences)
    return Program(axioms, (), read_goal(question, reader, clock))


def read_statement(sentence: str, reader: Reader, clock: TextClock) -> Theorem:
    """Read one statement, at the time at which it stands in the text; raises as :func:`read_program`."""
    read = reader.read(sentence)
    theorem = None if read is None else _stated(read, reader.lexicon, clock)
    if theorem is None:
        raise ValueError(f"sentences: expected a sentence of the grammar, got {sentence!r}")
    return theorem


def _stated(read: Read, lexicon: Lexicon, clock: TextClock) -> Theorem | None:
    slots = read.slots
    agent = _name(slots.get("agent", ""))
    entity = lexicon.lemma(slots["entity"]) if "entity" in slots else ""
    value = int(slots["q"].replace(",", "")) if "q" in slots else 0
    if read.form == "cont":
        place = clock.now(agent, entity)
        return cont(agent, entity, value, place[2])
    base = read.form.removesuffix(" across")
    if base in ("more", "fewer", "times"):
        other = lexicon.lemma(slots["other entity"]) if "other entity" in slots else entity
        a, b = clock.now(agent, entity), clock.now(_name(slots["other"]), other)
        return times(a, b, value) if base == "times" else comp(a, b, value if base == "more" else -value)
    if read.form == "transfer":
        receiver, sender = (
            clock.now(_name(slots[role]), entity) if role in slots else None for role in ("receiver", "sender")
        )
        clock.tick(receiver, sender)
        return transfer(receiver, sender, value)
    if read.form == "rate":
        whole, part = (lexicon.lemma(slots[f"{role} entity"]) for role in ("whole", "part"))
        return Theorem(("rate", clock.now(agent, whole), clock.now(agent, part)), value)
    if read.form == "compeq":
        a, b, c, d = (clock.now(_name(slots[role]), entity) for role in ("agent", "other", "third", "fourth"))
        return compeq(a, b, c, d)
    return None


def read_goal(question: str, reader: Reader, clock: TextClock) -> Theorem:
    """Read what is asked after the text that a clock has followed; raises as :func:`read_program`."""
    read = reader.read(question)
    if read is None or not read.form.startswith(("ask", "prove")):
        raise ValueError(f"question: expected a question of the grammar, got {question!r}")
    slots, lexicon = read.slots, reader.lexicon
    value = int(slots["q"].replace(",", "")) if "q" in slots else None
    if read.form.endswith("total"):
        whole = lexicon.lemma(slots["whole"])
        return total(whole, _parts([_name(name) for name in unlisted(slots["agents"])], whole, lexicon, clock), value)
    entity = lexicon.lemma(slots["entity"])
    agent = _name(slots["agent"])
    if read.form.endswith("comp"):
        return comp(clock.now(agent, entity), clock.now(_name(slots["other"]), entity), value)
    return cont(agent, entity, value, clock.now(agent, entity)[2])


def _parts(agents: Sequence[str], whole: str, lexicon: Lexicon, clock: TextClock) -> list[Container]:
    """Return every container of the agents that the text speaks of and that is a part of the whole."""
    return [
        clock.now(agent, entity)
        for agent in agents
        for name, entity in list(clock.mentioned)
        if name == agent and (lexicon.is_part(entity, whole) or entity == whole)
    ]


def _name(text: str) -> str:
    """Write an agent with typographic apostrophes, as problems do."""
    return text.replace("'", "’")
