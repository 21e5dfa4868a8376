"""Proof trees: drawn backwards from a goal, with quantities that work out.

A node is a statement about variables (agents and things are numbers until they are named). Expanding a node chooses a
rule whose conclusion it is, and makes the premises its children; leaves are the axioms.

Source: arXiv 2510.25626 and MathGAP (arXiv 2410.13502), for rules and ranges. The original searches for quantities by
gradient ascent and rejects what it does not find; here bounds are handed down the tree before anything is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from numpy.random import Generator

#: Rules that give a container, by which base trees grow; distractors use the first two.
RULES = ("transfer", "comp", "compeq", "rate")
SIMPLE_RULES = RULES[:2]


class InfeasibleError(ValueError):
    """The bounds leave no room for a quantity."""


@dataclass(frozen=True)
class Range:
    """Bounds of quantities: those of axioms, and the most that anything derived may be."""

    leaf: int = 20
    inner: int = 1000
    least: int = 2


BASE = Range()
DISTRACTOR = Range(99, 10_000)


@dataclass(eq=False, slots=True)
class Node:
    """A statement in a proof tree.

    Args:
        kind: ``"cont"``, ``"comp"``, ``"transfer"``, ``"rate"``, ``"compeq"`` or ``"total"``.
        agents: Numbers of the agents, in the order of the kind's sentence.
        things: Numbers of the things, likewise.
        depth: Steps from the goal.
        sign: How a comparison or a transfer changes the quantity: +1 or −1.
        rule: By which rule the children give it; empty for an axiom.
        children: The premises, in text order.
        value: Its quantity, once drawn.
    """

    kind: str
    agents: tuple[int, ...]
    things: tuple[int, ...]
    depth: int = 0
    sign: int = 1
    rule: str = ""
    children: list[Node] = field(default_factory=list)
    value: int = 0

    def copied(self) -> Node:
        """Return a copy of the tree."""
        below = [child.copied() for child in self.children]
        return Node(self.kind, self.agents, self.things, self.depth, self.sign, self.rule, below, self.value)

    def walk(self) -> list[Node]:
        """Return this node and all below it, children first."""
        found: list[Node] = []
        for child in self.children:
            found += child.walk()
        found.append(self)
        return found

    def leaves(self) -> list[Node]:
        """Return the axioms, in text order."""
        return [node for node in self.walk() if not node.children]

    def steps(self) -> int:
        """Return the number of inferences."""
        return sum(bool(node.children) for node in self.walk())


@dataclass
class Variables:
    """Counts the agents and things of a tree; a holder's number points to what it holds."""

    agents: int = 0
    things: int = 0
    holds: dict[int, int] = field(default_factory=dict)

    def agent(self) -> int:
        """Return a new agent."""
        self.agents += 1
        return self.agents - 1

    def thing(self, inside: int | None = None) -> int:
        """Return a new thing, or what holds another."""
        self.things += 1
        if inside is not None:
            self.holds[self.things - 1] = inside
        return self.things - 1


def base_tree(rng: Generator, depth: int, *, total: bool) -> tuple[Node, Variables]:
    """Draw the shape of a base problem.

    Args:
        rng: Draws.
        depth: Inferences from the goal to the deepest axioms.
        total: The goal is what two to four agents have together, in place of what one has.
    """
    names = Variables()
    if total:
        parts = [Node("cont", (names.agent(),), (names.thing(),), 1) for _ in range(int(rng.integers(2, 5)))]
        agents = tuple(part.agents[0] for part in parts)
        things = tuple(part.things[0] for part in parts)
        root = Node("total", agents, things, rule="total", children=list(parts))
    else:
        root = Node("cont", (names.agent(),), (names.thing(),))
        parts = [root]
    queue = list(parts)
    while queue:
        node = queue.pop(0)
        if node.depth < depth:
            expand(node, rng, names, RULES)
            # A plain comparison is told; only the equality of two differences may have one that is inferred.
            queue += [n for n in node.children if n.kind == "cont" or (n.kind == "comp" and node.rule == "compeq")]
    return root, names


