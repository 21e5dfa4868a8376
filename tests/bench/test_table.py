"""What the terminal shows: numbers, words, and tables that fit."""

from io import StringIO

import pytest
from rich.console import Console

from thrifty.bench import table
from thrifty.bench.claims import Claim, Gate, Measurement, Target
from thrifty.bench.evidence import Evidence

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
        "faster",
        "Is faster than the exact solver.",
        "time",
        "s",
        ("Search", "Exact"),
        target=Target("<=", 0.5),
        gate=Gate("test error", 0.02),
    ),
    Claim("big", "Runs on a million rows.", "scaling", "rows", ("Search",), budget="full"),
    Claim("shared", "Reads the shared table.", "scaling", "rows", ("Search",)),
]


@pytest.fixture
def record():
    evidence = Evidence(CLAIMS, "quick")
    evidence.workload = "three data sets"
    errors = Measurement.of([12, 10, 15], "errors")
    evidence.row(
        "Search", {"training errors": errors, "time": Measurement.of([0.02, 0.03, 0.021], "s")}, workload="monk"
    )
    evidence.row("CART [bold]", {"training errors": Measurement.of([31, 31, 31], "errors")}, workload="monk")
    evidence.row("Exact", {}, workload="monk", error="not installed")
    evidence.measured("fewer-errors", Measurement.of([0.7004, 0.69, 0.73], "ratio"), reason="one set is hard")
    evidence.measured("faster", Measurement.of([0.0123, 0.02, 0.011], "s", timed=True), gate=([0.2], [0.1]))
    evidence.cannot_show("shared", "no such table here")
    about = {"name": "trees", "title": "Trees by Local Search", "line": "Improves trees.", "saves": "errors"}
    run = {"mode": "quick", "seed": 0, "device": "cpu", "seconds": 21.34, "budget": 30, "resumed": 0, "error": None}
    return about | run | {"ceilings": {}} | evidence.to_json()


def shown(record, width=80):
    page = StringIO()
    Console(file=page, width=width).print(table.method_table(record))
    return page.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345, "12,345"),
        (2 / 3, "0.667"),
        (0.7, "0.7"),
        (0.7004, "0.700"),
        (-12.04, "-12.0"),
        (1234.5, "1,234"),
        (1.5e-5, "1.5e-5"),
        (1.23456e-5, "1.23e-5"),
        (0.9996, "1.00"),
        (3e15, "3e15"),
        (12345678.9, "1.23e7"),
    ],
)
def test_numbers_are_exact_where_whole_and_short_elsewhere(value, text):
    assert table.number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0213, "s", "21.3 ms"),
        (2e-6, "s", "2 µs"),
        (0.0, "s", "0 s"),
        (61.2, "s", "61.2 s"),
        (0.667, "ratio", "0.667×"),
        (12.5, "%", "12.5%"),
        (1.9, "MB", "1.9 MB"),
        (16, "", "16"),
    ],
)
def test_quantities_carry_their_unit(value, unit, text):
    assert table.quantity(value, unit) == text


def test_a_near_miss_does_not_look_like_a_hit(record):
    near, timed, *_ = record["claims"]
    assert table.measured(near) == "0.7004× (0.69–0.73 over 3 runs)"
    assert table.target(near) == "≤ 0.7×"
    assert table.measured(timed) == "12.3 ms (11–20 over 3 runs)"
    assert table.target(timed) == "≤ 500 ms"


def test_a_gate_says_what_it_allows_and_what_came(record):
    assert table.gate(record["claims"][1]) == "test error at most 0.02 higher than the rival's in any run: not passed"
    strict = {
        "gate": {"metric": "accuracy", "margin": 0, "better": "higher", "by": "mean", "than": "CART", "passed": None}
    }
    assert table.gate(strict) == "accuracy no lower than CART's in the mean: not run"


def test_without_a_terminal_it_is_plain_text_that_fits(record):
    text = shown(record)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    for said in (
        "Trees by Local Search",
        "21.3 of 30 s",
        "not installed",
        "CART [bold]",
        "10–15",
        "✓",
        "0.61 in Table 2",
    ):
        assert (said in text) == (said != "✓"), said  # nothing holds here


def test_every_status_shows_a_sign_and_a_word(record):
    text = shown(record)
    for status in ("falls short", "cheaper but worse", "cannot show"):
        assert f"{table.STATUSES[status].sign} {status}" in text
    assert len({look.sign for look in table.STATUSES.values()}) == len(table.STATUSES) == 5


def test_claims_that_wait_for_a_full_run_take_one_line(record):
    text = shown(record)
    assert "1 more with thrifty bench trees --full: big" in text
    assert "million rows" not in text


def test_metrics_that_do_not_fit_continue_below(record):
    numbers = {f"metric {i}": Measurement.of(i, "MB").to_json() for i in range(20)}
    record["rows"] = [{"contender": "Search", "workload": "", "error": None, "metrics": numbers}]
    text = shown(record, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("contender") > 1
    assert all(f"metric {i}" in text for i in range(20))


def test_a_method_that_ended_early_shows_why_and_its_claims(record):
    record |= {"error": "ended after 60 s, twice its budget", "rows": []}
    text = shown(record)
    assert "✗ ended after 60 s" in text
    assert "cannot show" in text


def test_the_smallest_number_decides_on_the_unit_of_a_column(record):
    rows = [
        {"metrics": {"time": Measurement.of(value, "s").to_json()}, "contender": "", "error": None}
        for value in (0.002, 3)
    ]
    (column,) = table.columns(rows)
    assert (column.unit, [column.median(column.find(row)) for row in rows]) == ("ms", ["2", "3,000"])


def test_workloads_keep_their_order_even_when_rows_alternate():
    rows = [{"workload": name, "contender": i} for i, name in enumerate("baba")]
    assert [(name, [row["contender"] for row in group]) for name, group in table.by_workload(rows)] == [
        ("b", [0, 2]),
        ("a", [1, 3]),
    ]
