"""What makes a claim hold."""

import re

import pytest

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Claim, Gate, Measurement, Target, judge, pooled_deviation
from thrifty.bench.evidence import Evidence

GATE = Gate("error", margin=0.01)
COST = Claim("half", "Half the bytes.", "bytes", "ratio", ("ours", "rival"), Target("<=", 0.5), GATE)


def ratio(*values):
    return Measurement.of(values, "ratio")


@pytest.mark.parametrize(
    ("measured", "gate", "status"),
    [
        (ratio(0.5), ([0.1], [0.1]), "holds"),
        (ratio(0.4), ([0.11], [0.1]), "holds"),  # worse by no more than the margin
        (ratio(0.4), ([0.12], [0.1]), "cheaper but worse"),
        (ratio(0.4, 0.4), ([0.1, 0.12], [0.2, 0.1]), "cheaper but worse"),  # one seed is enough
        (ratio(0.6), ([0.1], [0.1]), "falls short"),
        (ratio(0.6), ([0.9], [0.1]), "falls short"),  # neither cheaper nor as good
        (ratio(0.1, 0.2, 0.9), ([0.1] * 3, [0.1] * 3), "holds"),  # the median counts
    ],
)
def test_a_cost_claim_holds_only_at_equal_quality(measured, gate, status):
    assert judge(COST, measured, gate=gate).status == status


def test_a_gate_knows_which_direction_is_good():
    accuracy = Gate("accuracy", margin=0.0, better="higher")
    assert accuracy.passed([0.9], [0.8])
    assert not accuracy.passed([0.8], [0.9])


@pytest.mark.parametrize(
    ("by", "ours", "passed"),
    [
        ("run", [1.0, 1.2], False),  # one run is enough
        ("mean", [1.0, 1.2], False),
        ("mean", [0.8, 1.2], True),
        ("sd", [1.0, 1.2], True),  # 0.1 worse in the mean, at a pooled deviation of 0.1
        ("sd", [1.1, 1.2], False),
        ("interval", [1.0, 1.2], True),  # of two runs the interval is wide
        ("interval", [1.1, 1.1], False),  # the same difference in both: no interval at all
        ("sd", [1.1], False),  # a single run has no spread
    ],
)
def test_a_gate_says_how_much_spread_it_forgives(by, ours, passed):
    rival = [1.0, 1.0]
    assert Gate("loss", margin=0.0, by=by).passed(ours, rival[: len(ours)]) is passed


