"""Games as JSON, written by a person or by ours: a mapping with ``game`` and that game's arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from thrifty._common import settings
from thrifty._common.checks import is_number, one_of
from thrifty._common.extras import require
from thrifty._common.tables import read_table
from thrifty.solvers.games.congestion import NetworkCongestion, SpanningTreeCongestion, bpr_cost, linear_cost
from thrifty.solvers.games.contests import ColonelBlotto
from thrifty.solvers.games.normal_form import NormalFormGame

SCHEMA, VERSION = "thrifty.games.game", 1

#: Costs by name.
COSTS = {"linear": linear_cost, "bpr": bpr_cost}

_ON_EDGES = ("edges", "nodes", "cost", "costs")

#: The keys that each kind of game has, and those that it must have.
KEYS = {
    "blotto": (("soldiers", "values", "tie", "contest", "min_alloc", "max_alloc", "at_most"), ("soldiers", "values")),
    "network": ((*_ON_EDGES, "od_pairs", "orient"), ("edges", "od_pairs")),
    "trees": ((*_ON_EDGES, "players"), ("edges", "players")),
    "normal-form": (("payoffs",), ("payoffs",)),
}


def game_from(described: Mapping[str, Any]) -> Any:
    """Return the game that a mapping describes.

    Args:
        described: ``game`` (one of ``"blotto"``, ``"network"``, ``"trees"``, ``"normal-form"``), and

            - Blotto, normal form: the arguments of :class:`ColonelBlotto` and :class:`NormalFormGame`;
            - network, trees: ``edges`` as ``[tail, head]``, ``[tail, head, weight]`` or ``[tail, head, {attributes}]``,
              and what they cost: ``cost`` by name (``"linear"``, the default: weight times load; ``"bpr"``: travel
              times on roads), or ``costs``, a list for each edge with its cost under 1, 2, ... players;
            - network: ``od_pairs`` as ``[[origin, destination], ...]``, and ``orient``;
            - trees: ``players``.

    Raises:
        ValueError: A key is unknown or missing, or the game itself refuses.

    Example:
        >>> game_from({"game": "blotto", "soldiers": [3, 3], "values": [1, 2, 3]}).loss_bound
        2.0
        >>> roads = [["a", "b", 2], ["b", "c"], ["a", "c", 4]]
        >>> len(game_from({"game": "network", "edges": roads, "od_pairs": [["a", "c"], ["b", "c"]]}).sets)
        2

    Source:
        :meth:`to_facts` of each game is such a mapping.
    """
    if not isinstance(described, Mapping) or "game" not in described:
        raise ValueError(f"game: expected a JSON object with the key 'game', one of {', '.join(KEYS)}")
    kind = described["game"]
    one_of("game", kind, tuple(KEYS))
    known, needed = KEYS[kind]
    facts = settings.check(
        described, SCHEMA, VERSION, known=("game", *known), needed=needed, headless=True, name=f"a game of {kind}"
    )
    del facts["game"]
    try:
        if kind == "blotto":
            return ColonelBlotto(**facts)
        if kind == "normal-form":
            return NormalFormGame(**facts)
        graph = _graph(facts["edges"], facts.get("nodes", ()), directed=kind == "network")
        cost = _cost(facts, graph)
        if kind == "trees":
            return SpanningTreeCongestion(graph, facts["players"], cost)
        pairs = facts["od_pairs"]
        if not (
            isinstance(pairs, Sequence)
            and pairs
            and all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs)
        ):
            raise ValueError(f"od_pairs: expected [[origin, destination], ...], one pair a player, got {pairs!r}")
        return NetworkCongestion(graph, [tuple(pair) for pair in pairs], cost, bool(facts.get("orient", False)))
    except (TypeError, KeyError, OverflowError) as error:  # a list where a number belongs, and the like
        raise ValueError(f"a game of {kind}: {error}") from None


def _graph(edges: Any, nodes: Any, *, directed: bool) -> Any:
    """Return the networkx multigraph of a list of edges; parallel edges are different."""
    nx = require("networkx", extra="games")
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from(nodes)
    if not isinstance(edges, Sequence) or isinstance(edges, str):
        raise ValueError(f"edges: expected a list, got {type(edges).__name__}")
    for at, edge in enumerate(edges):
        if not isinstance(edge, Sequence) or isinstance(edge, str) or len(edge) not in (2, 3):
            raise ValueError(f"edges: expected [tail, head], a weight or attributes perhaps, got {edge!r} at {at}")
        tail, head, *rest = edge
        held = rest[0] if rest else {}
        if not (isinstance(held, Mapping) or is_number(held)):
            raise ValueError(f"edges: expected a weight or attributes, got {held!r} at {at}")
        graph.add_edge(tail, head, **(held if isinstance(held, Mapping) else {"weight": held}))
    return graph


def _cost(facts: Mapping[str, Any], graph: Any) -> Callable[[Mapping[str, Any], int], float]:
    """Return the cost that was named, or that of a table, whose rows are put on the edges."""
    if "costs" not in facts:
        one_of("cost", facts.get("cost", "linear"), tuple(COSTS))
        named = COSTS[facts.get("cost", "linear")]

        def cost(attributes: Mapping[str, Any], load: int) -> float:
            try:
                return named(attributes, load)
            except KeyError as error:
                raise ValueError(f"edges: expected the attribute {error} on each, for cost {facts['cost']!r}") from None

        return cost
    # Rows belong to the edges in the order of the list; the graph gives edges in the order of its nodes.
    if "cost" in facts:
        raise ValueError("cost, costs: expected one of them, got both")
    table = np.asarray(facts["costs"], float)
    edges = [edge for edge in facts["edges"] if edge[0] != edge[1]]
    if table.ndim != 2 or len(table) != len(edges):
        raise ValueError(f"costs: expected a list for each of {len(edges)} edges, got shape {table.shape}")
    directed = graph.is_directed()
    rows: dict[Any, list[Any]] = {}
    for (a, b, *_), row in zip(edges, table, strict=True):
        rows.setdefault((a, b) if directed else frozenset((a, b)), []).append(row)
    for a, b, data in graph.edges(data=True):
        if a != b:
            data["costs"] = rows[(a, b) if directed else frozenset((a, b))].pop(0)

    def from_table(attributes: Mapping[str, Any], load: int) -> float:
        if load > len(attributes["costs"]):
            raise ValueError(f"costs: expected one for each number of players up to {load}, got {table.shape[1]}")
        return float(attributes["costs"][load - 1])

    return from_table


def read_game(path: str | os.PathLike[str]) -> Any:
    """Return the game that a JSON file describes; see :func:`game_from`.

    Args:
        path: The file.

    Raises:
        ValueError: It is no JSON, or no game.
        OSError: It cannot be read.

    Example:
        >>> _ = open("game.json", "w").write('{"game": "blotto", "soldiers": [3, 3], "values": [1, 2, 3]}')
        >>> len(read_game("game.json").sets)
        2

    Source:
        :func:`game_from`.
    """
    text = settings.read_text(path)
    try:
        described = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: expected JSON, got {text[:40]!r}: {error}") from None
    return game_from(described)


def read_edges(path: str | os.PathLike[str]) -> list[list[Any]]:
    """Return the edges in a table: tail and head in its first two columns, numbers in the others are attributes.

    Args:
        path: CSV with a header line, or Parquet.

    Raises:
        ValueError: There are fewer than two columns, or no row.
        OSError: It cannot be read.
    """
    columns = read_table(path)
    names = list(columns)
    if len(names) < 2 or not len(columns[names[0]]):
        raise ValueError(f"{path}: expected the columns tail and head, and rows, got the columns {', '.join(names)}")
    tails, heads = (np.asarray(columns[name]).tolist() for name in names[:2])
    more = {name: np.asarray(columns[name]).tolist() for name in names[2:]}
    return [
        [_whole(a), _whole(b), {name: held[i] for name, held in more.items() if is_number(held[i])}]
        for i, (a, b) in enumerate(zip(tails, heads, strict=True))
    ]


def _whole(name: Any) -> Any:
    """Return a node's number as a whole one, where it is one."""
    return int(name) if isinstance(name, float) and name.is_integer() else name
