"""Forward chaining with provenance: everything that follows from a program, and every way in which it does.

Semi-naïve: a theorem is looked at once, when it becomes known, and fires the rule instances whose last missing premise
it was. Edges into axioms prove nothing and are left out, but their values are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from thrifty._common.checks import one_of, whole
from thrifty.evaluation.reasoning.logic.arithmetic import PAIRWISE, Instance, instances
from thrifty.evaluation.reasoning.logic.datalog import ground
from thrifty.evaluation.reasoning.logic.errors import GoalNotDerivable, InconsistentProgram
from thrifty.evaluation.reasoning.logic.hypergraph import Edge, Hypergraph
from thrifty.evaluation.reasoning.logic.theorems import Key, Theorem, spell

if TYPE_CHECKING:
    from thrifty.evaluation.reasoning.logic.program import Program

#: Theorems that a closure may have before it is called unbounded.
LIMIT = 5000


def execute(program: Program, *, pairwise: str = "named", limit: int = LIMIT) -> Hypergraph:
    """Derive everything that follows from a program, and record every derivation.

    Args:
        program: Axioms, rules and goal.
        pairwise: Which containers are compared: ``"named"`` (those that a statement or the query names) or ``"all"``
            pairs of one entity.
        limit: Theorems at most.

    Returns:
        The deduction hypergraph; its goal is ``None`` where the program has none.

    Raises:
        InconsistentProgram: Two derivations give a theorem two values, or there are more than ``limit`` theorems.
        GoalNotDerivable: The goal does not follow, or with another value.
        ValueError: ``pairwise`` or ``limit`` will not do.

    Example:
        >>> from thrifty.evaluation.reasoning import Program
        >>> program = Program.from_text("cont(Mina, fig, 0) = 16. comp(Mina, Ode, fig) = 5. goal cont(Ode, fig, 0) = ?")
        >>> H = execute(program)
        >>> print(H.nodes[H.goal])
        cont(Ode, fig, 0) = 11

    Source:
        arXiv 2510.25626; semi-naïve evaluation: Abiteboul, Hull, Vianu, "Foundations of Databases", chapter 13.
    """
    one_of("pairwise", pairwise, PAIRWISE)
    limit = whole("limit", limit)
    fired = ground(program.axioms, program.rules, limit=limit) if program.rules else []
    graph = _propagate(program, chain(instances(program.axioms, program.goal, pairwise=pairwise), fired), limit)
    if program.goal is None:
        return graph
    number = next((n for n, node in enumerate(graph.nodes) if node.key == program.goal.key), None)
    if number is None:
        raise GoalNotDerivable(f"goal: {spell(program.goal.key)} does not follow from the axioms")
    if program.goal.value not in (None, graph.nodes[number].value):
        raise GoalNotDerivable(f"goal: {program.goal} was to be proven, and {graph.nodes[number]} follows")
    return Hypergraph(graph.nodes, graph.axioms, graph.edges, number)


def _propagate(program: Program, rules: Iterable[Instance], limit: int) -> Hypergraph:
    symbol: dict[Key, int] = {}  # keys are nested: each is hashed once, and a number from then on
    bodies: list[tuple[int, ...]] = []
    heads: list[int] = []
    kept: list[Instance] = []
    seen: set[tuple[frozenset[int], int, str]] = set()
    for rule in rules:
        body = tuple([symbol.setdefault(key, len(symbol)) for key in rule.tail])
        head = symbol.setdefault(rule.head, len(symbol))
        same = (frozenset(body), head, rule.rule)
        if same not in seen:
            seen.add(same)
            kept.append(rule)
            bodies.append(body)
            heads.append(head)
    given = [symbol.setdefault(axiom.key, len(symbol)) for axiom in program.axioms]
    uses: list[list[int]] = [[] for _ in symbol]
    missing = []
    for number, body in enumerate(bodies):
        needs = set(body)
        missing.append(len(needs))
        for each in needs:
            uses[each].append(number)

    node_of = [-1] * len(symbol)
    nodes: list[Theorem] = []
    values: list[int] = []
    edges: list[Edge] = []
    agenda: deque[int] = deque()

    def learn(at: int, theorem: Theorem, tail: tuple[int, ...]) -> None:
        known = node_of[at]
        if known < 0:
            if len(nodes) >= limit:
                raise InconsistentProgram(
                    f"program: more than {limit} theorems follow; it is inconsistent or unbounded"
                )
            node_of[at] = len(nodes)
            nodes.append(theorem)
            values.append(theorem.value)  # type: ignore[arg-type]
            agenda.append(at)
        elif values[known] != theorem.value:
            before = next((edge.tail for edge in edges if edge.head == known), ())
            first, why = _told(nodes, before, nodes[known]), _told(nodes, tail, theorem)
            raise InconsistentProgram(f"program: two values for one theorem: {first}, but {why}", first, why)

    for at, axiom in zip(given, program.axioms, strict=True):
        learn(at, axiom, ())
    axioms = len(nodes)
    while agenda:
        for number in uses[agenda.popleft()]:
            missing[number] -= 1
            if missing[number]:
                continue
            tail = tuple([node_of[each] for each in bodies[number]])
            rule = kept[number]
            value = rule.compute(*[values[node] for node in tail])
            if value is None:
                continue
            learn(heads[number], Theorem(rule.head, value), tail)
            head = node_of[heads[number]]
            if head >= axioms:
                edges.append(Edge(tail, head, rule.rule))
    return Hypergraph(tuple(nodes), tuple(range(axioms)), tuple(edges))


def _told(nodes: list[Theorem], tail: tuple[int, ...], found: Theorem) -> str:
    return f"{' and '.join(str(nodes[node]) for node in tail)} give {found}" if tail else f"axiom: {found}"