def expand(node: Node, rng: Generator, names: Variables, rules: tuple[str, ...]) -> None:
    """Give a node premises: a rule is drawn among those whose conclusion it can be."""
    agent, thing, below = node.agents[0], node.things[0], node.depth + 1
    if node.kind == "comp":
        node.rule = "difference"
        node.children = [Node("cont", (each,), (thing,), below) for each in node.agents]
        return
    able = [rule for rule in rules if rule != "rate" or thing not in names.holds]
    node.rule = rule = able[int(rng.integers(len(able)))]
    sign = 1 if rng.random() < 0.5 else -1
    if rule == "transfer":
        other = names.agent()
        node.children = [
            Node("cont", (agent,), (thing,), below),
            Node("transfer", (agent, other), (thing,), below, sign),
        ]
    elif rule == "comp":
        other = names.agent()
        node.children = [
            Node("cont", (other,), (thing,), below),
            Node("comp", (agent, other), (thing,), below, sign),
        ]
    elif rule == "rate":
        holder = names.thing(inside=thing)
        node.children = [
            Node("cont", (agent,), (holder,), below),
            Node("rate", (agent,), (holder, thing), below),
        ]
    else:
        b, c, d = names.agent(), names.agent(), names.agent()
        node.children = [
            Node("cont", (b,), (thing,), below),
            Node("comp", (c, d), (thing,), below),
            Node("compeq", (agent, b, c, d), (thing,), below),
        ]


def draw_quantities(root: Node, rng: Generator, bounds: Range, *, tries: int = 100) -> None:
    """Draw every quantity of a tree.

    Raises:
        InfeasibleError: None were found in ``tries`` attempts.
    """
    for _ in range(tries):
        try:
            draw(root, rng, bounds, bounds.least)
        except InfeasibleError:
            continue
        return
    raise InfeasibleError(f"no quantities for a tree of {root.steps()} inferences in {tries} attempts")


def draw(node: Node, rng: Generator, bounds: Range, least: int) -> int:
    """Draw the quantities of a node and of all below it, so that its own is at least ``least``.

    Raises:
        InfeasibleError: The bounds leave no room.
    """
    if not node.children:
        node.value = 0 if node.kind == "compeq" else between(rng, least, bounds.leaf)
        return node.value
    if node.rule == "total":
        node.value = sum(draw(child, rng, bounds, bounds.least) for child in node.children)
    elif node.rule == "difference":
        more, fewer = node.children
        low = draw(fewer, rng, bounds, bounds.least)
        node.value = draw(more, rng, bounds, low + least) - low
    elif node.rule == "compeq":
        start, difference, _ = node.children
        node.value = draw(start, rng, bounds, bounds.least) + draw(difference, rng, bounds, bounds.least)
    elif node.rule == "rate":
        start, each = node.children
        start_value = draw(start, rng, bounds, bounds.least)
        each.value = between(rng, bounds.least, min(bounds.leaf, bounds.inner // start_value))
        node.value = start_value * each.value
    else:
        start, change = node.children
        falls = change.sign < 0
        value = draw(start, rng, bounds, least + bounds.least if falls else bounds.least)
        room = value - least if falls else bounds.inner - value
        change.value = between(rng, bounds.least, min(bounds.leaf, room))
        node.value = value + change.sign * change.value
    if not least <= node.value <= bounds.inner:
        raise InfeasibleError(f"{node.value} is not between {least} and {bounds.inner}")
    return node.value


def between(rng: Generator, low: int, high: int) -> int:
    """Draw a whole number, both ends included.

    Raises:
        InfeasibleError: There is none.
    """
    if low > high:
        raise InfeasibleError(f"nothing between {low} and {high}")
    return int(rng.integers(low, high + 1))
