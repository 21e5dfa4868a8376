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
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np

from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.shortest import Proof


def eager_order(graph: Hypergraph, *, until_goal: bool = False) -> tuple[int, ...]:
    """Return the edges of an exhaustive reasoner that takes the axioms one by one, in text order."""
    return _cut(graph, _eager(graph, range(len(graph.edges))), until_goal)


def breadth_first_order(graph: Hypergraph, *, until_goal: bool = False) -> tuple[int, ...]:
    """Return the edges of a reasoner that works through a queue: axioms first, then what they give, and so on."""
    missing = list(graph.needs)
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
    return tuple(_eager(graph, proof.edges))


def _eager(graph: Hypergraph, allowed: Iterable[int]) -> list[int]:
    """After each axiom, pass through the edges in their own order, again and again, until a pass states nothing."""
    missing = {number: graph.needs[number] for number in allowed}
    have: set[int] = set()
    order: list[int] = []
    ready: list[tuple[int, int]] = []  # (pass, edge) in which a passing reader meets what is ready

    def learn(node: int, now: tuple[int, int]) -> None:
        have.add(node)
        for number in graph.uses.get(node, ()):
            if number in missing:
                missing[number] -= 1
                if missing[number] == 0:
                    heapq.heappush(ready, (now[0] + (number < now[1]), number))

    for axiom in graph.axioms:
        learn(axiom, (0, -1))
        while ready:
            now = heapq.heappop(ready)
            head = graph.edges[now[1]].head
            if head not in have:
                order.append(now[1])
                learn(head, now)
    return order


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
    missing = list(graph.needs)
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
