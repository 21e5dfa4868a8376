"""What an experiment is given: pieces that may fail, and pieces that are not done twice."""

import pytest

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Claim
from thrifty.bench.context import Context
from thrifty.bench.timing import FEWEST_ROUNDS

CLAIM = Claim("any", "Any.", "quality", "ratio", ("ours", "rival"))


@pytest.fixture
def ctx(tmp_path):
    return Context([CLAIM], resume=tmp_path)


def test_a_piece_is_computed_once_and_told_apart_by_its_seed(ctx):
    calls = []

    def compute(name, seed):
        calls.append((name, seed))
        return {"loss": seed}

    evidence = ctx.evidence("")
    first = ctx.every_seed(evidence, "ours", [0, 1], compute, "ours", workload="text")
    again = ctx.every_seed(evidence, "ours", [0, 1, 2], compute, "ours", workload="text")
    assert first == [{"loss": 0}, {"loss": 1}]
    assert again == [*first, {"loss": 2}]
    assert calls == [("ours", 0), ("ours", 1), ("ours", 2)]
    assert ctx.resumed == 2
    assert ctx.every_seed(evidence, "ours", [0], compute, "ours", workload="images") == [{"loss": 0}]
    assert len(calls) == 4, "another workload is another piece"


def test_a_contender_that_fails_costs_its_own_row(ctx):
    evidence = ctx.evidence("")
    assert ctx.attempt(evidence, "rival", int, "no number", workload="text") is None
    assert ctx.every_seed(evidence, "ours", [0], lambda seed: seed + 1) == [1]
    (row,) = evidence.to_json()["rows"]
    assert row["contender"] == "rival"
    assert "ValueError" in row["error"]


def test_absent_data_is_not_the_contenders_failure(ctx):
    def read():
        raise UnavailableError("not in the cache")

    with pytest.raises(UnavailableError):
        ctx.attempt(ctx.evidence(""), "ours", read)


def test_contenders_that_fail_are_left_out_of_the_runs(ctx):
    told = []
    ctx.on_progress = lambda done, total, text: told.append((done, total, text))
    evidence = ctx.evidence("")
    found = ctx.runs(
        evidence, {"ours": 2, "rival": "x"}, [1, 2], lambda name, seed: {"ours": 2}[name] * seed, workload="w"
    )
    assert found == {"ours": [2, 4]}
    assert told == [(0, 2, "ours: w"), (1, 2, "rival: w")]
    assert [(row["contender"], row["workload"]) for row in evidence.to_json()["rows"]] == [("rival", "w")]


def test_timed_contenders_have_rows_with_threads(ctx):
    evidence = ctx.evidence("")
    seconds = ctx.timed(evidence, {"ours": lambda: None}, workload="w", quick=0.0, full=1.0)
    (row,) = evidence.to_json()["rows"]
    assert row["metrics"]["time"]["median"] == seconds["ours"].median
    assert row["metrics"]["threads"]["unit"] == "threads"
    assert len(seconds["ours"].values) == FEWEST_ROUNDS, "quick: no further round after 0 s"


def test_claims_that_come_too_late_say_so(ctx):
    evidence = ctx.evidence("")
    assert not ctx.late(evidence, "any")
    ctx.deadline = 0.0
    assert ctx.late(evidence, "any")
    assert "budget" in evidence.findings()[0].reason


def test_both_modes_give_what_json_carries():
    assert Context([CLAIM]).once("piece", 0, lambda: (1, 2)) == [1, 2]
