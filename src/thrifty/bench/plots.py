"""Pictures for the report: a plot's data in, an inline SVG out that reads on light and on dark pages.

The SVG takes its text colour and its fonts from the page, keeps text as text, and says in words what it shows to those
who do not see it. The same data give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from thrifty._common.extras import require
from thrifty.bench.table import number

#: Distinct under the common kinds of colour blindness, and at least 3:1 against white and against the dark page.
COLOURS = ("#3182bd", "#d55e00", "#009e73", "#b8649c", "#a6761d", "#7f7f7f")
_MARKERS = "osD^vP"
_LINES = ("-", "--", ":", "-.")
_HATCHES = ("", "///", "...", "xxx")
#: Kinds of plots whose contenders are bars: beside each other, or one on the other.
_BARS = ("bar", "stack")

_INK = "#010203"  # drawn with, then replaced by the colour of the page's text
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": ["sans-serif"],
    "font.size": 10.0,
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "axes.linewidth": 0.8,
    "grid.alpha": 0.16,
    "grid.linewidth": 0.8,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "legend.frameon": False,
    "legend.borderaxespad": 0.0,
    "legend.handlelength": 1.8,
} | {
    f"{thing}color": _INK
    for thing in ("text.", "axes.edge", "axes.label", "xtick.", "ytick.", "grid.", "xtick.label", "ytick.label")
}
_WIDTH = 5.2  # inches: with 10 pt text it stays readable when a phone shrinks it


def draw(plot: Mapping[str, Any], *, name: str = "") -> str:
    """Draw a plot as an SVG element to be put into a page.

    Args:
        plot: ``dataclasses.asdict`` of a :class:`thrifty.bench.evidence.Plot`, or the same read from JSON.
        name: Tells this plot from an equal one on the same page: identifiers are made from both.

    Returns:
        An ``<svg>`` element with transparent ground, without width and height (the page decides).

    Raises:
        ImportError: matplotlib is not installed; the message says how to get it.
    """
    matplotlib = require("matplotlib", extra="bench")
    figures = require("matplotlib.figure", extra="bench")
    salt = hashlib.sha256(json.dumps([name, plot], sort_keys=True).encode()).hexdigest()[:10]
    with matplotlib.rc_context(_STYLE | {"svg.hashsalt": salt}):
        figure = figures.Figure(figsize=(_WIDTH, _height(plot)), layout="constrained")
        axes = figure.add_subplot()
        (_bars if plot["kind"] in _BARS else _points)(axes, plot)
        _legend(figure, axes)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", transparent=True, metadata={"Date": None})
    return _inline(picture.getvalue(), plot, f"plot-{salt}")


def _height(plot: Mapping[str, Any]) -> float:
    """Return inches: the axes keep their size however long the legend is."""
    labels = [series["label"] for series in plot["series"]]
    legend = 0.2 * math.ceil(len(labels) / _across(labels)) if len(labels) > 1 else 0.0
    if plot["kind"] not in _BARS:
        return 2.9 + legend
    beside = 1 if plot["kind"] == "stack" else len(labels)
    return 0.75 + legend + 0.21 * len(_categories(plot)) * (beside + 0.6)


def _across(labels: Sequence[str]) -> int:
    """Return how many entries of a legend fit beside each other."""
    return max(1, min(len(labels), 62 // (max(map(len, labels), default=0) + 6)))


def _categories(plot: Mapping[str, Any]) -> list[Any]:
    return list(dict.fromkeys(x for series in plot["series"] for x in series["x"]))


def _points(axes: Any, plot: Mapping[str, Any]) -> None:
    """Draw lines, or the points alone."""
    for place, series in enumerate(plot["series"]):
        turn, colour = divmod(place, len(COLOURS))
        joined = plot["kind"] == "line"
        few = not joined or len(series["x"]) <= 30
        axes.plot(
            series["x"],
            series["y"],
            color=COLOURS[colour],
            linestyle=_LINES[turn % len(_LINES)] if joined else "none",
            marker=_MARKERS[place % len(_MARKERS)] if few else "none",
            fillstyle="full" if turn == 0 else "none",
            label=series["label"],
        )
    axes.set_xlabel(plot["x_label"])
    axes.set_ylabel(plot["y_label"])
    axes.grid(visible=True)
    if _logarithmic(plot, "x"):
        axes.set_xscale("log", nonpositive="mask")
        _plain_ticks(axes.xaxis)
    if _logarithmic(plot, "y"):
        axes.set_yscale("log", nonpositive="mask")
        _plain_ticks(axes.yaxis)


def _bars(axes: Any, plot: Mapping[str, Any]) -> None:
    """Draw bars that lie, so that names of any length are read without turning one's head."""
    places = {category: place for place, category in enumerate(_categories(plot))}
    stacked = plot["kind"] == "stack"
    thickness = 0.8 / (1 if stacked else max(1, len(plot["series"])))
    ends = dict.fromkeys(places, 0.0)
    for place, series in enumerate(plot["series"]):
        turn, colour = divmod(place, len(COLOURS))
        bars = axes.barh(
            [places[x] - 0.4 + (0.5 if stacked else place + 0.5) * thickness for x in series["x"]],
            series["y"],
            0.9 * thickness,
            left=[ends[x] for x in series["x"]] if stacked else None,
            color=COLOURS[colour],
            edgecolor=_INK if turn else "none",
            hatch=_HATCHES[turn % len(_HATCHES)],
            linewidth=0,
            log=_logarithmic(plot, "y"),
            label=series["label"],
        )
        for x, y in zip(series["x"], series["y"], strict=True):
            ends[x] += y
        if not stacked:
            axes.bar_label(bars, [number(y) for y in series["y"]], padding=3, fontsize=9)
    if stacked:
        for x, end in ends.items():
            axes.annotate(number(end), (end, places[x]), (3, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(places)), [x if isinstance(x, str) else number(x) for x in places])
    axes.invert_yaxis()
    axes.set_ylabel(plot["x_label"])
    axes.set_xlabel(plot["y_label"])
    axes.margins(x=0.12)
    if _logarithmic(plot, "y"):
        _plain_ticks(axes.xaxis)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")


