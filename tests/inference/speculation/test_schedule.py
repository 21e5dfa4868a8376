"""The schedule is the exhaustive optimum, in the formats that engines read, and says when speculation will not help."""

import json
from dataclasses import replace

import numpy as np
import pytest

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.schedule import (
    Schedule,
    best_gammas,
    goodput,
    merge,
    one_sided,
    recommend_schedule,
    why_not,
)

MIXTURE = SpeculationModel(
    64, 4, 30.0, 1.02, 2.0, 0.05, 0.3, 0.3, 0.8, 0.01, 0.05, 0.001, measured_batches=(1, 512), source="fitted to times"
)
ACCEPTANCE = Acceptance.from_rate(0.6)


@pytest.mark.parametrize("min_gain", [0.03, 0.3])
def test_every_batch_gets_the_best_length_by_brute_force(min_gain):
    schedule = recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=300, max_gamma=6, min_gain=min_gain)
    assert (0 in {gamma for _, _, gamma in schedule.entries}) == (min_gain == 0.3)
    for batch in range(1, 301):
        rates = [float(ACCEPTANCE.expected_tokens(g) / MIXTURE.round_time(batch, g)) for g in range(7)]
        shortest = next(g for g in range(7) if rates[g] >= 0.99 * max(rates))
        expected = shortest if rates[shortest] >= (1 + min_gain) * rates[0] else 0
        assert schedule.gamma(batch) == expected, batch
        gain = rates[expected] / rates[0]
        assert schedule.gains[batch - 1] == pytest.approx(gain)
        assert gain == pytest.approx(float(MIXTURE.speedup(batch, expected, ACCEPTANCE)))


def test_the_best_length_is_not_monotone_so_a_one_sided_rule_loses():
    schedule = recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=300, max_gamma=6)
    lengths = [gamma for _, _, gamma in schedule.entries]
    top = lengths.index(max(lengths))
    assert 0 < top < len(lengths) - 1
    assert not schedule.falls_only
    table = goodput(MIXTURE, np.arange(1, 301), np.arange(7), ACCEPTANCE)
    chosen = best_gammas(table)
    ours = np.mean(table[chosen, np.arange(300)] / table.max(axis=0))
    _, _, theirs = one_sided(table)
    assert ours > theirs + 0.005


def test_entries_are_contiguous_from_one():
    schedule = recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=257)
    assert schedule.entries[0][0] == 1
    assert schedule.entries[-1][1] == 257
    for (_, last, a), (first, _, b) in zip(schedule.entries, schedule.entries[1:], strict=False):
        assert first == last + 1
        assert a != b
    assert schedule.gamma(10_000) == schedule.entries[-1][2]
    assert merge(np.array([2])) == ((1, 1, 2),)


def test_vllm_reads_its_own_format():
    """A list of [first, last, tokens], inclusive, from 1, sorted, and no longer than num_speculative_tokens."""
    schedule = Schedule(((1, 3, 0), (4, 64, 4), (65, 128, 2)))
    config = json.loads(json.dumps(schedule.to_vllm()))
    assert config == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 3, 0], [4, 64, 4], [65, 128, 2]],
    }
    assert schedule.to_vllm(6)["num_speculative_tokens"] == 6
    with pytest.raises(ValueError, match="clamp"):
        schedule.to_vllm(3)
    with pytest.raises(ValueError, match="data_parallel"):
        schedule.to_vllm(data_parallel=2)


def test_sglang_reads_its_own_format():
    schedule = Schedule(((1, 3, 1), (4, 64, 4), (65, 128, 0)))
    assert json.loads(json.dumps(schedule.to_sglang())) == {
        "1": {"candidate_steps": [1]},
        "4": {"candidate_steps": [4]},
        "65": {"candidate_steps": [0]},
    }


def test_a_draft_that_is_too_large_is_recommended_against():
    """9 B for 17 B of active weights (ml-explore/mlx-lm#1132): off everywhere, and why."""
    heavy = SpeculationModel(128, 8, 1e3, float("inf"), 5.0, 0.0, 0.3, 0.0, 6.0, 0.0, 0.0, 0.0, measured_batches=(1, 8))
    schedule = recommend_schedule(heavy, Acceptance.from_rate(0.7), max_batch=8)
    assert schedule.entries == ((1, 8, 0),)
    assert schedule.gains == (1.0,) * 8
    assert "drafting 0.8" in schedule.warnings[0]
    for export in (schedule.to_vllm, schedule.to_sglang):
        with pytest.raises(ValueError, match="pays at no batch size"):
            export()
    assert "plain steps" in why_not(heavy, 1, ACCEPTANCE)


def test_extrapolation_and_priors_are_said():
    assert "extrapolated above batch 512" in " ".join(recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=600).warnings)
    late = replace(MIXTURE, measured_batches=(16, 512))
    assert "extrapolated below batch 16" in " ".join(recommend_schedule(late, ACCEPTANCE, max_batch=32).warnings)
    prior = SpeculationModel(8, 2, 50.0, 1.02, 2.0, 0.05, 0.3, 0.3, 0.1, 0, 0, 0, source="prior, not fitted")
    assert "prior, not fitted" in " ".join(recommend_schedule(prior, ACCEPTANCE, max_batch=8).warnings)


def test_the_reason_is_that_of_the_context_asked_for():
    heavy = replace(MIXTURE, draft_bias=50.0, kv_target=1e-3)
    at = {context: recommend_schedule(heavy, ACCEPTANCE, max_batch=4, context=context) for context in (0.0, 2000.0)}
    assert all(schedule.entries == ((1, 4, 0),) for schedule in at.values())
    assert at[0.0].warnings[0] != at[2000.0].warnings[0]


def test_what_a_schedule_takes_for_granted_is_said():
    said = " ".join(recommend_schedule(MIXTURE, Acceptance.from_survival([0.9, 0.85]), max_batch=64).warnings)
    assert "acceptance is known up to position 2; up to 7 it is taken to go on falling" in said
    assert "cost nothing" not in said
    assert "known up to" not in " ".join(recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=64).warnings)
    free = replace(MIXTURE, draft_bias=0.0, draft_slope=0.0)
    assert "drafts cost nothing" in " ".join(recommend_schedule(free, ACCEPTANCE, max_batch=64).warnings)


@pytest.mark.parametrize("entries", [(), ((5, 9, 2), (1, 4, 7)), ((1, 3, 1), (5, 9, 2)), ((1, 0, 1),), ((1, 3, -1),)])
def test_schedules_have_neither_gaps_nor_overlaps(entries):
    with pytest.raises(ValueError, match="entries: expected"):
        Schedule(entries)


def test_one_sided_is_the_best_of_its_kind():
    table = np.array([[1.0, 1.0, 1.0, 1.0], [0.5, 2.0, 2.0, 0.5]])
    gamma, on, share = one_sided(table)
    assert (gamma, on) == (1, 3)
    assert share == pytest.approx((0.5 + 1 + 1 + 1) / 4)


def test_bad_arguments():
    with pytest.raises(ValueError, match="max_batch"):
        recommend_schedule(MIXTURE, ACCEPTANCE, max_batch=0)
    with pytest.raises(ValueError, match="batch"):
        Schedule(((1, 2, 1),)).gamma(0)
