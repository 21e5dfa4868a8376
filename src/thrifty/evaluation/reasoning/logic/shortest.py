"""Shortest proofs, in three tiers: the only one there is; the smallest tree; the fewest distinct steps.

A proof's length is its number of distinct edges. If every theorem behind the goal has a single derivation that does not
need itself, that is the proof. Else Knuth's generalisation of Dijkstra finds the smallest *tree*, in which a lemma
used twice costs twice; and an integer programme finds the fewest *distinct* steps, which is NP-hard in general.

Source: arXiv 2510.25626; Knuth, "A Generalization of Dijkstra's Algorithm", IPL 6 (1977); for the hardness, Ausiello,
Franciosa, Frigioni, "Directed Hypergraphs: Problems, Algorithmic Results, and a Novel Decremental Approach" (2001).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from thrifty._common.checks import one_of, whole
from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable
from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph
from thrifty.evaluation.reasoning.logic.integer import fewest_edges

OBJECTIVES = ("dag", "tree")
#: Edges times theorems with several derivations, up to which circular derivations are sought out.
_PASSES = 2_000_000
#: Edges that the integer programme is given at most.
_PROGRAMME = 5_000


@dataclass(frozen=True)
class Proof:
    """A proof, as the edges that it uses.

    Args:
        edges: Numbers of its edges in the hypergraph, each after those that it needs.
        theorems: Numbers of the theorems that they derive, in the same order; the goal is the last.
        length: Distinct edges (``objective="dag"``), or edges of the unfolded tree (``"tree"``).
        optimal: No shorter one exists.
        method: ``"unique"``, ``"tree"`` or ``"milp"``: which tier found it.

    Example:
        >>> H = Hypergraph.from_edges([("a", "b"), ("b", "c")], axioms="a", goal="c")
        >>> shortest_proof(H).length
        2
    """

    edges: tuple[int, ...]
    theorems: tuple[int, ...]
    length: int
    optimal: bool = True
    method: str = "unique"


def shortest_proof(
    graph: Hypergraph, goal: int | None = None, *, objective: str = "dag", time_limit: float = 5.0
) -> Proof:
    """Return a shortest proof of the goal; ties go to what was found first, so that the answer is always the same.

    Args:
        graph: A deduction hypergraph.
        goal: Number of a theorem; ``None`` for the graph's own goal.
        objective: ``"dag"``: distinct steps; ``"tree"``: a lemma counts as often as it is used.
        time_limit: Seconds for the integer programme; then the smallest tree is given, ``optimal=False``.

    Returns:
        The proof.

    Raises:
        GoalNotDerivable: The goal has no proof.
        ValueError: There is no goal, or ``objective`` is unknown.

    Example:
        >>> shared = [("a", "b"), ("b", "c"), ("b", "d"), ("b", "e"), ("cde", "g")]
        >>> H = Hypergraph.from_edges(shared, axioms="a", goal="g")
        >>> shortest_proof(H).length, shortest_proof(H, objective="tree").length
        (5, 7)

    Source:
        arXiv 2510.25626; Knuth, IPL 6 (1977).
    """
    one_of("objective", objective, OBJECTIVES)
    goal = _checked(graph, goal)
    if goal in graph.given:
        return Proof((), (), 0)
    edges = graph.backwards(goal)
    if objective == "tree":
        return smallest_tree(graph, goal, edges)
    edges = _not_circular(graph, goal, edges)
    unique = _unique(graph, goal, edges)
    if unique is not None:
        return unique
    tree = smallest_tree(graph, goal, edges)
    edges = _not_circular(graph, goal, _short_enough(graph, goal, edges, len(tree.edges)))
    return _unique(graph, goal, edges) or _fewest_steps(graph, goal, edges, tree, time_limit)


def shortest_proofs(
    graph: Hypergraph, goal: int | None = None, *, cap: int = 64, time_limit: float = 5.0
) -> list[Proof]:
    """Return all shortest proofs by distinct steps, at most ``cap`` of them, the one of :func:`shortest_proof` first.

    Args:
        graph: A deduction hypergraph.
        goal: Number of a theorem; ``None`` for the graph's own goal.
        cap: How many at most.
        time_limit: Seconds for each integer programme.

    Returns:
        The proofs, distinct in their edges.

    Raises:
        GoalNotDerivable: The goal has no proof.
        ValueError: There is no goal, or ``cap`` will not do.

    Example:
        >>> H = Hypergraph.from_edges([("a", "g"), ("b", "g")], axioms="ab", goal="g")
        >>> len(shortest_proofs(H))
        2

    Source:
        arXiv 2510.25626: precision is measured against the optimal proof that is nearest to the trace.
    """
    cap = whole("cap", cap)
    first = shortest_proof(graph, goal, time_limit=time_limit)
    if first.method == "unique" or not first.optimal:
        return [first]
    goal = _checked(graph, goal)
    edges = _short_enough(graph, goal, graph.backwards(goal), first.length)
    return [first, *islice(_others(graph, goal, edges, first, time_limit), cap - 1)]


def smallest_tree(
    graph: Hypergraph, goal: int, edges: Sequence[int] | None = None, *, free: frozenset[int] = frozenset()
) -> Proof:
    """Return the proof with the smallest tree (Knuth): cost(head) = 1 + the sum of the premises' costs.

    Args:
        graph: A deduction hypergraph.
        goal: Number of a theorem.
        edges: Which edges may be used; ``None``: all.
        free: Theorems that cost nothing, as if they were axioms.

    Raises:
        GoalNotDerivable: There is none.
    """
    allowed = graph.backwards(goal) if edges is None else edges
    start = graph.given | free
    missing = {number: graph.needs[number] for number in allowed}
    best: dict[int, int] = {}
    cost: dict[int, int] = {}
    heap: list[tuple[int, int, int]] = [(0, node, -1) for node in sorted(start)]
    heapq.heapify(heap)
    while heap:
        spent, node, by = heapq.heappop(heap)
        if node in cost:
            continue
        cost[node] = spent
        if by >= 0:
            best[node] = by
        if node == goal:
            break
        for number in graph.uses.get(node, ()):
            if number in missing:
                missing[number] -= 1
                edge = graph.edges[number]
                if missing[number] == 0 and edge.head not in cost:
                    heapq.heappush(heap, (1 + sum(cost[end] for end in edge.tail), edge.head, number))
    if goal not in cost:
        raise GoalNotDerivable(f"goal: {graph.nodes[goal]} does not follow from the axioms")
    used = _ordered(graph, goal, best)
    return Proof(used, tuple(graph.edges[number].head for number in used), cost[goal], True, "tree")


def _checked(graph: Hypergraph, goal: int | None) -> int:
    goal = graph.goal if goal is None else goal
    if goal is None:
        raise ValueError("goal: expected the number of a theorem, for this hypergraph has no goal of its own")
    goal = whole("goal", goal, least=0)
    if goal >= len(graph.nodes):
        raise ValueError(f"goal: expected a number below {len(graph.nodes)}, got {goal}")
    if goal not in graph.derivable():
        raise GoalNotDerivable(f"goal: {graph.nodes[goal]} does not follow from the axioms")
    return goal


def _not_circular(graph: Hypergraph, goal: int, edges: list[int]) -> list[int]:
    """Leave out edges whose premises all need their conclusion first (a comparison read backwards).

    They are in no acyclic proof. It takes one pass over the graph for each theorem with several edges, which is too
    much on a large graph; what is left there is sorted out by the integer programme.
    """
    into: dict[int, list[int]] = {}
    for number in edges:
        into.setdefault(graph.edges[number].head, []).append(number)
    several = [head for head, numbers in into.items() if len(numbers) > 1]
    if len(several) * len(graph.edges) > _PASSES:
        return edges
    circular: set[int] = set()
    for head in several:
        without = graph.derivable(without=head)
        circular.update(n for n in into[head] if not without.issuperset(graph.edges[n].tail))
    return graph.backwards(goal, [number for number in edges if number not in circular]) if circular else edges


def _short_enough(graph: Hypergraph, goal: int, edges: list[int], length: int) -> list[int]:
    """Keep the edges that a proof of so many steps may have.

    One with an edge in it has at least the steps of the longest way to the edge's premises, the edge, and those of the
    shortest way from its conclusion to the goal.
    """
    allowed = set(edges)
    missing = {number: graph.needs[number] for number in edges}
    level = dict.fromkeys(graph.given, 0)
    layer = list(graph.given)
    while layer:
        after = []
        for number in chain.from_iterable(graph.uses.get(node, ()) for node in layer):
            if number in allowed:
                missing[number] -= 1
                edge = graph.edges[number]
                if missing[number] == 0 and edge.head not in level:
                    level[edge.head] = 1 + max(level[node] for node in edge.tail)
                    after.append(edge.head)
        layer = after
    to_goal, layer = {goal: 0}, [goal]
    while layer:
        after = []
        for number in chain.from_iterable(graph.incoming.get(node, ()) for node in layer):
            for node in graph.edges[number].tail if number in allowed else ():
                if node not in to_goal:
                    to_goal[node] = 1 + to_goal[graph.edges[number].head]
                    after.append(node)
        layer = after

    def least(number: int) -> int:
        edge = graph.edges[number]
        return max(level[node] for node in edge.tail) + 1 + to_goal[edge.head]

    return graph.backwards(goal, [n for n in edges if missing[n] == 0 and least(n) <= length])


def _unique(graph: Hypergraph, goal: int, edges: Sequence[int]) -> Proof | None:
    best: dict[int, int] = {}
    for number in edges:
        if best.setdefault(graph.edges[number].head, number) != number:
            return None
    used = _ordered(graph, goal, best)
    return Proof(used, tuple(graph.edges[number].head for number in used), len(used))


def _ordered(graph: Hypergraph, goal: int, best: Mapping[int, int]) -> tuple[int, ...]:
    """Return the edges behind the goal, premises first."""
    done: dict[int, None] = {}
    stack = [(goal, False)]
    while stack:
        node, expanded = stack.pop()
        number = best.get(node)
        if number is None or number in done:
            continue
        if expanded:
            done[number] = None
        else:
            stack.append((node, True))
            stack.extend((end, False) for end in reversed(graph.edges[number].tail))
    return tuple(done)


def _fewest_steps(graph: Hypergraph, goal: int, edges: Sequence[int], tree: Proof, time_limit: float) -> Proof:
    found = fewest_edges(graph, goal, edges, time_limit, []) if len(edges) <= _PROGRAMME else None
    if found is None:
        return Proof(tree.edges, tree.theorems, len(tree.edges), False, "tree")
    if len(found) == len(tree.edges):  # the smallest tree, which is deterministic, has as few
        return Proof(tree.edges, tree.theorems, len(tree.edges), True, "milp")
    return _as_proof(graph, goal, found)


def _as_proof(graph: Hypergraph, goal: int, used: Sequence[int]) -> Proof:
    ordered = _ordered(graph, goal, {graph.edges[number].head: number for number in used})
    return Proof(ordered, tuple(graph.edges[number].head for number in ordered), len(ordered), True, "milp")


def _others(graph: Hypergraph, goal: int, edges: Sequence[int], first: Proof, time_limit: float) -> Iterator[Proof]:
    """Solve again and again, each time without the proofs that were found before."""
    known = [frozenset(first.edges)]
    while True:
        found = fewest_edges(graph, goal, edges, time_limit, known)
        if found is None or len(found) > first.length:
            return
        known.append(frozenset(found))
        yield _as_proof(graph, goal, found)
