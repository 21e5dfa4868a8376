"""Sets whose actions are the paths of an acyclic graph with coordinates on its edges: the base of all but trees."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.games import chains
from thrifty.solvers.games.actions.base import ActionSet, Floats, Ints, Law


class Graph(NamedTuple):
    """The edges in the order of their tails, as compiled code reads them.

    ``letters`` is empty unless the linear domain may be tried; ``slot`` is then each edge's place in it.
    """

    first: Ints
    head: Ints
    label: Ints
    slot: Ints
    letters: Ints
    total: int


def graph_of(nodes: int, edges: NDArray[np.int64], letters: Ints | None = None, total: int = 0) -> Graph | None:
    """Return the graph of the edges (tail, head, label, slot) on some path from node 0 to the last; None: no path.

    Nodes are numbered in topological order.
    """
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    ahead, back = np.zeros(nodes, bool), np.zeros(nodes, bool)
    ahead[0], back[nodes - 1] = True, True
    for tail, head in edges[:, :2]:
        ahead[head] |= ahead[tail]
    for tail, head in edges[::-1, :2]:
        back[tail] |= back[head]
    used = ahead & back
    if not used[0]:
        return None
    number = np.cumsum(used) - 1
    kept = edges[used[edges[:, 0]] & used[edges[:, 1]]]
    first = np.searchsorted(number[kept[:, 0]], np.arange(used.sum() + 1))
    columns = (np.ascontiguousarray(kept[:, i]) for i in (2, 3))
    label, slot = columns
    empty = np.zeros((0, 0), np.int64)
    return Graph(
        first.astype(np.int64), number[kept[:, 1]].astype(np.int64), label, slot,
        empty if letters is None else letters, total,
    )  # fmt: skip


class WalkLaw(Law):
    """The law of a set of paths, as the chain's probabilities."""

    def __init__(self, actions: WalkSet, theta: Floats) -> None:
        graph = actions.graph
        self._set, self._graph = actions, graph
        self._step = np.empty(graph.head.size)
        self._weight = np.empty(graph.letters.size)
        self.log_partition, self.linear = chains.chain(*graph, theta, self._step, self._weight)

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        reach, x = np.empty(self._graph.first.size - 1), np.empty(self._set.d)
        chains.first_moment(self._graph.first, self._graph.head, self._graph.label, self._step, reach, x)
        return reach, x

    @property
    def marginals(self) -> Floats:
        """The probability of each coordinate."""
        return self._moments[1]

    @cached_property
    def second_moment(self) -> Floats:
        """The probability of each pair of coordinates."""
        graph, sigma = self._graph, np.empty((self._set.d, self._set.d))
        if self.linear:
            chains.allocation_second_moment(graph.letters, self._weight, graph.total, sigma)
        else:
            reach = self._moments[0]
            chains.second_moment(graph.first, graph.head, graph.label, self._step, reach, sigma)
        return sigma

    def draw(self, rng: np.random.Generator) -> Ints:
        """Return the coordinates of a path."""
        graph, taken = self._graph, np.empty(self._set.steps, np.int64)
        count = chains.walk(graph.first, graph.head, graph.label, self._step, rng.random(self._set.steps), taken)
        return taken[:count]


class WalkSet(ActionSet):
    """The paths of a graph."""

    def __init__(self, graph: Graph, d: int) -> None:
        self.graph, self.d = graph, d
        nodes = graph.first.size - 1
        longest, ones = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        for u in range(nodes - 2, -1, -1):
            out = slice(graph.first[u], graph.first[u + 1])
            longest[u] = 1 + longest[graph.head[out]].max()
            ones[u] = ((graph.label[out] >= 0) + ones[graph.head[out]]).max()
        self.steps, self.m = int(longest[0]), int(ones[0])
        self.log_size = float(WalkLaw(self, np.zeros(d)).log_partition)

    def _law(self, theta: Floats) -> Law:
        return WalkLaw(self, theta)

    def _cheapest(self, loss: Floats) -> tuple[Ints, float]:
        taken = np.empty(self.steps, np.int64)
        value, count = chains.cheapest(self.graph.first, self.graph.head, self.graph.label, loss, taken)
        return taken[:count], value

    def _rows(self, count: int) -> NDArray[np.int32]:
        rows = np.full((count, self.m), -1, np.int32)
        chains.list_walks(self.graph.first, self.graph.head, self.graph.label, rows)
        return rows
