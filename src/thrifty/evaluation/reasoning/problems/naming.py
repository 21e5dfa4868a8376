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


def name_chains(
    chains: Sequence[Chain],
    agents: Sequence[int],
    connection: str,
    overlap: str,
    root: Node,
    base: BaseNames,
    rng: Generator,
) -> list[ChainNames]:
    """Name chains by the kind of overlap, each apart from the base problem and from those before it.

    Args:
        chains: Chains over containers of the base problem.
        agents: How many agents of its own each speaks of.
        connection: ``"connected"`` or ``"disconnected"``.
        overlap: What is shared with the question.
        root: The base problem's tree.
        base: Its names.
        rng: Draws.

    Raises:
        ValueError: The lexicon has too few words.
    """
    taken, things = set(base.agents), set(base.things)
    asked = [base.agent(number) for number in root.agents]
    found = []
    for chain, n in zip(chains, agents, strict=True):
        anchor = (base.agent(chain.anchor.agents[0]), base.thing(chain.anchor.things[0]))
        thing = _thing(overlap, base.thing(root.things[int(rng.integers(len(root.things)))]), base.lexicon, things, rng)
        if overlap in ("no_overlap", "entity_overlap"):
            found.append(ChainNames(tuple(draw_names(base.lexicon, rng, n, taken)), thing, anchor))
            continue
        themselves = asked if overlap == "agent_overlap" and root.kind == "cont" else []
        variants = _variants(asked, base.lexicon, rng, n, taken)
        names = [*themselves, *variants][:n]
        if connection == "connected" and names[0] == anchor[0]:  # nobody is compared with themselves
            names = [names[1], names[0], *names[2:]] if n > 1 else variants[:1]
        found.append(ChainNames(tuple(names), thing, anchor))
    return found


def _thing(overlap: str, shared: str, lexicon: Lexicon, things: set[str], rng: Generator) -> str:
    """Return the thing asked for, or draw another (of its topic, where the agents are shared) and take it."""
    if overlap in ("entity_overlap", "agent_entity_overlap"):
        return shared
    topic = lexicon.topic_of(shared) if overlap == "agent_overlap" else None
    pool = lexicon.plain if topic is None else topic.parts
    free = [singular for singular, _ in pool if singular not in things]
    if not free:
        raise ValueError(f"lexicon: expected more things than the {len(pool)} to choose from")
    drawn = free[int(rng.integers(len(free)))]
    things.add(drawn)
    return drawn


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
