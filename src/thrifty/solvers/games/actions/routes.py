"""Routes from a source to a target in an acyclic network."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.extras import require
from thrifty.solvers.games.actions.base import Ints
from thrifty.solvers.games.actions.walks import WalkSet, graph_of


def digraph_of(digraph: Any) -> Any:
    """Return a networkx MultiDiGraph of a directed graph, or of a list of (tail, head) pairs."""
    nx = require("networkx", extra="games")
    if hasattr(digraph, "edges") and not digraph.is_directed():
        raise TypeError("digraph: expected a directed graph, got an undirected one")
    made = nx.MultiDiGraph()
    for tail, head, *rest in digraph.edges(data=True) if hasattr(digraph, "edges") else digraph:
        if tail == head:
            warnings.warn(f"digraph: the loop at {tail!r} is left out; no route uses it", stacklevel=3)
        else:
            made.add_edge(tail, head, **(rest[0] if rest else {}))
    return made


def oriented_to(digraph: Any, target: Hashable, weight: str = "weight") -> Any:
    """Return the graph of the edges that bring one nearer to a target, which is acyclic.

    Args:
        digraph: A directed networkx graph.
        target: The node that routes lead to.
        weight: The edge attribute that is summed up along routes.

    Returns:
        A networkx MultiDiGraph. Routes that ever lead away from the target are not in it.

    Raises:
        ValueError: The target is not in the graph.

    Example:
        >>> import networkx as nx
        >>> sorted(oriented_to(nx.DiGraph([(0, 1), (1, 0), (1, 2), (0, 2)]), 2).edges())
        [(0, 2), (1, 2)]

    Source:
        Dijkstra's distances.
    """
    nx = require("networkx", extra="games")
    graph = digraph_of(digraph)
    if target not in graph:
        raise ValueError(f"target: expected a node of the graph, got {target!r}")
    far = nx.single_source_dijkstra_path_length(graph.reverse(copy=False), target, weight=weight)
    made = nx.MultiDiGraph()
    made.add_edges_from(
        (a, b, data) for a, b, data in graph.edges(data=True) if a in far and b in far and far[b] < far[a]
    )
    return made


class DagPathSet(WalkSet):
    """Routes from a source to a target; coordinates are the edges on some route, in the order of ``edges``.

    Args:
        digraph: An acyclic directed networkx graph, or (tail, head) pairs; parallel edges are different.
        source: Where routes begin.
        target: Where they end.

    Raises:
        ValueError: There is a cycle (it is named), or no route, or source and target are one.

    Example:
        >>> routes = DagPathSet([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)], 0, 3)
        >>> round(2.718281828 ** routes.log_size), routes.rank
        (4, 4)

    Source:
        Takimoto and Warmuth (2003); the paper's section on network congestion.
    """

    def __init__(self, digraph: Any, source: Hashable, target: Hashable) -> None:
        nx = require("networkx", extra="games")
        graph = digraph_of(digraph)
        for name, node in (("source", source), ("target", target)):
            if node not in graph:
                raise ValueError(f"{name}: expected a node of the graph, got {node!r}")
        if source == target:
            raise ValueError(f"target: expected another node than the source, got {target!r}")
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [edge[0] for edge in nx.find_cycle(graph)]
            raise ValueError(
                f"digraph: expected no cycle, got {' -> '.join(map(str, [*cycle, cycle[0]]))}; oriented_to(graph, "
                "target) keeps the edges that lead nearer to the target"
            )
        useful = (nx.descendants(graph, source) | {source}) & (nx.ancestors(graph, target) | {target})
        if source not in useful:
            raise ValueError(f"target: expected a node that can be reached from {source!r}, got {target!r}")
        order = {node: i for i, node in enumerate(n for n in nx.topological_sort(graph) if n in useful)}
        kept = [(i, a, b) for i, (a, b) in enumerate(graph.edges()) if a in useful and b in useful]
        self.source, self.target = source, target
        #: Coordinates as (tail, head).
        self.edges = [(a, b) for _, a, b in kept]
        #: Coordinates as indices among the edges of the graph that was given, loops left out.
        self.where = np.array([i for i, _, _ in kept])
        numbered = np.array([(order[a], order[b], j, 0) for j, (a, b) in enumerate(self.edges)], np.int64)
        self._tails, self._count = numbered[:, 0], len(order)
        walks = graph_of(len(order), numbered)
        assert walks is not None
        super().__init__(walks, len(self.edges))

    def _spanning(self) -> Ints | None:
        dropped = {int(np.flatnonzero(self._tails == u)[0]) for u in range(1, self._count - 1)}
        return np.array([j for j in range(self.d) if j not in dropped])

    def describe(self, taken: ArrayLike) -> str:
        """Return a route as the nodes that it passes."""
        steps = dict(self.edges[int(j)] for j in np.asarray(taken))
        nodes = [self.source]
        while nodes[-1] != self.target:
            nodes.append(steps[nodes[-1]])
        return " -> ".join(map(str, nodes))

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""
        return {"edges": [list(edge) for edge in self.edges], "source": self.source, "target": self.target}