def test_an_error_that_should_be_nothing_gates_alone():
    assert judge(COST, ratio(0.5), gate=0.01).status == "holds"
    assert judge(COST, ratio(0.5), gate=0.02).status == "cheaper but worse"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gate("loss", margin=-0.1), "margin: expected at least 0, got -0.1"),
        (lambda: Target("!=", 1.0), "op: expected one of <, <=, >=, ==, got '!='"),
        (lambda: Claim("none", "Nobody.", "quality", "ratio", ()), "'none' names no contender"),
        (lambda: Claim("fast", "Fast.", "speed", "ratio", ("ours",)), "'fast': about: expected one of FLOPs, "),
        (lambda: Evidence([COST, COST], "full"), "two have the same id among half, half"),
    ],
)
def test_claims_that_mean_nothing_cannot_be_written(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_a_cost_claim_without_a_gate_cannot_be_written():
    with pytest.raises(ValueError, match="'half' is about time: it needs a gate"):
        Claim("half", "Half the time.", "time", "ratio", ("ours",), Target("<=", 0.5))


def test_a_claim_without_target_is_reported():
    claim = Claim("gap", "The gap.", "quality", "ratio", ("ours",))
    assert judge(claim, ratio(3.0)).status == "reported"


def test_numbers_that_do_not_belong_to_the_claim_are_refused():
    with pytest.raises(ValueError, match="claim 'half' is in ratio, got s"):
        judge(COST, Measurement.of(1, "s"), gate=([0], [0]))
    with pytest.raises(ValueError, match="needs the numbers of its gate"):
        judge(COST, ratio(0.1))
    with pytest.raises(ValueError, match="one number a run in each, got 1 and 2"):
        judge(COST, ratio(0.1), gate=([0], [0, 1]))
    with pytest.raises(ValueError, match="all finite"):
        ratio(float("nan"))


def test_ratios_are_taken_run_by_run():
    measured = Measurement.of([2, 9], "s", timed=True).over(Measurement.of([4, 3], "s", timed=True))
    assert measured == Measurement((0.5, 3.0), "ratio", timed=True)
    assert Measurement.of(0, "MB").over(Measurement.of(0, "MB")).median == 1.0
    with pytest.raises(ValueError, match="all finite"):
        Measurement.of(1, "MB").over(Measurement.of(0, "MB"))
    with pytest.raises(ValueError, match="expected 1 runs in MB, got 1 in s"):
        Measurement.of(1, "MB").over(Measurement.of(1, "s"))


def test_every_claim_is_listed_even_if_nothing_was_measured():
    at_scale = Claim("at-scale", "Large.", "quality", "ratio", ("ours",), Target("<=", 1.0), budget="full")
    found = Evidence([COST, at_scale], "quick").findings("out of time")
    assert [(finding.status, finding.reason) for finding in found] == [
        ("cannot show", "out of time"),
        ("cannot show", "needs --full"),
    ]


def test_a_finding_of_an_unknown_claim_is_refused():
    with pytest.raises(KeyError, match=r"'third' is not among this method's claims \(half\)"):
        Evidence([COST], "quick").measured("third", ratio(1))


def test_what_is_measured_side_by_side_is_subtracted_run_by_run():
    ours, theirs = Measurement.of([1.0, 2.0], "nats"), Measurement.of([0.5, 3.0], "nats", timed=True)
    assert ours.minus(theirs) == Measurement.of([0.5, -1.0], "nats", timed=True)
    with pytest.raises(ValueError, match="expected 2 runs in nats, got 1 in nats"):
        ours.minus(Measurement.of(1.0, "nats"))


def test_the_interval_of_a_mean_is_students():
    stats = pytest.importorskip("scipy.stats")
    values = [0.2, 0.5, 0.1, 0.9]
    wanted = stats.ttest_1samp(values, 0).confidence_interval()
    assert Measurement.of(values, "nats").interval() == pytest.approx((wanted.low, wanted.high))
    with pytest.raises(ValueError, match="at least two runs"):
        Measurement.of(1.0, "nats").interval()


def test_a_claim_whose_contender_failed_says_so():
    evidence = Evidence([COST], "full")
    evidence.row("another", {}, error="no matter")
    evidence.row("rival", {}, error="not installed: pip install rival")
    (finding,) = evidence.findings()
    assert (finding.status, finding.reason) == ("cannot show", "rival: not installed: pip install rival")


@pytest.mark.parametrize("absent", [UnavailableError("no data"), ImportError("no package")])
def test_claims_whose_data_is_absent_say_so_and_the_run_goes_on(absent):
    evidence = Evidence([COST], "full")
    with evidence.needs("half"):
        raise absent
    assert evidence.findings()[0].reason == str(absent)
    with pytest.raises(KeyError), evidence.needs("half"):
        raise KeyError("a fault in the experiment")


def test_curves_are_plots_of_plain_numbers():
    evidence = Evidence([], "full")
    evidence.curves("Loss", "step", "nats", {"ours": (range(2), [1, 0.5])}, log_y=True)
    evidence.curves("Size", "", "MB", {"ours": (["a", "b"], [1, 2])}, kind="bar")
    line, bars = evidence.to_json()["plots"]
    assert line["series"] == ({"label": "ours", "x": (0.0, 1.0), "y": (1.0, 0.5)},)
    assert (line["kind"], line["log_x"], line["log_y"]) == ("line", False, True)
    assert (bars["kind"], bars["series"][0]["x"]) == ("bar", ("a", "b"))


def test_the_pooled_deviation_is_the_root_of_the_mean_variance():
    assert pooled_deviation([1.0, 3.0], [0.0, 4.0]) == pytest.approx(((2.0 + 8.0) / 2) ** 0.5)
