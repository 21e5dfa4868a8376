"""Forward chaining with provenance: everything that follows from a program, and every way in which it does.

Semi-naïve: a theorem is looked at once, when it becomes known, and fires the rule instances whose last missing premise
it was. Edges into axioms prove nothing and are left out, but their values are compared.
"""

from __future__ import annotations

from collections import deque
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
    graph = _propagate(program, [*instances(program.axioms, program.goal, pairwise=pairwise), *fired], limit)
    if program.goal is None:
        return graph
    known = {node.key: number for number, node in enumerate(graph.nodes)}
    if program.goal.key not in known:
        raise GoalNotDerivable(f"goal: {spell(program.goal.key)} does not follow from the axioms")
    number = known[program.goal.key]
    if program.goal.value not in (None, graph.nodes[number].value):
        raise GoalNotDerivable(f"goal: {program.goal} was to be proven, and {graph.nodes[number]} follows")
    return Hypergraph(graph.nodes, graph.axioms, graph.edges, number)


def _propagate(program: Program, rules: list[Instance], limit: int) -> Hypergraph:
    uses: dict[Key, list[int]] = {}
    missing = []
    for number, rule in enumerate(rules):
        needs = set(rule.tail)
        missing.append(len(needs))
        for key in needs:
            uses.setdefault(key, []).append(number)
    number_of: dict[Key, int] = {}
    nodes: list[Theorem] = []
    edges: list[Edge] = []

    def learn(theorem: Theorem, agenda: deque[Key], tail: tuple[int, ...]) -> int:
        at = number_of.get(theorem.key)
        if at is None:
            if len(nodes) >= limit:
                raise InconsistentProgram(
                    f"program: more than {limit} theorems follow; it is inconsistent or unbounded"
                )
            at = number_of[theorem.key] = len(nodes)
            nodes.append(theorem)
            agenda.append(theorem.key)
        elif nodes[at].value != theorem.value:
            first = next(
                (_told(nodes, edge.tail, nodes[at]) for edge in edges if edge.head == at), f"axiom: {nodes[at]}"
            )
            why = _told(nodes, tail, theorem)
            raise InconsistentProgram(f"program: two values for one theorem: {first}, but {why}", first, why)
        return at

    agenda: deque[Key] = deque()
    for axiom in program.axioms:
        learn(axiom, agenda, ())
    axioms = tuple(range(len(nodes)))
    while agenda:
        for number in uses.get(agenda.popleft(), ()):
            missing[number] -= 1
            if missing[number]:
                continue
            rule = rules[number]
            tail = tuple(number_of[key] for key in rule.tail)
            value = rule.compute(*(nodes[node].value for node in tail))
            if value is None:
                continue
            head = learn(Theorem(rule.head, value), agenda, tail)
            if head >= len(axioms):
                edges.append(Edge(tail, head, rule.rule))
    return Hypergraph(tuple(nodes), axioms, tuple(edges))


def _told(nodes: list[Theorem], tail: tuple[int, ...], found: Theorem) -> str:
    return f"{' and '.join(str(nodes[node]) for node in tail)} give {found}" if tail else f"axiom: {found}"
