"""Ledgers and deltas add up, and facts that are missing are named."""

import pytest

from thrifty._common.ledger import Entry, Ledger, LedgerDelta, Resource, Workload


def entry(resource, amount):
    return Entry(resource, amount, "a · b", "eq. 1")


def test_deltas_add_entry_by_entry():
    first = LedgerDelta((entry(Resource.WEIGHTS, -10),), price=("slower",))
    second = LedgerDelta((entry(Resource.WEIGHTS, 4), entry(Resource.FLOPS, 7)), preconditions=("square",))
    both = first + second
    assert both.total(Resource.WEIGHTS) == -6
    assert both.total(Resource.FLOPS) == 7
    assert (both.price, both.preconditions, both.applies) == (("slower",), ("square",), True)
    assert not (both + LedgerDelta.not_applicable("no text here")).applies


def test_a_ledger_takes_a_delta():
    ledger = Ledger((entry(Resource.WEIGHTS, 100), entry(Resource.SECONDS, 2)))
    after = ledger + LedgerDelta((entry(Resource.WEIGHTS, -30),))
    assert after.total(Resource.WEIGHTS) == 70
    assert after.total(Resource.SECONDS) == 2
    assert ledger.total(Resource.WEIGHTS) == 100


def test_units():
    assert Resource.WEIGHTS.unit == Resource.KV_CACHE.unit == "bytes"
    assert Resource.SECONDS.unit == "s"


def test_a_workload_names_the_fact_that_is_missing():
    workload = Workload("tabular classification", {"rows": 100, "model": "CART"})
    assert workload.number("rows") == 100
    assert workload.number("features", 3) == 3
    with pytest.raises(ValueError, match="'features' is needed for this prediction; the facts given are: rows, model"):
        workload.number("features")
    with pytest.raises(ValueError, match="'model' must be a number, got 'CART'"):
        workload.number("model")
