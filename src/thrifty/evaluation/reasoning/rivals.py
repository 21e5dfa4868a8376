"""The published way to sample quantities, for comparison: projected gradient ascent, and rejection.

Signs are drawn with the shapes, so that a tree may have no quantities at all. Each tree is searched apart: the base
tree, every irrelevant tree in both of its forms, every control. Where the steps run out, the bundle is drawn again.

Source: the sampling of arXiv 2510.25626's code (step size, restarts and bounces as there), described in words and
written anew; wording, reading and the gate are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from thrifty.evaluation.reasoning.problems.chains import Chain, chain_rules, control
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.making import Bundle, Plan, Sampler, make_bundle
from thrifty.evaluation.reasoning.problems.problem import CELLS
from thrifty.evaluation.reasoning.problems.trees import DISTRACTOR, InfeasibleError, Node, Range, Variables

#: Gradient steps at most; after every so many of them, or when they stall, the search begins elsewhere.
STEPS, RESTART = 1000, 100
#: How far, of the range, a quantity that would leave it bounces back at most.
BOUNCE = 0.25


def gradient_bundles(n: int, seed: int) -> Iterator[Bundle]:
    """Yield bundles whose quantities are searched for by gradient ascent."""
    plan = Plan(seed, "question", (2, 3), 3, Lexicon.default())
    for number in range(n):
        yield make_bundle(plan, number, CELLS, SAMPLER)


def _search_base(root: Node, rng: Generator, bounds: Range) -> None:
    ascend(root, [leaf for leaf in root.leaves() if leaf.kind != "compeq"], rng, bounds)


def _search_chain(rng: Generator, anchor: Node, depth: int) -> Chain:
    if anchor.value > DISTRACTOR.leaf:  # it is an axiom of the irrelevant tree, and refused as one
        raise InfeasibleError(f"{anchor.value} is more than an axiom may have")
    rules = chain_rules(rng, depth)
    signs = tuple(int(sign) for sign in rng.choice((-1, 1), size=depth))
    found = []
    for start, several in ((Node("cont", (), (), value=anchor.value), signs), (Node("cont", (), ()), signs[1:])):
        changes = [Node("comp", (), (), sign=sign) for sign in several]
        node = start
        for change in changes:
            node = Node("cont", (), (), rule="comp", children=[node, change])
        free = changes if start.value else [start, *changes]
        ascend(node, free, rng, DISTRACTOR)
        found.append(tuple(leaf.value for leaf in free))
    return Chain(anchor, rules, signs, *found)


def _search_control(
    root: Node, names: Variables, rng: Generator, axioms: int, rules: Sequence[str], bounds: Range
) -> tuple[Node, Variables]:
    """Take the shape of our control, draw its new signs, and search for its new quantities."""
    tree, more = control(root, names, rng, axioms, rules, bounds)
    grown = list(_grown(root, tree))
    for node in grown:
        node.children[1].sign = 1 if rng.random() < 0.5 else -1
    ascend(tree, [leaf for node in grown for leaf in node.children if not leaf.children], rng, bounds)
    return tree, more


def _grown(before: Node, after: Node) -> Iterator[Node]:
    """Yield what had no premises before."""
    if not before.children:
        yield from (node for node in after.walk() if node.children)
    for old, new in zip(before.children, after.children, strict=False):
        yield from _grown(old, new)


def ascend(root: Node, free: Sequence[Node], rng: Generator, bounds: Range, *, steps: int = STEPS) -> None:
    """Search for the quantities of ``free`` leaves with which all inferences stay within bounds, and set the tree's.

    The steps follow the gradient of the violation, at the whole numbers nearest to where the search is.

    Raises:
        InfeasibleError: The steps ran out.
    """
    inner = [node for node in root.walk() if node.children]
    low, high, n = bounds.least, bounds.leaf, len(free)
    place = {leaf: at for at, leaf in enumerate(free)}
    x = rng.uniform(low, high, n)
    for step in range(1, steps + 1):
        for leaf, value in zip(free, np.rint(x).tolist(), strict=True):
            leaf.value = int(value)
        for node in inner:
            node.value = _value(node)
        wrong = [node for node in inner if not low <= node.value <= bounds.inner]
        if not wrong:
            return
        pull = np.zeros(n)
        for node in wrong:
            short = low - node.value if node.value < low else bounds.inner - node.value
            pull += short * _slope(node, place, n)
        moved = x + np.sqrt(high - low) * pull / len(inner)
        bounce = BOUNCE * (high - low) * rng.random(n)
        after = np.clip(moved, low, high) + (moved < low) * bounce - (moved > high) * bounce
        stalled = np.linalg.norm(after - x) <= 1e-14
        x = rng.uniform(low, high, n) if stalled or step % RESTART == 0 else after
    raise InfeasibleError(f"no quantities for a tree of {root.steps()} inferences in {steps} steps")


def _value(node: Node) -> int:
    first, *rest = (child.value for child in node.children)
    if node.rule == "rate":
        return first * rest[0]
    return first + sum(weight * value for weight, value in zip(_weights(node), rest, strict=False))


def _weights(node: Node) -> list[int]:
    """Return how much each premise but the first counts in a sum."""
    if node.rule == "difference":
        return [-1]
    return [child.sign if child.kind in ("comp", "transfer") else 1 for child in node.children[1:]]


def _slope(node: Node, place: dict[Node, int], n: int) -> np.ndarray:
    """Return the gradient of a node's quantity over the free leaves."""
    slope = np.zeros(n)
    if not node.children:
        if node in place:
            slope[place[node]] = 1.0
        return slope
    first, *rest = node.children
    if node.rule == "rate":
        slope += rest[0].value * _slope(first, place, n)
        slope += first.value * _slope(rest[0], place, n)
        return slope
    slope += _slope(first, place, n)
    for weight, child in zip(_weights(node), rest, strict=False):
        slope += weight * _slope(child, place, n)
    return slope


#: The published sampling.
SAMPLER = Sampler(_search_base, _search_chain, _search_control)
