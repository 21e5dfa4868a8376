"""Names for the variables of trees: what a problem is about, and what its distractors share with the question.

The kinds of overlap are with the agents and things *of the query*: none; the thing; the agents (first themselves, with
another thing of the same topic, then lexical variants of them: "Pia’s boss"); or both (the same thing, and variants).
A total sums whatever its agents have of the whole, so that there only variants share its agents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from numpy.random import Generator

from thrifty.evaluation.reasoning.logic.theorems import (
    Container,
    Theorem,
    comp,
    compeq,
    cont,
    rate,
    total,
    transfer,
)
from thrifty.evaluation.reasoning.problems.chains import Chain
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.problem import Cell
from thrifty.evaluation.reasoning.problems.trees import Node, Variables


@dataclass(frozen=True)
class BaseNames:
    """Names of a base tree's variables."""

    agents: tuple[str, ...]
    things: tuple[str, ...]
    whole: str
    lexicon: Lexicon = field(repr=False)

    def agent(self, number: int) -> str:
        """Return an agent's name."""
        return self.agents[number]

    def thing(self, number: int) -> str:
        """Return a thing's singular."""
        return self.things[number]

    def goal(self, root: Node) -> Theorem:
        """Return what is asked, all at time 0."""
        if root.kind == "total":
            places: list[Container] = [
                (self.agents[a], self.things[t], 0) for a, t in zip(root.agents, root.things, strict=True)
            ]
            return total(self.whole, places, None)
        return cont(self.agents[root.agents[0]], self.things[root.things[0]], None)

    def extended(self, variables: Variables, rng: Generator) -> BaseNames:
        """Name the agents that a control adds."""
        more = draw_names(self.lexicon, rng, variables.agents - len(self.agents), set(self.agents))
        return BaseNames((*self.agents, *more), self.things, self.whole, self.lexicon)


@dataclass(frozen=True)
class ChainNames:
    """Names of a chain's variables; −1 is the anchor's."""

    agents: tuple[str, ...]
    thing_name: str
    anchor: tuple[str, str]

    def agent(self, number: int) -> str:
        """Return an agent's name."""
        return self.anchor[0] if number < 0 else self.agents[number]

    def thing(self, number: int) -> str:
        """Return a thing's singular."""
        return self.anchor[1] if number < 0 else self.thing_name


def stated(leaf: Node, names: BaseNames | ChainNames) -> tuple[Theorem, Container | None, str]:
    """Return what a leaf says (all at time 0: the text's clock puts that right), its subject, and its side."""
    agents = [names.agent(number) for number in leaf.agents]
    things = [names.thing(number) for number in leaf.things]
    places: list[Container] = [(agent, things[min(at, len(things) - 1)], 0) for at, agent in enumerate(agents)]
    if leaf.kind == "cont":
        return cont(agents[0], things[0], leaf.value), None, ""
    if leaf.kind == "comp":
        return comp(places[0], places[1], leaf.sign * leaf.value), places[0], ""
    if leaf.kind == "transfer":
        receives = leaf.sign > 0
        ends = places if receives else places[::-1]
        return transfer(ends[0], ends[1], leaf.value), None, "receiver" if receives else "sender"
    if leaf.kind == "rate":
        return rate(agents[0], things[0], things[1], leaf.value), None, ""
    a, b, c, d = places
    return compeq(a, b, c, d), None, ""


def draw_names(lexicon: Lexicon, rng: Generator, n: int, taken: set[str]) -> list[str]:
    """Draw first names that are not taken, and take them.

    Raises:
        ValueError: The lexicon has too few.
    """
    free = [name for name in lexicon.names if name not in taken]
    if n > len(free):
        raise ValueError(f"lexicon: names: expected at least {len(taken) + n} names, got {len(lexicon.names)}")
    drawn = [free[number] for number in rng.choice(len(free), size=n, replace=False)]
    taken.update(drawn)
    return drawn


def name_base(root: Node, variables: Variables, lexicon: Lexicon, rng: Generator) -> BaseNames:
    """Draw agents, a topic, and different parts of it for the things; what holds them is the topic's holder.

    Raises:
        ValueError: The lexicon has too few names or parts.
    """
    agents = draw_names(lexicon, rng, variables.agents, set())
    held = [number for number in range(variables.things) if number not in variables.holds]
    rich = [topic for topic in lexicon.topics if len(topic.parts) > len(held)]
    if not rich:
        raise ValueError(f"lexicon: topics: expected one with more than {len(held)} parts, got none")
    topic = rich[int(rng.integers(len(rich)))]
    drawn = iter(rng.choice(len(topic.parts), size=len(held), replace=False).tolist())
    things = [topic.holder[0] if n in variables.holds else topic.parts[next(drawn)][0] for n in range(variables.things)]
    return BaseNames(tuple(agents), tuple(things), topic.whole[0], lexicon)


def name_chain(
    chain: Chain,
    agents: int,
    cell: Cell,
    root: Node,
    base: BaseNames,
    taken: set[str],
    things: set[str],
    lexicon: Lexicon,
    rng: Generator,
) -> ChainNames:
    """Name a chain by the kind of overlap; what it takes is entered into ``taken`` and ``things``.

    Raises:
        ValueError: The lexicon has too few words.
    """
    asked = [base.agent(number) for number in root.agents]
    which = int(rng.integers(len(root.things)))
    shared = base.thing(root.things[which])
    anchor = (base.agent(chain.anchor.agents[0]), base.thing(chain.anchor.things[0]))
    if cell.overlap in ("entity_overlap", "agent_entity_overlap"):
        thing = shared
    else:
        topic = lexicon.topic_of(shared)
        same_topic = cell.overlap == "agent_overlap" and topic is not None
        pool = [noun[0] for noun in (topic.parts if same_topic and topic else lexicon.plain)]
        free = [name for name in pool if name not in things]
        if not free:
            raise ValueError(f"lexicon: expected more things than the {len(pool)} to choose from")
        thing = free[int(rng.integers(len(free)))]
        things.add(thing)
    if cell.overlap in ("no_overlap", "entity_overlap"):
        return ChainNames(tuple(draw_names(lexicon, rng, agents, taken)), thing, anchor)
    themselves = asked if cell.overlap == "agent_overlap" and root.kind == "cont" else []
    variants = _variants(asked, lexicon, rng, agents, taken)
    names = [*themselves, *variants][:agents]
    if cell.connection == "connected" and names[0] == anchor[0] and len(names) > 1:
        names[0], names[1] = names[1], names[0]  # nobody is compared with themselves
    elif cell.connection == "connected" and names[0] == anchor[0]:
        names = variants[:1]
    return ChainNames(tuple(names), thing, anchor)


def _variants(asked: Sequence[str], lexicon: Lexicon, rng: Generator, n: int, taken: set[str]) -> list[str]:
    """Draw lexical variants of the agents, each agent's in turn."""
    found: list[str] = []
    while len(found) < n:
        agent = asked[len(found) % len(asked)]
        free = [f"{agent}’s {relation}" for relation in lexicon.relations]
        free = [name for name in free if name not in taken]
        if not free:
            raise ValueError(f"lexicon: relations: expected more than {len(lexicon.relations)}")
        found.append(free[int(rng.integers(len(free)))])
        taken.add(found[-1])
    return found
