"""Spanning trees of a connected multigraph."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.extras import require
from thrifty.solvers.games import networks
from thrifty.solvers.games.actions.base import ActionSet, Floats, Ints, Law

#: Beyond this range of log weights resistances come from the log domain: plain ones would keep fewer than ten digits.
PLAIN_RANGE = 27.0


class TreeLaw(Law):
    """The law of a set of spanning trees: electric resistances."""

    def __init__(self, actions: SpanningTreeSet, theta: Floats) -> None:
        self._set, self._theta = actions, theta
        top, low = theta.max(), theta.min()
        self.plain = bool(top - low <= PLAIN_RANGE)
        self._weight = np.exp(theta - top)
        nodes = actions.nodes
        if self.plain:
            self._place = np.empty((nodes, nodes))
            shift = float(top) * (nodes - 1)
            self.log_partition = shift + networks.embed(nodes, actions.tail, actions.head, self._weight, self._place)
        else:
            self._wide = np.empty(actions.d)
            self.log_partition = networks.wide_marginals(nodes, actions.tail, actions.head, theta, self._wide)

    @cached_property
    def marginals(self) -> Floats:
        """The probability of each edge."""
        if not self.plain:
            return self._wide
        x = np.empty(self._set.d)
        networks.tree_marginals(self._set.tail, self._set.head, self._weight, self._place, x)
        return x

    @cached_property
    def second_moment(self) -> Floats:
        """The probability of each pair of edges."""
        actions, sigma = self._set, np.empty((self._set.d, self._set.d))
        if self.plain:
            networks.tree_second_moment(actions.tail, actions.head, self._weight, self._place, self.marginals, sigma)
        else:
            networks.wide_second_moment(actions.nodes, actions.tail, actions.head, self._theta, self._wide, sigma)
        return sigma

    def draw(self, rng: np.random.Generator) -> Ints:
        """Return the edges of a tree, by Wilson's walks; by contraction where those would take too long."""
        actions, taken = self._set, np.empty(self._set.m, np.int64)
        limit = 10 * actions.nodes**2 if self.plain else 0  # about what contraction costs
        if not networks.wilson(*actions.neighbours, self._weight, limit, rng, taken):
            return self.draw_by_contraction(rng)
        return np.sort(taken)

    def draw_by_contraction(self, rng: np.random.Generator) -> Ints:
        """Return the edges of a tree, one edge decided after the other (the paper's sampler)."""
        actions, taken = self._set, np.empty(self._set.m, np.int64)
        networks.contract_and_delete(
            actions.nodes, actions.tail, actions.head, self._theta, rng.random(actions.d), taken
        )
        return np.sort(taken)


class SpanningTreeSet(ActionSet):
    """Spanning trees; coordinates are the edges, in the order of ``edges``.

    Args:
        graph: A connected networkx graph, or pairs of nodes; parallel edges are different, loops are left out.

    Raises:
        ValueError: It is not connected, or has fewer than two nodes.
        TypeError: It is directed.

    Example:
        >>> import networkx as nx
        >>> trees = SpanningTreeSet(nx.petersen_graph())
        >>> round(2.718281828 ** trees.log_size), trees.rank
        (2000, 15)

    Source:
        the paper's section on spanning trees; :mod:`thrifty.solvers.games.networks` for what differs.
    """

    def __init__(self, graph: Any) -> None:
        nx = require("networkx", extra="games")
        if hasattr(graph, "edges"):
            if graph.is_directed():
                raise TypeError("graph: expected an undirected graph, got a directed one")
            pairs, nodes = [edge[:2] for edge in graph.edges()], list(graph.nodes())
        else:
            pairs = [tuple(pair)[:2] for pair in graph]
            nodes = list(dict.fromkeys(node for pair in pairs for node in pair))
        loops = [pair for pair in pairs if pair[0] == pair[1]]
        if loops:
            warnings.warn(f"graph: the loop at {loops[0][0]!r} is left out; no tree has it", stacklevel=2)
        #: Coordinates as pairs of nodes.
        self.edges = [pair for pair in pairs if pair[0] != pair[1]]
        self._graph = nx.MultiGraph(self.edges)
        self._graph.add_nodes_from(nodes)
        if len(nodes) < 2 or not nx.is_connected(self._graph):
            parts = nx.number_connected_components(self._graph) if nodes else 0
            raise ValueError(f"graph: expected at least two nodes, connected, got {len(nodes)} in {parts} parts")
        index = {node: i for i, node in enumerate(nodes)}
        self.nodes = len(nodes)
        self.tail = np.array([index[a] for a, _ in self.edges])
        self.head = np.array([index[b] for _, b in self.edges])
        self.d, self.m = len(self.edges), self.nodes - 1
        ends = np.concatenate([self.tail, self.head])
        order = np.argsort(ends, kind="stable")
        self.neighbours = (
            np.searchsorted(ends[order], np.arange(self.nodes + 1)).astype(np.int64),
            np.concatenate([self.head, self.tail])[order],
            np.concatenate([np.arange(self.d)] * 2)[order],
        )
        self.log_size = TreeLaw(self, np.zeros(self.d)).log_partition

    def _law(self, theta: Floats) -> Law:
        return TreeLaw(self, theta)

    def _cheapest(self, loss: Floats) -> tuple[Ints, float]:
        taken = np.empty(self.m, np.int64)
        value = networks.kruskal(self.nodes, self.tail, self.head, loss, taken)
        return np.sort(taken), value

    def _rows(self, count: int) -> NDArray[np.int32]:
        rows = np.full((count, self.m), -1, np.int32)
        networks.list_trees(self.nodes, self.tail, self.head, rows)
        return rows

    def _spanning(self) -> Ints | None:
        nx = require("networkx", extra="games")
        plain = nx.Graph(self._graph)
        block = {frozenset(pair): i for i, pairs in enumerate(nx.biconnected_component_edges(plain)) for pair in pairs}
        of = np.array([block[frozenset(pair)] for pair in self.edges])
        dropped = {int(np.flatnonzero(of == i)[0]) for i in range(1, of.max() + 1)}
        return np.array([j for j in range(self.d) if j not in dropped])

    def describe(self, taken: ArrayLike) -> str:
        """Return a tree as its edges."""
        return " ".join(f"{self.edges[int(j)][0]}-{self.edges[int(j)][1]}" for j in np.asarray(taken))

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""
        return {"edges": [list(edge) for edge in self.edges]}
