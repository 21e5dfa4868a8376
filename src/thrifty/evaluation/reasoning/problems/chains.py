"""What is irrelevant to a question, and what makes it as long without being so.

An irrelevant tree of the published kind (transfers and comparisons, from one container) is a chain: each inference has
one container behind it. *Connected*, its first comparison is with a container of the base problem, which is not told
again; *disconnected*, that comparison and what it compares are collapsed into one axiom: as many axioms are told.
A *control* lengthens the base problem by relevant axioms instead.

Source: arXiv 2510.25626, section on irrelevant axioms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from numpy.random import Generator

from thrifty.evaluation.reasoning.problems.trees import (
    DISTRACTOR,
    SIMPLE_RULES,
    InfeasibleError,
    Node,
    Range,
    Variables,
    between,
)


def anchors(root: Node) -> list[Node]:
    """Return the containers of a base tree that are written at one time only, so that more can be said of them."""
    containers = [node for node in root.walk() if node.kind == "cont"]
    written = Counter((node.agents, node.things) for node in containers)
    return [node for node in containers if written[node.agents, node.things] == 1]


@dataclass(frozen=True)
class Chain:
    """An irrelevant chain over an anchor; its first agent is number 0.

    Args:
        anchor: The base container that the connected form begins with.
        rules: Of its inferences, the first of them a comparison with the anchor.
        signs: How each changes the quantity: +1 or −1.
        near: Quantities of the connected form's axioms.
        far: Quantities of the disconnected form's axioms, the first of them a container's.
    """

    anchor: Node
    rules: tuple[str, ...]
    signs: tuple[int, ...]
    near: tuple[int, ...]
    far: tuple[int, ...]

    def leaves(self, *, connected: bool) -> tuple[list[Node], int]:
        """Return the axioms that are told, in text order, and how many agents they speak of.

        Agents and things are numbers of the chain's own; the anchor's are −1.
        """
        names = Variables()
        thing, holder = names.thing(), names.agent()
        first, *amounts = self.near if connected else self.far
        if connected:
            told = [Node("comp", (holder, -1), (thing, -1), sign=self.signs[0], value=first)]
        else:
            told = [Node("cont", (holder,), (thing,), value=first)]
        for rule, sign, amount in zip(self.rules[1:], self.signs[1:], amounts, strict=True):
            other = names.agent()
            if rule == "transfer":
                told.append(Node("transfer", (holder, other), (thing,), sign=sign, value=amount))
            else:
                told.append(Node("comp", (other, holder), (thing,), sign=sign, value=amount))
                holder = other
        return told, names.agents


def chain_rules(rng: Generator, depth: int) -> tuple[str, ...]:
    """Draw the rules of a chain of so many inferences."""
    return ("comp", *(SIMPLE_RULES[int(rng.integers(2))] for _ in range(depth - 1)))


def draw_chain(rng: Generator, anchor: Node, depth: int, *, tries: int = 100) -> Chain:
    """Draw a chain, and quantities for both of its forms.

    Args:
        rng: Draws.
        anchor: The base container that the connected form begins with.
        depth: Inferences of the connected form.
        tries: Attempts at the quantities of the disconnected form.

    Raises:
        InfeasibleError: They did not do.
    """
    rules = chain_rules(rng, depth)
    signs, near = [], []
    value = anchor.value
    for _ in rules:
        falls = rng.random() < 0.5 and value >= 2 * DISTRACTOR.least
        signs.append(-1 if falls else 1)
        near.append(_change(rng, value, signs[-1]))
        value += signs[-1] * near[-1]
    for _ in range(tries):
        value = between(rng, DISTRACTOR.least, DISTRACTOR.leaf)
        far = [value]
        try:
            for sign in signs[1:]:
                far.append(_change(rng, value, sign))
                value += sign * far[-1]
        except InfeasibleError:
            continue
        return Chain(anchor, rules, tuple(signs), tuple(near), tuple(far))
    raise InfeasibleError(f"no quantities for a chain of {depth} inferences in {tries} attempts")


def _change(rng: Generator, value: int, sign: int) -> int:
    """Draw by how much a quantity rises or falls; raises ``InfeasibleError`` where there is no room."""
    room = DISTRACTOR.inner - value if sign > 0 else value - DISTRACTOR.least
    return between(rng, DISTRACTOR.least, min(DISTRACTOR.leaf, room))


def control(
    root: Node, names: Variables, rng: Generator, axioms: int, rules: Sequence[str], bounds: Range
) -> tuple[Node, Variables]:
    """Lengthen a base tree by relevant axioms; its goal keeps its value.

    Args:
        root: The base tree, with quantities; it is left as it is.
        names: Its variables.
        rng: Draws.
        axioms: How many axioms to add.
        rules: Those that the irrelevant axioms are used by: each is used as often, and what is left is drawn.
        bounds: Of quantities.
    """
    tree, more = root.copied(), replace(names)
    stack = [SIMPLE_RULES[int(at)] for at in rng.integers(2, size=axioms - len(rules))]
    stack += [rules[int(at)] for at in rng.permutation(len(rules))]
    open_ends = [node for node in tree.leaves() if node.kind == "cont"]
    while stack:
        node, rule = open_ends.pop(int(rng.integers(len(open_ends)))), stack.pop()
        able = [sign for sign in (-1, 1) if _room(node.value, sign, bounds) >= bounds.least]
        sign = able[int(rng.integers(len(able)))]
        amount = between(rng, bounds.least, _room(node.value, sign, bounds))
        (agent,), other, below = node.agents, more.agent(), node.depth + 1
        holder = agent if rule == "transfer" else other
        start = Node("cont", (holder,), node.things, below, value=node.value - sign * amount)
        change = Node(rule, (agent, other), node.things, below, sign, value=amount)
        node.rule, node.children = rule, [start, change]
        open_ends.append(start)
    return tree, more


def _room(value: int, sign: int, bounds: Range) -> int:
    """Return the most by which a quantity may have risen, or fallen, from one that an axiom may have."""
    return value - bounds.least if sign > 0 else bounds.leaf - value
