"""Congestion: what an edge costs depends on how many use it. Routes and spanning trees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import whole
from thrifty.solvers.games.actions import ActionSet, DagPathSet, SpanningTreeSet, oriented_to
from thrifty.solvers.games.actions.base import Floats, Ints
from thrifty.solvers.games.actions.routes import digraph_of

#: From an edge's attributes and its load to a cost of at least 0.
Cost = Callable[[Mapping[str, Any], int], float]


def linear_cost(attributes: Mapping[str, Any], load: int) -> float:
    """Return weight times load; the weight is 1 where an edge has none."""
    return float(attributes.get("weight", 1.0)) * load


class _Congestion:
    """Players on edges that they share."""

    def __init__(self, sets: list[ActionSet], where: list[Ints], attributes: list[Any], cost: Cost) -> None:
        self.sets, self._where = sets, where
        players = len(sets)
        table = np.array([[cost(held, load) for load in range(1, players + 1)] for held in attributes], float)
        if not np.isfinite(table).all() or (table < 0).any() or not table.any():
            raise ValueError("cost: expected finite costs of at least 0, and one above 0")
        #: What one unit of loss is.
        self.scale = float(table.max())
        self._table: Floats = table / self.scale

    @property
    def loss_bound(self) -> float:
        """The most that a player can lose in a round."""
        return float(max(actions.m for actions in self.sets))

    #: Costs of congestion do not sum to a constant.
    zero_sum = False

    def loss_vectors(self, joint: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's loss vector, from the coordinates that all played: what an edge costs with oneself."""
        load = np.zeros(len(self._table), np.int64)
        for where, taken in zip(self._where, joint, strict=True):
            load[where[np.asarray(taken, np.int64)]] += 1
        losses = []
        for where, taken in zip(self._where, joint, strict=True):
            others = load[where]
            others[np.asarray(taken, np.int64)] -= 1
            losses.append(self._table[where, others])
        return losses


class NetworkCongestion(_Congestion):
    """Routes through a network whose edges cost more the more players use them.

    Args:
        digraph: A directed networkx graph.
        od_pairs: Origin and destination of each player.
        cost: From an edge's attributes and its load to a cost.
        orient: Keep for each player the edges that lead nearer to the destination, by the attribute ``weight``; without
            it the graph must be acyclic.

    Raises:
        ValueError: There is a cycle, or no route for a player, or costs are out of range.

    Example:
        >>> import networkx as nx
        >>> game = NetworkCongestion(nx.DiGraph([(0, 1), (1, 2), (0, 2)]), [(0, 2), (0, 2)])
        >>> [actions.m for actions in game.sets]
        [2, 2]

    Source:
        Rosenthal (1973); the paper's section on network congestion.
    """

    def __init__(
        self,
        digraph: Any,
        od_pairs: Sequence[tuple[Hashable, Hashable]],
        cost: Cost = linear_cost,
        orient: bool = False,
    ) -> None:
        graph = digraph_of(digraph)
        index: dict[Any, list[int]] = {}
        for i, (a, b) in enumerate(graph.edges()):
            index.setdefault((a, b), []).append(i)
        sets: list[ActionSet] = []
        where: list[Ints] = []
        for source, target in od_pairs:
            routes = DagPathSet(oriented_to(graph, target) if orient else graph, source, target)
            parallel = {edge: iter(places) for edge, places in index.items()}
            sets.append(routes)
            where.append(np.array([next(parallel[edge]) for edge in routes.edges]))
        super().__init__(sets, where, [data for _, _, data in graph.edges(data=True)], cost)


class SpanningTreeCongestion(_Congestion):
    """Players who each build a spanning tree, on edges that cost more the more of them use them.

    Args:
        graph: A connected networkx graph.
        n_players: How many there are.
        cost: From an edge's attributes and its load to a cost.

    Raises:
        ValueError: The graph is not connected, or costs are out of range.

    Example:
        >>> import networkx as nx
        >>> SpanningTreeCongestion(nx.cycle_graph(4), 3).sets[0].m
        3

    Source:
        the paper's section on spanning trees.
    """

    def __init__(self, graph: Any, n_players: int, cost: Cost = linear_cost) -> None:
        trees = SpanningTreeSet(graph)
        players = whole("n_players", n_players)
        held = [data for a, b, data in graph.edges(data=True) if a != b]
        super().__init__([trees] * players, [np.arange(trees.d)] * players, held, cost)
