"""Two real networks: roads of Sioux Falls, as OpenSpiel ships them, and friendships of a karate club, from networkx."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import networkx as nx

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.games import NetworkCongestion, SpanningTreeCongestion, solve_cce
from thrifty.solvers.games.rivals import shortest_routes, total_cost

#: Origins and destinations, players on each, and the vehicles that each player stands for.
PAIRS = ((1, 19), (19, 1), (1, 20), (2, 23))
PLAYERS, VEHICLES = 5, 700

#: Rounds in quick and full mode.
HORIZONS = {"Sioux Falls": (5_000, 20_000), "karate club": (1_000, 4_000)}
#: Multiple of the practical step size, and implicit exploration (None: as the step size has it): the grid of
#: :func:`tune`, the same for both networks, and what it chose. On roads the cost that losses are measured by is that of
#: all on one road, which nobody ever meets, so that steps must be long.
Setting = tuple[float, float | None]
GRID: tuple[Setting, ...] = tuple(itertools.product((1.0, 4.0, 16.0), (None, 0.02)))
SETTINGS: dict[str, Setting] = {"Sioux Falls": (16.0, 0.02), "karate club": (16.0, 0.02)}


def sioux_falls() -> NetworkCongestion:
    """Return the game of drivers on all roads that lead nearer to where they go."""
    data = require("open_spiel.python.games.dynamic_routing_data", extra="bench")
    network = data.SIOUX_FALLS_NETWORK
    roads = nx.DiGraph()
    for link in network.links():
        tail, head = link.split("->")
        if tail.isdigit() and head.isdigit():  # the others lead onto the network and off it
            roads.add_edge(int(tail), int(head), weight=network.get_travel_time(link, 0.0), link=link)
    assert (len(roads), roads.size()) == (24, 76)

    def travel_time(attributes: Any, load: int) -> float:
        return float(network.get_travel_time(attributes["link"], load * VEHICLES))

    pairs = [pair for pair in PAIRS for _ in range(PLAYERS)]
    return NetworkCongestion(roads, pairs, travel_time, orient=True)


def karate_club() -> SpanningTreeCongestion:
    """Return the game of three players who each connect the club."""
    return SpanningTreeCongestion(nx.karate_club_graph(), 3)


GAMES: dict[str, Callable[[], Any]] = {"Sioux Falls": sioux_falls, "karate club": karate_club}


def play(name: str, horizon: int, setting: Setting, who: str, seed: int) -> dict[str, float]:
    """Return gaps after 5 % of the rounds and at the end, and what the rounds cost, in the game's own units."""
    game = GAMES[name]()
    scale, gamma = setting
    result = solve_cce(
        game, who, horizon, eta_scale=scale, gamma=gamma, seed=seed,
        eval_every=horizon // 20, history=False,
    )  # fmt: skip
    early, late = result.trace.gap[[0, -1]] * game.scale
    cost = float(result.average_loss.mean()) * game.scale
    return {"early": float(early), "late": float(late), "cost": cost, "seconds": result.seconds}


def tune() -> dict[str, Setting]:
    """Choose steps on a seed that the evidence does not use, by the gap at the horizon of full mode."""
    found = {}
    for name in GAMES:
        gaps = {setting: play(name, HORIZONS[name][1], setting, "semi-bandit", 1000)["late"] for setting in GRID}
        found[name] = min(gaps, key=gaps.__getitem__)
    return found


def show(ctx: Context, evidence: Evidence) -> None:
    """Semi-bandit play on both networks; on the roads also what it costs all, beside the shortest routes."""
    ratios = []
    with evidence.needs("real-networks", "travel-time"):
        for name, horizons in HORIZONS.items():
            horizon = horizons[ctx.full]
            workload = f"{name}, {horizon} rounds"
            found = ctx.runs(
                evidence,
                ("semi-bandit",),
                ctx.seeds(quick=1, full=3),
                partial(play, name, horizon, SETTINGS[name]),
                workload=workload,
            ).get("semi-bandit")
            if found is None:
                return
            unit = "minutes" if name == "Sioux Falls" else "cost"
            evidence.row(
                "semi-bandit",
                {
                    "gap after 5 %": Measurement.of([run["early"] for run in found], unit),
                    "gap": Measurement.of([run["late"] for run in found], unit),
                    "cost a player": Measurement.of([run["cost"] for run in found], unit),
                    "time": Measurement.of([run["seconds"] for run in found], "s", timed=True),
                },
                workload=workload,
            )
            ratios.append([run["late"] / run["early"] for run in found])
            if name == "Sioux Falls":
                _beside_shortest_routes(evidence, [run["cost"] for run in found], workload)
        worst = [max(values) for values in zip(*ratios, strict=True)]
        evidence.measured("real-networks", Measurement.of(worst, "ratio"))


def _beside_shortest_routes(evidence: Evidence, learned: list[float], workload: str) -> None:
    game = sioux_falls()
    shortest = total_cost(game, shortest_routes(game)) / len(game.sets)
    evidence.row("all on shortest routes", {"cost a player": Measurement.of(shortest, "minutes")}, workload=workload)
    evidence.measured("travel-time", Measurement.of([cost / shortest for cost in learned], "ratio"))
