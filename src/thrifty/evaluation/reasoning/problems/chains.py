"""What is irrelevant to a question, and what makes it as long without being so.

An irrelevant tree of the published kind (transfers and comparisons, from one container) is a chain: each inference has
one container behind it. *Connected*, its first comparison is with a container of the base problem, which is not told
again; *disconnected*, that comparison and what it compares are collapsed into one axiom: as many axioms are told.
A *control* lengthens the base problem by relevant axioms instead.

Source: arXiv 2510.25626, section on irrelevant axioms.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from numpy.random import Generator

from thrifty.evaluation.reasoning.problems.trees import DISTRACTOR, SIMPLE_RULES, Node, Range, Variables, between


def anchors(root: Node) -> list[Node]:
    """Return the containers of a base tree that are written at one time only, so that more can be said of them."""
    containers = [node for node in root.walk() if node.kind == "cont"]
    written = Counter((node.agents, node.things) for node in containers)
    return [node for node in containers if written[node.agents, node.things] == 1]


class Chain:
    """An irrelevant chain over an anchor; its first agent is number 0.

    Args:
        rng: Draws.
        anchor: The base container that the connected form begins with.
        depth: Inferences of the connected form.
    """

    def __init__(self, rng: Generator, anchor: Node, depth: int) -> None:
        self.anchor = anchor
        self.rules = ("comp", *(SIMPLE_RULES[int(rng.integers(2))] for _ in range(depth - 1)))
        self.signs: list[int] = []
        self.amounts: list[int] = []
        value = anchor.value
        for _ in self.rules:
            falls = rng.random() < 0.5 and value >= 2 * DISTRACTOR.least
            most = value - DISTRACTOR.least if falls else DISTRACTOR.inner - value
            self.signs.append(-1 if falls else 1)
            self.amounts.append(between(rng, DISTRACTOR.least, min(DISTRACTOR.leaf, most)))
            value += self.signs[-1] * self.amounts[-1]
        self.first_value = anchor.value + self.signs[0] * self.amounts[0]

    def leaves(self, *, connected: bool, only_first: bool = False) -> tuple[list[Node], int]:
        """Return the axioms that are told, in text order, and how many agents they speak of.

        Agents and things are numbers of the chain's own; the anchor's are −1.
        """
        names = Variables()
        thing, holder = names.thing(), names.agent()
        if connected:
            told = [Node("comp", (holder, -1), (thing, -1), sign=self.signs[0], value=self.amounts[0])]
        else:
            told = [Node("cont", (holder,), (thing,), value=self.first_value)]
        for rule, sign, amount in zip(self.rules[1:], self.signs[1:], self.amounts[1:], strict=True):
            if only_first:
                break
            other = names.agent()
            if rule == "transfer":
                told.append(Node("transfer", (holder, other), (thing,), sign=sign, value=amount))
            else:
                told.append(Node("comp", (other, holder), (thing,), sign=sign, value=amount))
                holder = other
        return told, names.agents

    def rule_counts(self, *, connected: bool, only_first: bool) -> Counter[str]:
        """Return how often each rule is used in what is told."""
        rules = self.rules[:1] if only_first else self.rules
        return Counter(rules if connected else rules[1:])


def control(
    root: Node, names: Variables, rng: Generator, axioms: int, rules: Counter[str], bounds: Range, *, tries: int = 5
) -> tuple[Node, Variables]:
    """Lengthen a base tree by relevant axioms.

    Args:
        root: The base tree, with quantities; it is left as it is.
        names: Its variables.
        rng: Draws.
        axioms: How many axioms to add.
        rules: How often the irrelevant axioms' rules are used; the nearest of ``tries`` trees is taken.
        bounds: Of quantities.
        tries: Trees to choose from.
    """
    grown = [_grown(root, names, rng, axioms, bounds) for _ in range(tries)]
    wanted = root.rule_counts() + rules

    def distance(pair: tuple[Node, Variables]) -> tuple[int, int]:
        counts = pair[0].rule_counts()
        width = abs(len(pair[0].leaves()) - len(root.leaves()) - axioms)
        return width, sum(abs(counts[rule] - wanted[rule]) for rule in {*counts, *wanted})

    return min(grown, key=distance)


def _grown(root: Node, names: Variables, rng: Generator, axioms: int, bounds: Range) -> tuple[Node, Variables]:
    tree, more = root.copied(), replace(names)
    for _ in range(axioms):
        leaves = [node for node in tree.leaves() if node.kind == "cont"]
        node = leaves[int(rng.integers(len(leaves)))]
        rule = SIMPLE_RULES[int(rng.integers(2))]
        rises = rng.random() < 0.5 and node.value >= 2 * bounds.least
        most = node.value - bounds.least if rises else bounds.leaf
        amount = between(rng, bounds.least, min(bounds.leaf, most))
        before = node.value - amount if rises else node.value + amount
        (agent,), other, below = node.agents, more.agent(), node.depth + 1
        start = Node("cont", (agent if rule == "transfer" else other,), node.things, below, value=before)
        change = Node(rule, (agent, other), node.things, below, 1 if rises else -1, value=amount)
        node.rule, node.children = rule, [start, change]
    return tree, more