def _logarithmic(plot: Mapping[str, Any], axis: str) -> bool:
    """Tell whether a logarithmic axis is asked for and has something that it can show."""
    return plot[f"log_{axis}"] and any(value > 0 for series in plot["series"] for value in series[axis])


def _plain_ticks(axis: Any) -> None:
    """Put plain numbers at the ticks of a logarithmic axis, more of them where it spans little."""
    ticker = require("matplotlib.ticker", extra="bench")
    low, high = axis.get_view_interval()
    axis.set_major_locator(ticker.LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_formatter(ticker.NullFormatter())


def _tick(value: float) -> str:
    # the many zeros of the high decades would run into each other
    return f"{value:.0e}".replace("e+0", "e") if value >= 1e5 else number(float(f"{value:.6g}"))


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, loc="outside upper left", ncols=_across(labels), columnspacing=1.4)


def _inline(svg: str, plot: Mapping[str, Any], prefix: str) -> str:
    """Make matplotlib's document an element that gets along with its neighbours on a page."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - written by matplotlib a moment ago
    for element in root.iter():
        attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
        element.tag = element.tag.rpartition("}")[2]
        element.attrib.clear()
        element.attrib |= {key: _settled(key, value, prefix) for key, value in attributes.items()}
    for parent in list(root.iter()):
        for child in list(parent):
            # a style element would style the whole page
            if child.tag in ("metadata", "style"):
                parent.remove(child)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": box,
        "role": "img",
        "aria-labelledby": f"{prefix}-title {prefix}-desc",
        "style": "stroke-linejoin: round; stroke-linecap: butt",
    }
    for place, (tag, text) in enumerate([("title", plot["title"]), ("desc", description(plot))]):
        element = ElementTree.Element(tag, id=f"{prefix}-{tag}")
        element.text = text
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _settled(key: str, value: str, prefix: str) -> str:
    """Make one attribute the page's own: unique identifiers, its ink, its font."""
    if key == "id":
        return f"{prefix}-{value}"
    if key == "href":
        return value.replace("#", f"#{prefix}-", 1)
    value = value.replace("url(#", f"url(#{prefix}-").replace(_INK, "currentColor")
    return re.sub(r"font-family: [^;]*;? ?", "", value)


def description(plot: Mapping[str, Any]) -> str:
    """Say what a plot shows, for those who do not see it."""
    told = [f"{plot['kind'].capitalize()} plot of {plot['y_label']} over {plot['x_label']}."]
    for series in plot["series"]:
        points = [
            f"{number(y)} at {x if isinstance(x, str) else number(x)}"
            for x, y in zip(series["x"], series["y"], strict=True)
        ]
        if len(points) > 12:
            points = [*points[:: len(points) // 6], points[-1]]
        told.append(f"{series['label']}: {', '.join(points) or 'no points'}.")
    return " ".join(told)
