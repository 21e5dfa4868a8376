"""The report: everything said, everything escaped, nothing fetched, readable in a real browser."""

import shutil
from collections import Counter
from dataclasses import asdict
from html.parser import HTMLParser

import pytest

from thrifty.bench import plots, report
from thrifty.bench.claims import Claim, Gate, Measurement, Target
from thrifty.bench.evidence import Evidence, Plot, Series

HOSTILE = "<script>alert('x')</script> & \"more\""
CLAIMS = [
    Claim(
        "fewer-errors",
        "Makes at most 0.7 of the errors of CART.",
        "exactness",
        "ratio",
        ("Search", "CART"),
        target=Target("<=", 0.7),
        published="0.61 in Table 2",
    ),
    Claim(
        "memory",
        "Needs half the memory.",
        "memory",
        "MB",
        ("Search", "Exact"),
        target=Target("<=", 50),
        gate=Gate("test error", 0.02),
    ),
    Claim("big", "Runs on a million rows.", "scaling", "rows", ("Search",), budget="full"),
    Claim("shared", "Reads the shared table.", "scaling", "rows", ("Search",)),
]
VOID = {"meta", "link", "input", "br"}


def method(name, **changes):
    evidence = Evidence(CLAIMS, "quick")
    evidence.workload = "three data sets"
    metrics = {f"metric {i} of many": Measurement.of([i, 2 * i + 1], "MB") for i in range(9)}
    evidence.row("Search", metrics, workload="monk")
    evidence.row(HOSTILE, {}, workload="monk", error=HOSTILE)
    evidence.measured("fewer-errors", Measurement.of([0.6, 0.65], "ratio"), limit="1.3 times the optimum")
    evidence.measured("memory", Measurement.of([31, 32], "MB"), gate=([0.2], [0.1]), reason=HOSTILE)
    evidence.cannot_show("shared", "no such table here")
    for kind in ("line", "bar"):
        evidence.curves(HOSTILE, "x", HOSTILE, {"A": ((1.0, 2.0), (1.0, 3.0))}, kind=kind)
    about = {"name": name, "title": f"The {name} paper", "line": "What it does.", "saves": "errors"}
    run = {"mode": "quick", "seed": 0, "device": "cpu", "seconds": 21.34, "budget": 30, "resumed": 2, "error": None}
    ceilings = {"bandwidth": Measurement.of(12.34, "GB/s").to_json()}
    versions = {"thrifty": "0.1.0", "scipy": "1.17.1"}
    return about | run | {"ceilings": ceilings, "versions": versions} | evidence.to_json() | changes


@pytest.fixture(scope="module")
def results():
    ended = method("sumo", error="ended after 60 s, twice its budget", rows=[], plots=[], ceilings={})
    return {
        "schema": 1,
        "mode": "quick",
        "seed": 0,
        "device": "cpu",
        "machine": {"system": "Linux", "processor": HOSTILE, "cores": 2, "memory_gib": 23.5},
        "versions": {"thrifty": "0.1.0", "numpy": "2.4.6"},
        "methods": [method("trees"), ended],
    }


@pytest.fixture(scope="module")
def page(results):
    return report.render(results)


class Outline(HTMLParser):
    """Collects identifiers, links and text, and checks that elements are nested properly."""

    def __init__(self, page):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.text = [], Counter(), set(), Counter(), []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1
        attributes = dict(attributes)
        self.ids.update([attributes["id"]] if "id" in attributes else [])
        self.links |= {attributes["href"]} if tag == "a" else set()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text.append(text)


def test_the_page_is_well_formed_and_its_links_lead_somewhere(page):
    outline = Outline(page)
    assert max(outline.ids.values()) == 1
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert (outline.tags["h1"], outline.tags["main"], outline.tags["svg"]) == (1, 1, 2)


def test_everything_is_escaped_and_nothing_is_fetched(page):
    assert "<script" not in page
    assert HOSTILE in "".join(Outline(page).text)
    assert "src=" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_it_says_what_was_found(page):
    text = "".join(Outline(page).text)
    for said in (
        "0.625× (0.6–0.65 over 2 runs)",
        "≤ 0.7×",
        "0.61 in Table 2",
        "1.3 times the optimum",
        "test error at most 0.02 higher than the rival's in any run: not passed",
        "needs --full",
        "ended after 60 s, twice its budget",
        "21.3 of 30 s",
        "12.3 GB/s",
        "23.5 GiB",
    ):
        assert said in text, said


