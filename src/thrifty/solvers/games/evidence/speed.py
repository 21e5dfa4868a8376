"""What a round costs, beside the same round over a list, and how long either takes to the same gap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.games import ColonelBlotto, NetworkCongestion, SpanningTreeCongestion, solve_cce
from thrifty.solvers.games.rivals import Enumerated

OURS, LIST = "kernels", "list"

#: Rounds of the race at most, the gap that ends it, and rounds between evaluations. The gaps are what kernels reach at
#: about half of these rounds, with seeds that the evidence does not use.
RACES: dict[str, tuple[int, float, int]] = {
    "allocations": (1000, 0.45, 10),
    "spanning trees": (400, 1.0, 10),
    "routes": (300, 1.25, 10),
}


def blotto(soldiers: int, battlefields: int) -> ColonelBlotto:
    """Return a game of two players whose battlefields are worth 1, 2, 3, ..."""
    return ColonelBlotto([soldiers] * 2, np.arange(1, battlefields + 1))


def trees(nodes: int) -> SpanningTreeCongestion:
    """Return a game of two players on a complete graph with unequal edges."""
    graph = nx.complete_graph(nodes)
    nx.set_edge_attributes(graph, {edge: 1 + i % 7 for i, edge in enumerate(graph.edges())}, "weight")
    return SpanningTreeCongestion(graph, 2)


def grid(side: int) -> NetworkCongestion:
    """Return a game of two players who cross a grid with unequal roads."""
    roads = nx.DiGraph(edge for edge in nx.grid_2d_graph(side, side).to_directed().edges() if edge[0] < edge[1])
    nx.set_edge_attributes(roads, {edge: 1 + i % 5 for i, edge in enumerate(roads.edges())}, "weight")
    return NetworkCongestion(roads, [((0, 0), (side - 1, side - 1))] * 2)


#: A game of each class whose players have 10^5 actions and some more.
LARGE: dict[str, Callable[[], Any]] = {
    "allocations": lambda: blotto(18, 7),
    "spanning trees": lambda: trees(8),
    "routes": lambda: grid(11),
}

#: What grows, with what held fixed: name, game, sizes.
FAMILIES: dict[str, tuple[Callable[[int], Any], tuple[int, ...]]] = {
    "soldiers n, 5 battlefields": (lambda n: blotto(n, 5), (25, 50, 100, 200)),
    "battlefields k, 20 soldiers": (lambda k: blotto(20, k), (10, 20, 40, 80)),
    "nodes V of a complete graph": (trees, (10, 20, 40, 80)),
    "side of a grid (edges: its square)": (grid, (10, 20, 40, 80)),
}


def compile_kernels() -> None:
    """Run every kernel once, so that no timing includes compiling."""
    for game in (blotto(3, 3), trees(4), grid(3)):
        for feedback in ("full", "semi-bandit", "bandit"):
            for which in (game, Enumerated(game)):
                solve_cce(which, feedback, 8)
        solve_cce(game, "expected", 8)


def rounds(game: Any, count: int, feedback: str = "semi-bandit") -> Callable[[], object]:
    """Return what plays so many rounds."""
    return lambda: solve_cce(game, feedback, count, eval_every=count, history=False)


def show(ctx: Context, evidence: Evidence) -> None:
    """Cost of a round in large games; its growth; the race to a gap."""
    _rounds(ctx, evidence)
    if ctx.full:
        _growth(ctx, evidence)
    _race(ctx, evidence)


def _rounds(ctx: Context, evidence: Evidence) -> None:
    ratios, apart, many, few = [], [], 400, 3
    for done, (name, made) in enumerate(LARGE.items()):
        ctx.progress(done, len(LARGE), f"cost of a round, {name}")
        game = made()
        rival = Enumerated(game)
        found = ctx.time({OURS: rounds(game, many), LIST: rounds(rival, few)}, repeats=5, at_most=2.0)
        actions = game.sets[0]
        seconds = {}
        for contender, count in ((OURS, many), (LIST, few)):
            per = [1e6 * t / (count * len(game.sets)) for t in found[contender].seconds.values]
            seconds[contender] = Measurement.of(per, "µs", timed=True)
            size = 8 * actions.d if contender == OURS else rival.nbytes
            evidence.row(
                contender,
                {
                    "a player's round": seconds[contender],
                    "state": Measurement.of(size / 1e6, "MB"),
                    "threads": Measurement.of(found[contender].threads, "threads", timed=True),
                },
                workload=f"{name}, {np.exp(actions.log_size):.3g} actions of {actions.d} coordinates, semi-bandit",
            )
        ratios.append(seconds[LIST].over(seconds[OURS]).values)
        theta = np.random.default_rng(ctx.seed).normal(size=actions.d)
        apart.append(float(np.abs(actions.marginals(theta) - rival.sets[0].marginals(theta)).max()))
    least = [min(values) for values in zip(*ratios, strict=False)]
    evidence.measured("per-round-cost", Measurement.of(least, "ratio", timed=True), gate=max(apart))


def _growth(ctx: Context, evidence: Evidence) -> None:
    """Fit powers of what a semi-bandit round costs."""
    for done, (name, (made, sizes)) in enumerate(FAMILIES.items()):
        ctx.progress(done, len(FAMILIES), f"growth with {name}")
        cost = []
        for size in sizes:
            game = made(size)
            found = ctx.time({OURS: rounds(game, 50)}, repeats=3, at_most=1.0)[OURS]
            cost.append(1e6 * found.seconds.median / (50 * len(game.sets)))
        evidence.row(
            OURS,
            {
                "power": Measurement.of(slope(sizes, cost), "exponent", timed=True),
                "power of the last step": Measurement.of(slope(sizes[-2:], cost[-2:]), "exponent", timed=True),
                "a player's round at the largest": Measurement.of(cost[-1], "µs", timed=True),
            },
            workload=f"growth with {name}: {', '.join(map(str, sizes))}",
        )
    ctx.progress(0, 1, "kernels and lists over the number of actions")
    points: dict[str, tuple[list[float], list[float]]] = {OURS: ([], []), LIST: ([], [])}
    for n, k in ((6, 4), (10, 5), (16, 6), (18, 7), (20, 8), (30, 10), (60, 15), (100, 25)):
        game = blotto(n, k)
        actions = float(np.exp(game.sets[0].log_size))
        contenders = {OURS: (game, 50)} | ({LIST: (Enumerated(game), 3)} if actions < 2e6 else {})
        for contender, (which, count) in contenders.items():
            timings = ctx.time({contender: rounds(which, count)}, repeats=3, at_most=1.0)
            took = timings[contender].seconds.median
            points[contender][0].append(actions)
            points[contender][1].append(1e6 * took / (count * 2))
    evidence.curves("A semi-bandit round of Blotto", "allocations", "µs", points, log_x=True, log_y=True)


def slope(x: Sequence[float] | NDArray[Any], y: Sequence[float] | NDArray[Any]) -> float:
    """Return the power of a power law, by least squares on logarithmic scales."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _race(ctx: Context, evidence: Evidence) -> None:
    """Play both until the gap is as asked for, and compare the seconds of play."""
    ratios, reached, asked = [], [], []
    names = list(LARGE) if ctx.full else ["allocations"]
    for name in names:
        horizon, target, every = RACES[name]
        game = LARGE[name]()
        contenders: dict[str, Any] = {OURS: game, LIST: Enumerated(game)}
        seeds = ctx.seeds(quick=1, full=3)
        runs = ctx.runs(
            evidence, contenders, seeds,
            partial(race, contenders, horizon, target, every),
            workload=f"{name}, to a gap of {target:g}",
        )  # fmt: skip
        for who, found in runs.items():
            evidence.row(
                who,
                {
                    "time to the gap": Measurement.of([run["seconds"] for run in found], "s", timed=True),
                    "rounds": Measurement.of([run["rounds"] for run in found], "rounds"),
                    "gap": Measurement.of([run["gap"] for run in found], "loss"),
                },
                workload=f"{name}, to a gap of {target:g} within {horizon} rounds, semi-bandit",
            )
        if set(runs) != set(contenders):
            return
        ratios.append(
            [theirs["seconds"] / ours["seconds"] for ours, theirs in zip(runs[OURS], runs[LIST], strict=True)]
        )
        reached += [run["gap"] for run in runs[OURS]]
        asked += [target] * len(seeds)
    least = [min(values) for values in zip(*ratios, strict=True)]
    evidence.measured("time-to-gap", Measurement.of(least, "ratio", timed=True), gate=(reached, asked))


def race(games: dict[str, Any], horizon: int, target: float, every: int, who: str, seed: int) -> dict[str, float]:
    """Return seconds and rounds until the gap was as small as asked for, and the gap there."""
    result = solve_cce(games[who], "semi-bandit", horizon, eps=target, eval_every=every, seed=seed, history=False)
    return {"seconds": result.seconds, "rounds": result.rounds, "gap": result.gap}
