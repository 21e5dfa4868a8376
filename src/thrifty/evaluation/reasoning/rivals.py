"""The published way to sample quantities, for comparison: gradient ascent with rejection.

Source: arXiv 2510.25626's generator as described: projected gradient ascent on the violation of bounds, at most 1000
steps; what it does not find is rejected, and the whole bundle is drawn again. Written anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from thrifty.evaluation.reasoning.problems.chains import Chain, anchors
from thrifty.evaluation.reasoning.problems.generator import Bundle, Maker
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.naming import BaseNames, name_base
from thrifty.evaluation.reasoning.problems.problem import CELLS
from thrifty.evaluation.reasoning.problems.trees import BASE, Node, Range, Variables, base_tree

STEPS = 1000


def gradient_bundles(n: int, seed: int) -> Iterator[Bundle]:
    """Yield bundles whose quantities are searched for by gradient ascent."""
    for number in range(n):
        yield _GradientMaker(seed, number, "question", (2, 3), 3, Lexicon.default()).make(CELLS)


class _GradientMaker(Maker):
    """Draws the shapes as ours does, and searches for their quantities as published."""

    def _draw(self) -> tuple[Node, Variables, BaseNames, list[Chain]] | None:
        rng = self.rng(0)
        depth = self.depths[int(rng.integers(len(self.depths)))]
        root, variables = base_tree(rng, depth, total=bool(rng.integers(2)))
        if not ascend(root, rng, BASE):
            return None
        places = anchors(root)
        if not places:
            return None
        chains = [
            Chain(rng, places[int(rng.integers(len(places)))], self.depths[int(rng.integers(len(self.depths)))])
            for _ in range(self.trees)
        ]
        return root, variables, name_base(root, variables, self.words, rng), chains


def ascend(root: Node, rng: Generator, bounds: Range, *, steps: int = STEPS) -> bool:
    """Search for quantities; returns whether any were found, which are then the tree's."""
    leaves = [leaf for leaf in root.leaves() if leaf.kind != "compeq"]
    x = rng.uniform(bounds.least, bounds.leaf, len(leaves))
    for _ in range(steps):
        if _violation(root, leaves, np.rint(x), bounds) == 0:
            for node, value in _values(root, leaves, np.rint(x)).items():
                node.value = int(value)
            return True
        here = _violation(root, leaves, x, bounds)
        slope = np.array([_violation(root, leaves, x + step, bounds) - here for step in np.eye(len(x))])
        noise = rng.normal(0, 0.3, len(x))
        x = np.clip(x - slope / (np.linalg.norm(slope) + 1e-9) + noise, bounds.least, bounds.leaf)
    return False


def _violation(root: Node, leaves: list[Node], x: np.ndarray, bounds: Range) -> float:
    values = _values(root, leaves, x)
    inner = [value for node, value in values.items() if node.children]
    return float(sum(max(0.0, bounds.least - value) + max(0.0, value - bounds.inner) for value in inner))


def _values(root: Node, leaves: list[Node], x: np.ndarray) -> dict[Node, float]:
    values: dict[Node, float] = dict(zip(leaves, x.tolist(), strict=True))
    for node in root.walk():
        if not node.children:
            values.setdefault(node, 0.0)
            continue
        parts = [values[child] for child in node.children]
        if node.rule in ("transfer", "comp"):
            values[node] = parts[0] + node.children[1].sign * parts[1]
        elif node.rule == "rate":
            values[node] = parts[0] * parts[1]
        elif node.rule == "difference":
            values[node] = parts[0] - parts[1]
        else:
            values[node] = sum(parts)
    return values