def test_without_matplotlib_a_line_stands_in_the_place_of_a_plot(results, monkeypatch):
    def absent(plot, *, name):
        raise ImportError('matplotlib is not installed: pip install "thrifty[bench]"')

    monkeypatch.setattr(plots, "draw", absent)
    page = report.render(results)
    assert "<svg" not in page
    assert page.count("Not drawn: matplotlib is not installed") == 2


def test_the_same_results_give_the_same_page(results, page):
    assert report.render(results) == page


def test_an_empty_run_is_a_page_too(results):
    Outline(report.render(results | {"methods": []}))


def test_equal_plots_in_two_methods_do_not_clash(results):
    plot = asdict(Plot("Same", "line", "x", "y", (Series("A", (1.0, 2.0), (1.0, 3.0)),)))
    twice = [method("trees", plots=[plot, plot]), method("sumo", plots=[plot])]
    assert max(Outline(report.render(results | {"methods": twice})).ids.values()) == 1


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    if not chromium:
        pytest.skip("no chromium on the path")
    quiet = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=quiet)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, page, tmp_path):
    """Return the report in a browser tab that fails the test if anything but the file is asked for."""
    path = tmp_path / "index.html"
    path.write_text(page, encoding="utf-8")
    asked, said = [], []
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: said.append(message.text))
    tab.goto(path.as_uri())
    yield tab
    tab.close()
    assert asked == [path.as_uri()]
    assert said == []


@pytest.mark.browser
def test_a_reader_finds_a_claim_and_its_status(opened):
    row = opened.get_by_role("table", name="All claims").get_by_role("row").filter(has_text="half the memory").first
    assert row.get_by_role("cell").first.inner_text().endswith("cheaper but worse")
    row.get_by_role("link", name="Needs half the memory.").click()
    target = opened.locator(":target")
    assert "compared" in target.inner_text()
    assert target.get_by_role("heading", name="Needs half the memory.").is_visible()
    assert opened.get_by_role("img", name=HOSTILE).count() == 2


@pytest.mark.browser
def test_the_first_table_leads_to_a_method_and_counts_its_claims(opened):
    row = opened.get_by_role("table", name="Methods").get_by_role("row").filter(has_text="trees").first
    assert [line for line in row.inner_text().split() if line.isdigit()] == ["1", "1", "1", "1"]
    row.get_by_role("link", name="trees").click()
    assert opened.locator(":target").get_by_role("heading", name="The trees paper").is_visible()


@pytest.mark.browser
def test_a_link_opens_what_is_folded_away(opened):
    opened.get_by_role("radio", name="all").check(force=True)
    opened.get_by_role("table", name="All claims").get_by_role("link", name="Runs on a million rows.").first.click()
    assert opened.locator(":target").get_by_role("heading").is_visible()


@pytest.mark.browser
def test_claims_are_filtered_by_status(opened):
    rows = opened.locator("#claims tbody tr")
    visible = lambda: sum(row.is_visible() for row in rows.all())  # noqa: E731
    assert visible() == 6, "those that wait for a full run are not there at first"
    for kind in ("cannot show", "needs --full"):
        opened.get_by_role("radio", name=kind).check(force=True)
        assert visible() == 2
    opened.get_by_role("radio", name="all").check(force=True)
    assert visible() == 8


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_it_fits_and_reads_on_every_page(opened, scheme, width):
    opened.set_viewport_size({"width": width, "height": 900})
    opened.emulate_media(color_scheme=scheme)
    page, view = opened.evaluate("[document.scrollingElement.scrollWidth, document.scrollingElement.clientWidth]")
    assert page <= view
    style = "const {color, backgroundColor} = getComputedStyle(document.body); [color, backgroundColor]"
    ink, ground = (sum(map(int, colour[4:-1].split(","))) for colour in opened.evaluate(style))
    assert (ink < ground) == (scheme == "light")
    assert abs(ink - ground) > 500
    axis = opened.locator("figure svg text").first
    assert axis.evaluate("text => getComputedStyle(text).fill") == opened.evaluate(
        "getComputedStyle(document.body).color"
    )


@pytest.mark.browser
def test_the_keyboard_reaches_everything(opened):
    opened.set_viewport_size({"width": 400, "height": 900})
    opened.keyboard.press("Tab")
    focused = opened.locator(":focus")
    assert focused.inner_text() == "Skip to the claims"
    opened.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0")
    opened.keyboard.press("Enter")
    assert opened.evaluate("document.activeElement.id") == "claims"
    wide = opened.get_by_role("region", name="trees: contenders side by side, monk")
    wide.focus()
    assert wide.evaluate("region => region.scrollWidth > region.clientWidth && region === document.activeElement")
