"""Two pictures: how the gap falls, and where players are on a network (or on battlefields)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.solvers.games.result import CCEResult


def plot_trace(result: CCEResult, path: str | Path, *, force: bool = False) -> Path:
    """Draw the gap over rounds (with the seconds above), and that of expected losses.

    Args:
        result: Of play.
        path: ``.svg`` or ``.png``.
        force: Replace a file that is there.

    Raises:
        ValueError: The name ends in something else, or the gap was not evaluated while play went on.
        ImportError: matplotlib is not installed.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto, solve_cce
        >>> plot_trace(solve_cce(ColonelBlotto([3, 3], [1, 2, 3]), "full", 100), "trace.svg").name
        'trace.svg'

    Source:
        :class:`thrifty.solvers.games.Trace`.
    """
    trace = result.trace
    if not len(trace.rounds):
        raise ValueError("result: expected a trace with an evaluation at least, got none")
    figure, axes = _figure(path, 1)
    expected = np.maximum(trace.expected_gaps.max(axis=1), 0.0)
    if result.drawn:
        axes[0].plot(trace.rounds, trace.gap, label="of realised losses")
    axes[0].plot(trace.rounds, expected, "--", label="of expected losses")
    positive = min(trace.gap.min(), expected.min()) > 0
    axes[0].set(xscale="log", yscale="log" if positive else "linear", xlabel="rounds", ylabel="gap")
    axes[0].legend()
    axes[0].set_title(f"gap {result.gap:.3g} after {result.rounds} rounds, {result.seconds:.3g} s")
    return _write(figure, path, force)


def plot_strategies(result: CCEResult, path: str | Path, *, force: bool = False) -> Path:
    """Draw where players are: soldiers by battlefield, or edges of the network as wide as they are likely.

    Args:
        result: Of play.
        path: ``.svg`` or ``.png``.
        force: Replace a file that is there.

    Raises:
        ValueError: The name ends in something else, or the game has neither battlefields nor edges.
        ImportError: matplotlib is not installed.

    Example:
        >>> from thrifty.solvers.games import ColonelBlotto, solve_cce
        >>> plot_strategies(solve_cce(ColonelBlotto([3, 3], [1, 2, 3]), "full", 100), "where.svg").name
        'where.svg'

    Source:
        marginals of each player's average law.
    """
    sets = result.game.sets
    if hasattr(sets[0], "soldiers"):
        figure, axes = _figure(path, len(sets))
        for i, (ax, actions, x) in enumerate(zip(axes, sets, result.marginals, strict=True)):
            shown = ax.imshow(
                x.reshape(actions.battlefields, -1), aspect="auto", origin="lower", vmin=0.0, cmap="Blues"
            )
            ax.set(title=f"player {i}", xlabel="soldiers", ylabel="battlefield", yticks=range(actions.battlefields))
            figure.colorbar(shown, ax=ax, label="probability")
        return _write(figure, path, force)
    if not hasattr(sets[0], "edges"):
        raise ValueError(f"result: expected battlefields or edges to draw, got a {type(result.game).__name__}")
    nx = require("networkx", extra="games")
    figure, axes = _figure(path, 1)
    directed = hasattr(sets[0], "source")
    graph = nx.DiGraph() if directed else nx.Graph()
    for actions, x in zip(sets, result.marginals, strict=True):
        for (a, b), p in zip(actions.edges, x, strict=True):
            held = graph[a][b]["load"] if graph.has_edge(a, b) else 0.0
            graph.add_edge(a, b, load=held + float(p))
    place = nx.kamada_kawai_layout(graph, weight=None)
    loads = np.array([load for _, _, load in graph.edges(data="load")])
    widths = 0.3 + 5 * loads / max(loads.max(), 1e-12)
    nx.draw_networkx(
        graph, place, ax=axes[0], width=widths, edge_color=loads, edge_cmap=_map("viridis_r"), node_size=220,
        node_color="#dddddd", font_size=8,
    )  # fmt: skip
    axes[0].set_axis_off()
    axes[0].set_title(f"expected load of each edge: up to {loads.max():.2f} of {len(sets)} players")
    return _write(figure, path, force)


def _map(name: str) -> Any:
    return require("matplotlib", extra="bench").colormaps[name]


def _figure(path: str | Path, columns: int) -> tuple[Any, list[Any]]:
    if Path(path).suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"path: expected a name that ends in .png or .svg, got {path}")
    require("matplotlib", extra="bench")
    from matplotlib.figure import Figure  # without pyplot: no global state

    figure = Figure(figsize=(max(7.0, 3.5 * columns), 4.5), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def _write(figure: Any, path: str | Path, force: bool) -> Path:
    picture = io.BytesIO()
    figure.savefig(picture, format=Path(path).suffix.lstrip(".").lower())
    return write_whole(path, picture.getvalue(), force=force)
