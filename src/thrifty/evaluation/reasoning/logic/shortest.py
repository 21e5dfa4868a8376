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
from itertools import islice

import numpy as np

from thrifty._common.checks import one_of, whole
from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable
from thrifty.evaluation.reasoning.logic.hypergraph import Hypergraph

OBJECTIVES = ("dag", "tree")


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
    goal, edges = _behind(graph, goal)
    if goal in graph.given:
        return Proof((), (), 0)
    unique = _unique(graph, goal, edges)
    if unique is not None and objective == "dag":
        return unique
    tree = smallest_tree(graph, goal, edges)
    if objective == "tree":
        return tree
    return _fewest_steps(graph, goal, edges, tree, time_limit)


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
    goal, edges = _behind(graph, goal)
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
    missing = {number: len(set(graph.edges[number].tail)) for number in allowed}
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


def _behind(graph: Hypergraph, goal: int | None) -> tuple[int, list[int]]:
    """Return the goal, and the edges behind it whose premises can be had without their own conclusion."""
    goal = graph.goal if goal is None else goal
    if goal is None:
        raise ValueError("goal: expected the number of a theorem, for this hypergraph has no goal of its own")
    goal = whole("goal", goal, least=0)
    if goal >= len(graph.nodes):
        raise ValueError(f"goal: expected a number below {len(graph.nodes)}, got {goal}")
    if goal not in graph.derivable():
        raise GoalNotDerivable(f"goal: {graph.nodes[goal]} does not follow from the axioms")
    edges = graph.backwards(goal)
    into: dict[int, list[int]] = {}
    for number in edges:
        into.setdefault(graph.edges[number].head, []).append(number)
    # An edge whose premises all need its conclusion first (a comparison read backwards) is in no acyclic proof. One
    # pass for each theorem with several edges costs too much on a large graph, where the programme sorts it out.
    several = [head for head, numbers in into.items() if len(numbers) > 1]
    if len(several) * len(graph.edges) <= 2_000_000:
        circular: set[int] = set()
        for head in several:
            without = graph.derivable(without=head)
            circular.update(n for n in into[head] if not without.issuperset(graph.edges[n].tail))
        if circular:
            edges = graph.backwards(goal, [number for number in edges if number not in circular])
    return goal, edges


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
    found = _solve(graph, goal, edges, time_limit, [])
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
        found = _solve(graph, goal, edges, time_limit, known)
        if found is None or len(found) > first.length:
            return
        known.append(frozenset(found))
        yield _as_proof(graph, goal, found)


def _solve(
    graph: Hypergraph, goal: int, edges: Sequence[int], time_limit: float, excluded: Sequence[frozenset[int]]
) -> list[int] | None:
    """Solve the integer programme over x (edges), y (theorems) and π (their order); ``None``: not to optimality.

    min Σ x_e with y_goal = 1; Σ_{e into v} x_e ≥ y_v; y_u ≥ x_e for each premise u of e that is no axiom; and
    π_head ≥ π_u + 1 − (n + 1)(1 − x_e), which forbids circles. An excluded proof's edges may not all be used.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    heads = list(dict.fromkeys(graph.edges[number].head for number in edges))
    place = {node: at for at, node in enumerate(heads)}
    m, n = len(edges), len(heads)
    cells: list[tuple[int, int, float]] = []
    low: list[float] = []

    def row(bound: float, *terms: tuple[int, float]) -> None:
        cells.extend((len(low), column, value) for column, value in terms)
        low.append(bound)

    into: dict[int, list[int]] = {}
    for column, number in enumerate(edges):
        into.setdefault(graph.edges[number].head, []).append(column)
    for head, columns in into.items():
        row(0, *((column, 1.0) for column in columns), (m + place[head], -1.0))
    for column, number in enumerate(edges):
        edge = graph.edges[number]
        for end in dict.fromkeys(edge.tail):
            if end in place and end not in graph.given:
                row(0, (m + place[end], 1.0), (column, -1.0))
                ordered = ((m + n + place[edge.head], 1.0), (m + n + place[end], -1.0), (column, -(n + 1.0)))
                row(-float(n), *ordered)
    column_of = {number: column for column, number in enumerate(edges)}
    for proof in excluded:
        row(1 - len(proof), *((column_of[number], -1.0) for number in proof))
    rows, columns_, values = zip(*cells, strict=True)
    matrix = coo_array((values, (rows, columns_)), shape=(len(low), m + 2 * n)).tocsr()
    lower, upper = np.zeros(m + 2 * n), np.concatenate([np.ones(m + n), np.full(n, float(n))])
    lower[m + place[goal]] = 1
    result = milp(
        np.concatenate([np.ones(m), np.zeros(2 * n)]),
        integrality=np.concatenate([np.ones(m + n), np.zeros(n)]),
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, np.array(low), np.inf),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if result.status != 0 or result.x is None:
        return None
    return [number for number, share in zip(edges, result.x[:m], strict=True) if share > 0.5]
