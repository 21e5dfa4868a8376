"""Ledgers and deltas add up, and facts that are missing are named."""

import inspect
import re
from importlib import import_module

import pytest

from thrifty._common.ledger import Entry, Ledger, LedgerDelta, Resource, Task, Workload
from thrifty.bench import registry


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


def test_tasks_are_what_people_write():
    workload = Workload("tabular classification")
    assert workload.task == Task.TABULAR_CLASSIFICATION
    assert f"{Task.LM_FINETUNING}" == "language-model fine-tuning"


@pytest.mark.parametrize(
    "method",
    [
        "solvers.trees", "solvers.ellice", "training.sumo", "training.streambp", "data.influence",
        "inference.token_reduction", "models.lrcssm",
    ],
)  # fmt: skip
def test_shared_facts_have_the_names_that_the_workload_documents(method):
    module = import_module(f"thrifty.{method}.cost")
    documented = set(re.findall(r"``(\w+)``", Workload.__doc__ + module.predict.__doc__))
    assert set(re.findall(r'number\(\s*"(\w+)"', inspect.getsource(module))) <= documented


def test_what_makes_different_things_of_one_part_does_not_go_together():
    tree, linear = LedgerDelta(assumes={"model": "a tree"}), LedgerDelta(assumes={"model": "a line", "loss": "log"})
    both = tree + linear
    assert not both.applies
    assert both.preconditions == ("the model would be both a tree and a line",)
    assert (LedgerDelta() + linear + linear).applies
    assert (LedgerDelta() + linear).assumes == linear.assumes


@pytest.mark.parametrize("method", [each for each in registry.METHODS if each.tasks], ids=lambda each: each.name)
def test_the_registry_says_what_each_method_is_for(method):
    """A predictor declines every other task, so that it need not be asked."""
    predict = import_module(f"{method.package}.cost").predict
    for task in Task:
        if task not in method.tasks:
            assert not predict(Workload(task, {})).applies, task
