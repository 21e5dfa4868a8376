"""Reference reasoners: in which order a search of a known kind would state the theorems of a program.

Each returns edges; an edge's head is the theorem stated. *Eager* takes the axioms in text order and states all that
follows from each before the next (the published depth-first order); *breadth-first* states what follows in layers;
*efficient* is the eager order of the theorems that the shortest proof needs; *best-first* follows words shared with the
goal, as a reasoner misled by semantic overlap does.

Source: arXiv 2510.25626, section on search orders.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import chain

import numpy as np

from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.shortest import Proof


def eager_order(graph: Hypergraph, *, until_goal: bool = False) -> tuple[int, ...]:
    """Return the edges of an exhaustive reasoner that takes the axioms one by one, in text order."""
    have: set[int] = set()
    order: list[int] = []
    for axiom in graph.axioms:
        have.add(axiom)
        growing = True
        while growing:
            growing = False
            for number, edge in enumerate(graph.edges):
                if edge.head not in have and have.issuperset(edge.tail):
                    have.add(edge.head)
                    order.append(number)
                    growing = True
    return _cut(graph, order, until_goal)


def breadth_first_order(graph: Hypergraph, *, until_goal: bool = False) -> tuple[int, ...]:
    """Return the edges of a reasoner that works through a queue: axioms first, then what they give, and so on."""
    missing = [len(set(edge.tail)) for edge in graph.edges]
    have, order, queue = set(graph.axioms), [], deque(graph.axioms)
    while queue:
        for number in graph.uses.get(queue.popleft(), ()):
            missing[number] -= 1
            head = graph.edges[number].head
            if missing[number] == 0 and head not in have:
                have.add(head)
                order.append(number)
                queue.append(head)
    return _cut(graph, order, until_goal)


def efficient_order(graph: Hypergraph, proof: Proof) -> tuple[int, ...]:
    """Return the shortest proof's edges in the order in which an eager reasoner would state their theorems."""
    by_head = {graph.edges[number].head: number for number in proof.edges}
    have: set[int] = set()
    order: list[int] = []
    for axiom in graph.axioms:
        have.add(axiom)
        growing = True
        while growing:
            growing = False
            for head, number in sorted(by_head.items(), key=lambda item: item[1]):
                if head not in have and have.issuperset(graph.edges[number].tail):
                    have.add(head)
                    order.append(number)
                    growing = True
    return tuple(order)


def random_order(graph: Hypergraph, seed: int, *, until_goal: bool = True) -> tuple[int, ...]:
    """Return the edges of a reasoner that states any derivable theorem next."""
    rng = np.random.default_rng(seed)
    draws = rng.random(len(graph.nodes))
    return _best_first(graph, lambda node: float(draws[node]), until_goal)


def best_first_order(
    graph: Hypergraph, score: Callable[[int], float] | None = None, *, until_goal: bool = True
) -> tuple[int, ...]:
    """Return the edges of a reasoner that states next, of what follows, the theorem with the highest score.

    Args:
        graph: A deduction hypergraph with a goal.
        score: Of a theorem's number; ``None``: the words that it shares with the goal.
        until_goal: Stop once the goal is stated.
    """
    if score is None:
        wanted = words_of(graph, graph.goal if graph.goal is not None else 0)

        def overlap(node: int) -> float:
            words = words_of(graph, node)
            return len(words & wanted) / len(words | wanted)

        score = overlap
    return _best_first(graph, lambda node: -score(node), until_goal)


def words_of(graph: Hypergraph, node: int) -> frozenset[str]:
    """Return the words of a theorem's agents and entities, a possessive's parts apart."""

    def words(part: object) -> list[str]:
        if isinstance(part, str):
            return part.lower().replace("’s", "").replace("'s", "").split()
        return list(chain.from_iterable(map(words, part))) if isinstance(part, tuple) else []

    key = graph.nodes[node].key
    return frozenset(words(key[1:]))


def theorem_order(graph: Hypergraph, edges: Sequence[int]) -> list[int]:
    """Return the theorems that a sequence of edges states."""
    return [graph.edges[number].head for number in edges]


def _best_first(graph: Hypergraph, cost: Callable[[int], float], until_goal: bool) -> tuple[int, ...]:
    missing = [len(set(edge.tail)) for edge in graph.edges]
    have: set[int] = set()
    heap: list[tuple[float, int, int]] = []
    order: list[int] = []

    def learn(node: int) -> None:
        have.add(node)
        for number in graph.uses.get(node, ()):
            missing[number] -= 1
            if missing[number] == 0 and graph.edges[number].head not in have:
                heapq.heappush(heap, (cost(graph.edges[number].head), number, graph.edges[number].head))

    for axiom in graph.axioms:
        learn(axiom)
    while heap:
        _, number, head = heapq.heappop(heap)
        if head in have:
            continue
        order.append(number)
        if until_goal and head == graph.goal:
            break
        learn(head)
    return tuple(order)


def _cut(graph: Hypergraph, order: Sequence[int], until_goal: bool) -> tuple[int, ...]:
    if not until_goal or graph.goal is None:
        return tuple(order)
    return tuple(order[: [graph.edges[number].head for number in order].index(graph.goal) + 1])


def within(order: Sequence[int], graph: Hypergraph, theorems: Collection[int]) -> list[int]:
    """Return the theorems of an order that are among ``theorems``."""
    return [graph.edges[number].head for number in order if graph.edges[number].head in theorems]
