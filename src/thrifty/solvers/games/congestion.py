"""Congestion: what an edge costs depends on how many use it. Routes and spanning trees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import whole
from thrifty.solvers.games import losses
from thrifty.solvers.games.actions import ActionSet, DagPathSet, SpanningTreeSet, oriented_to
from thrifty.solvers.games.actions.base import Floats, Ints
from thrifty.solvers.games.actions.routes import digraph_of

#: From an edge's attributes and its load to a cost of at least 0.
Cost = Callable[[Mapping[str, Any], int], float]


def bpr_cost(attributes: Mapping[str, Any], load: int) -> float:
    """Return the travel time on a road by the formula of the Bureau of Public Roads.

    Args:
        attributes: ``free_flow_time``, ``capacity``, and optionally ``b`` (0.15) and ``power`` (4).
        load: Players on the road.

    Example:
        >>> bpr_cost({"free_flow_time": 10.0, "capacity": 2.0}, 2)
        11.5

    Source:
        Bureau of Public Roads, "Traffic Assignment Manual" (1964).
    """
    ratio = load / float(attributes["capacity"])
    b, power = float(attributes.get("b", 0.15)), float(attributes.get("power", 4.0))
    return float(float(attributes["free_flow_time"]) * (1.0 + b * ratio**power))


def linear_cost(attributes: Mapping[str, Any], load: int) -> float:
    """Return weight times load; the weight is 1 where an edge has none.

    Args:
        attributes: Of the edge; ``weight``.
        load: Players on the edge.

    Example:
        >>> linear_cost({"weight": 2.0}, 3)
        6.0

    Source:
        affine congestion games: Rosenthal (1973).
    """
    return float(attributes.get("weight", 1.0)) * load


class _Congestion:
    """Players on edges that they share."""

    def __init__(self, graph: Any, sets: list[ActionSet], where: list[Ints], cost: Cost) -> None:
        self.sets, self._graph = sets, graph
        loads = range(1, len(sets) + 1)
        table = np.array([[cost(held, load) for load in loads] for *_, held in _edges(graph)], float)
        if not np.isfinite(table).all() or (table < 0).any() or not table.any():
            raise ValueError("cost: expected finite costs of at least 0, and one above 0")
        #: What an edge costs under each load, from 1 on.
        self.costs: Floats = table
        #: What one unit of loss is.
        self.scale = float(table.max())
        #: The game as compiled code reads it.
        self.rules = losses.congestion_rules(where, table / self.scale)

    @property
    def loss_bound(self) -> float:
        """The most that a player can lose in a round."""
        return float(max(actions.m for actions in self.sets))

    #: Costs of congestion do not sum to a constant.
    zero_sum = False

    def loss_vectors(self, joint: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's loss vector, from the coordinates that all played: what an edge costs with oneself."""
        return losses.realised_losses(self.rules, joint)

    def expected_losses(self, marginals: Sequence[ArrayLike]) -> list[Floats]:
        """Return each player's expected loss vector where all draw independently, from all players' marginals."""
        return losses.expected_losses(self.rules, marginals)

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game; names of nodes that are neither numbers nor text become text."""
        held = (({"weight": data["weight"]} if "weight" in data else {}) for *_, data in _edges(self._graph))
        edges = [[_name(a), _name(b), kept] for (a, b, _), kept in zip(_edges(self._graph), held, strict=True)]
        return {"nodes": [_name(node) for node in self._graph], "edges": edges, "costs": self.costs.tolist()}


def _edges(graph: Any) -> list[Any]:
    """Return the edges of a networkx graph with their attributes, without loops."""
    return [edge for edge in graph.edges(data=True) if edge[0] != edge[1]]


def _name(node: Hashable) -> str | int:
    return node if isinstance(node, (str, int)) else str(node)


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
        self.od_pairs, self.orient = [tuple(pair) for pair in od_pairs], bool(orient)
        super().__init__(graph, sets, where, cost)

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game."""
        pairs = [[_name(a), _name(b)] for a, b in self.od_pairs]
        return {"game": "network", **super().to_facts(), "od_pairs": pairs, "orient": self.orient}


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
        super().__init__(graph, [trees] * players, [np.arange(trees.d)] * players, cost)

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the game."""
        return {"game": "trees", **super().to_facts(), "players": len(self.sets)}
