"""Pictures for the report: deterministic, readable on any page, good neighbours."""

import re
import sys
from dataclasses import asdict
from xml.etree import ElementTree

import pytest

from thrifty.bench import plots
from thrifty.bench.evidence import Plot, Series

pytest.importorskip("matplotlib")

LINE = asdict(
    Plot(
        "Errors <over> time",
        "line",
        "time, s",
        "$errors & more$",
        (Series("Search", (0.001, 0.1, 5.0), (40.0, 14.0, 11.0)), Series("CART", (0.001, 5.0), (31.0, 31.0))),
        log_x=True,
    )
)
BAR = asdict(Plot("By data set", "bar", "data set", "errors", (Series("A", ("monk", "tic"), (1.0, 2.5)),)))
SCATTER = asdict(Plot("Cloud", "scatter", "x", "y", (Series("A", (1.0, 2.0), (3.0, 400.0)),), log_y=True))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("plot", [LINE, BAR, SCATTER], ids=lambda plot: plot["kind"])
def test_a_plot_is_one_element_that_names_and_describes_itself(plot):
    root = ElementTree.fromstring(plots.draw(plot))
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert root.get("role") == "img"
    title, desc = root.find(f"{space}title"), root.find(f"{space}desc")
    assert root.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert title.text == plot["title"]
    assert plot["y_label"] in desc.text
    words = {element.text for element in root.iter(f"{space}text")}
    assert {plot["x_label"], plot["y_label"]} <= words  # text stays text, dollar signs included


def test_text_takes_the_colour_and_the_font_of_the_page():
    svg = plots.draw(LINE)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "font-family" not in svg
    assert "#000000" not in svg
    assert "<style" not in svg


def test_the_same_data_give_the_same_bytes():
    assert plots.draw(LINE) == plots.draw(LINE)


def test_neighbours_share_no_identifier_and_every_reference_is_met():
    pictures = [plots.draw(LINE, name="a"), plots.draw(LINE, name="b"), plots.draw(BAR)]
    sets = [re.findall(r'\bid="([^"]+)"', picture) for picture in pictures]
    together = [name for names in sets for name in names]
    assert len(together) == len(set(together))
    for picture, names in zip(pictures, sets, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', picture)) <= set(names)


@pytest.mark.parametrize("page", ["#fdfdfb", "#15171a"])
def test_series_stand_out_on_light_and_on_dark(page):
    for colour in plots.COLOURS:
        low, high = sorted([luminance(colour), luminance(page)])
        assert (high + 0.05) / (low + 0.05) >= 3


@pytest.mark.parametrize("kind", ["bar", "line", "scatter"])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("count", [0, 1, 15])
@pytest.mark.filterwarnings("error")
def test_it_draws_without_a_warning_however_many_series_there_are(kind, log, count):
    series = tuple(Series(f"s{i}", (1.0, 2.0), (1.0 + i, 20.0)) for i in range(count))
    logs = {"log_x": log and kind != "bar", "log_y": log}
    assert plots.draw(asdict(Plot("t", kind, "x", "y", series, **logs))).startswith("<svg")


@pytest.mark.parametrize("kind", ["bar", "line", "scatter"])
@pytest.mark.parametrize("y", [(0.0, 0.0), (0.0, 3.0), (3.0, 3.1)])
@pytest.mark.filterwarnings("error")
def test_a_logarithmic_axis_bears_zeros_and_narrow_ranges(kind, y):
    plots.draw(asdict(Plot("t", kind, "x", "y", (Series("A", (1.0, 2.0), y),), log_y=True)))


def test_long_series_are_described_in_short():
    series = Series("A", tuple(float(i) for i in range(1000)), tuple(float(i) for i in range(1000)))
    told = plots.description(asdict(Plot("t", "line", "x", "y", (series,))))
    assert len(told) < 200
    assert told.endswith("999 at 999.")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"thrifty\[bench\]"):
        plots.draw(LINE)
