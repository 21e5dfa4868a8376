"""Where speculation pays: intervals, sweeps, and the orderings that the paper reports."""

from dataclasses import replace

import numpy as np
import pytest

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.analysis import (
    adjust,
    compare,
    dense_twin,
    hardware_sweep,
    profitable_batches,
    regimes,
    sparsity_sweep,
)
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.shapes import MoEShape

MODEL = SpeculationModel(64, 8, 40.0, 1.02, 2.0, 0.05, 0.3, 0.1, 1.0, 0.01, 0.05, 0.001)
ACCEPTANCE = Acceptance.from_rate(0.8)


def test_profitable_batches_are_where_speedup_exceeds_one():
    for alpha in (0.3, 0.5, 0.7, 0.9):
        acceptance = Acceptance.from_rate(alpha)
        inside = np.zeros(400, bool)
        for first, last in profitable_batches(MODEL, 4, acceptance, max_batch=400):
            inside[first - 1 : last] = True
        assert np.array_equal(inside, MODEL.speedup(np.arange(1, 401), 4, acceptance) > 1)
    with pytest.raises(ValueError, match="max_batch"):
        profitable_batches(MODEL, 4, ACCEPTANCE, max_batch=0)


def test_there_may_be_two_intervals():
    """One request alone speculates well, a few load too many experts, many share them."""
    low = SpeculationModel(64, 1, 1e4, float("inf"), 4.0, 0.0, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0)
    found = profitable_batches(low, 2, Acceptance.from_rate(0.6), max_batch=400)
    assert len(found) == 2
    assert found[0][0] == 1


def test_sparser_is_broader():
    batches = np.arange(1, 513)
    table = sparsity_sweep(replace(MODEL, dense_slope=0.01, draft_bias=0.1), [4, 8, 16], batches, 4, ACCEPTANCE)
    wide = (table > 0.9 * table.max(axis=1, keepdims=True)).sum(axis=1)
    assert wide[0] > wide[1] > wide[2]
    assert np.argmax(table[0]) > np.argmax(table[1]) > np.argmax(table[2])


def test_sigma_adjustment_removes_the_acceptance():
    other = Acceptance.from_rate(0.5)
    adjusted = sparsity_sweep(MODEL, [4, 8], [1, 16], 4, {4: other, 8: ACCEPTANCE}, reference=ACCEPTANCE)
    assert adjusted == pytest.approx(sparsity_sweep(MODEL, [4, 8], [1, 16], 4, ACCEPTANCE))
    assert adjust(np.array([1.0]), other, ACCEPTANCE, 4) == pytest.approx(0.67232 / other.sigma(4))


def test_regimes():
    found = regimes(MODEL, 4)
    assert found.saturated == 23
    assert found.experts_bound == pytest.approx(40 * 64 / (8 * 5))
    assert found.dense_bound == pytest.approx(8)


def test_a_mixture_beats_its_dense_twin_at_medium_batch():
    found = compare({"mixture": MODEL, "dense": dense_twin(MODEL)}, [1, 32], 4, ACCEPTANCE)
    assert found["mixture"]["target efficiency"][1] > found["dense"]["target efficiency"][1]
    assert found["mixture"]["target efficiency"][0] < found["dense"]["target efficiency"][0]


def test_the_papers_orderings_of_hardware():
    """A higher ridge point gives a larger speed-up; more devices for the target and not the draft a smaller one."""
    target, draft = MoEShape.from_config("qwen2-57b-a14b"), MoEShape.from_config("qwen2-0.5b")
    high = Acceptance.from_sigma(0.9, 4)
    devices = [Hardware.from_name("a800-80gb", count=2), Hardware.from_name("h800", count=2)]
    a, b = hardware_sweep(target, draft, devices, np.arange(1, 257), 4, high).max(axis=1)
    assert b > a
    four = hardware_sweep(target, draft, [devices[0].split(4)], np.arange(1, 257), 4, high).max()
    assert four < a
