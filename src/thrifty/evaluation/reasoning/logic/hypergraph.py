"""The deduction hypergraph: theorems, and the rule instances that lead from premises to a conclusion.

A proof is a sub-hypergraph; its length is its number of distinct edges, which is that of its distinct non-axioms.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple


class Edge(NamedTuple):
    """A rule instance, by theorem numbers: the premises (in the rule's order), the conclusion, and the rule."""

    tail: tuple[int, ...]
    head: int
    rule: str


@dataclass(frozen=True)
class Hypergraph:
    """All theorems that follow, with every way in which each does.

    Args:
        nodes: The theorems, axioms among them, in the order in which they were found.
        axioms: Numbers of those that are given, in text order.
        edges: Every rule instance whose premises hold and whose conclusion is no axiom.
        goal: Number of the goal, where there is one.

    Example:
        >>> H = Hypergraph.from_edges([("a", "b"), ("ab", "c")], axioms="a", goal="c")
        >>> [H.nodes[edge.head] for edge in H.edges]
        ['b', 'c']
    """

    nodes: tuple[Any, ...]
    axioms: tuple[int, ...]
    edges: tuple[Edge, ...]
    goal: int | None = None

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Iterable[Hashable], Hashable]],
        axioms: Iterable[Hashable],
        goal: Hashable = None,
    ) -> Hypergraph:
        """Make one of pairs (premises, conclusion) of any names; duplicates and edges into axioms are dropped.

        Raises:
            ValueError: The goal stands in no edge and is no axiom.
        """
        number: dict[Hashable, int] = {}
        given = tuple(number.setdefault(name, len(number)) for name in axioms)
        found: dict[tuple[frozenset[int], int], Edge] = {}
        for tail, head in edges:
            ends = tuple(number.setdefault(name, len(number)) for name in tail)
            to = number.setdefault(head, len(number))
            if to not in given and to not in ends:
                found.setdefault((frozenset(ends), to), Edge(ends, to, ""))
        if goal is not None and goal not in number:
            raise ValueError(f"goal: expected a name that stands in an edge or axiom, got {goal!r}")
        return cls(tuple(number), given, tuple(found.values()), None if goal is None else number[goal])

    @cached_property
    def incoming(self) -> Mapping[int, tuple[int, ...]]:
        """For each conclusion, the numbers of the edges into it."""
        into: dict[int, list[int]] = {}
        for number, edge in enumerate(self.edges):
            into.setdefault(edge.head, []).append(number)
        return {head: tuple(edges) for head, edges in into.items()}

    @cached_property
    def uses(self) -> Mapping[int, tuple[int, ...]]:
        """For each theorem, the numbers of the edges that have it as a premise."""
        out: dict[int, list[int]] = {}
        for number, edge in enumerate(self.edges):
            for node in dict.fromkeys(edge.tail):
                out.setdefault(node, []).append(number)
        return {node: tuple(edges) for node, edges in out.items()}

    @cached_property
    def needs(self) -> tuple[int, ...]:
        """For each edge, how many theorems it needs."""
        return tuple([len(set(edge.tail)) for edge in self.edges])

    @cached_property
    def given(self) -> frozenset[int]:
        """The axioms, as a set."""
        return frozenset(self.axioms)

    @cached_property
    def number(self) -> Mapping[Any, int]:
        """The number of each theorem."""
        return {node: number for number, node in enumerate(self.nodes)}

    @property
    def theorems(self) -> tuple[int, ...]:
        """What is derived: every theorem that is no axiom."""
        return tuple(number for number in range(len(self.nodes)) if number not in self.given)

    def derivable(self, *, without: int | None = None, start: Iterable[int] | None = None) -> set[int]:
        """Return what follows from the axioms (or from ``start``), never passing through ``without``."""
        have = {node for node in (self.axioms if start is None else start) if node != without}
        missing = list(self.needs)
        agenda = list(have)
        while agenda:
            for number in self.uses.get(agenda.pop(), ()):
                missing[number] -= 1
                head = self.edges[number].head
                if missing[number] == 0 and head not in have and head != without:
                    have.add(head)
                    agenda.append(head)
        return have

    def backwards(self, goal: int, edges: Sequence[int] | None = None) -> list[int]:
        """Return the numbers of the edges from which the goal can be reached, in their own order."""
        allowed = None if edges is None else set(edges)
        seen, agenda, kept = {goal}, [goal], set()
        while agenda:
            for number in self.incoming.get(agenda.pop(), ()):
                if allowed is None or number in allowed:
                    kept.add(number)
                    for node in self.edges[number].tail:
                        if node not in seen:
                            seen.add(node)
                            agenda.append(node)
        return sorted(kept)
