"""Measurements of live models have every field that a fit needs, and say what makes them worth less."""

import importlib.util
import logging
import sys
from pathlib import Path

import pytest
import torch

from thrifty.inference.speculation import (
    fit_speculation_model,
    generation_row,
    measure_generation,
    passes,
    profile_generation,
    profile_target,
)
from thrifty.inference.speculation.measure import steady_rate

spec = importlib.util.spec_from_file_location("speculation_tiny", Path(__file__).with_name("tiny.py"))
tiny = sys.modules.setdefault("speculation_tiny", importlib.util.module_from_spec(spec))
spec.loader.exec_module(tiny)


def test_a_profile_has_a_row_a_cell_and_can_be_fitted(caplog):
    target, draft = tiny.qwen_moe(), tiny.llama()
    target.set_experts_implementation("batched_mm")
    seen = []
    with caplog.at_level(logging.WARNING):
        rows = profile_target(
            target, [1, 2, 4], [2, 4], context=5, repeats=2, draft=draft, progress=lambda d, t: seen.append((d, t))
        )
    assert [(row.batch_size, row.verify_tokens) for row in rows] == [(b, s) for b in (1, 2, 4) for s in (1, 2, 4)]
    for row in rows:
        assert row.gamma == row.verify_tokens - 1
        assert (row.num_experts, row.top_k, row.context, row.repeats) == (8, 2, 5, 2)
        assert row.t_ar_ms > 0
        assert row.t_draft_ms > 0
        assert (row.t_verify_ms is None) == (row.verify_tokens == 1)
        assert 2 <= row.active_experts <= 8
    alone = next(row for row in rows if (row.batch_size, row.verify_tokens) == (1, 1))
    assert alone.active_experts == 2
    assert seen[-1][0] == seen[-1][1]
    assert "caches" in caplog.text  # a tiny model
    assert "batched_mm" in caplog.text
    assert set(target.get_experts_implementation().values()) == {"batched_mm"}
    fitted = fit_speculation_model(rows).model
    assert float(fitted.target_time(2)) > 0


def test_a_sample_is_the_time_of_one_step_without_what_comes_before(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(passes.time, "perf_counter", lambda: clock[0])

    def takes(seconds):
        return lambda: clock.__setitem__(0, clock[0] + seconds)

    cell = passes._Cell([takes(0.008), takes(0.016)], steps=4, before=takes(5.0))
    cell.sample(lambda: None)
    assert cell.samples == [pytest.approx(3.0)]


def test_text_is_read_in_place_of_random_tokens():
    text = torch.full((30,), 7)
    (row,) = profile_target(tiny.qwen_moe(), [4], [1], context=3, repeats=1, text=text)
    assert row.active_experts == 2  # the same token everywhere goes to the same experts
    with pytest.raises(ValueError, match="at least 40 tokens"):
        profile_target(tiny.qwen_moe(), [1], [1], context=39, repeats=1, text=text)


def test_generations_become_rows():
    target = tiny.qwen_moe()
    draft = tiny.disturbed(target, 0.1)
    ids, _ = tiny.prompts((4, 4, 4))
    found = measure_generation(target, draft, ids, [0, 2], new_tokens=8, repeats=2)
    assert [len(stats) for stats in found.values()] == [2, 2]
    row = generation_row(target, found[2], found[0], 3, 2)
    assert (row.batch_size, row.gamma, row.verify_tokens, row.num_experts, row.top_k) == (3, 2, 3, 8, 2)
    assert 1 / 3 <= row.sigma <= 1
    assert row.speedup == pytest.approx(steady_rate(found[2], 3) / steady_rate(found[0], 3))
    assert min(row.t_ar_ms, row.t_verify_ms, row.t_draft_ms, row.t_reject_ms) > 0
    with pytest.raises(ValueError, match="at least 1, got 0"):
        generation_row(target, found[0], found[0], 3, 0)
    with pytest.raises(ValueError, match="all 9 requests"):
        steady_rate(found[2], 9)


def test_an_implementation_that_serving_has_not_is_not_timed():
    with pytest.raises(ValueError, match="batched_mm"):
        profile_target(tiny.qwen_moe(), [1], [1], context=3, repeats=1, experts="batched_mm")


def test_generations_are_profiled_over_batch_sizes_and_lengths():
    target = tiny.qwen_moe()
    rows = profile_generation(target, target, [1, 3], [1, 2], context=4, new_tokens=9, repeats=1)
    assert [(row.batch_size, row.gamma, row.context) for row in rows] == [(1, 1, 4), (1, 2, 4), (3, 1, 4), (3, 2, 4)]
    assert all(row.sigma == 1 for row in rows)  # the target is always right
    with pytest.raises(ValueError, match="gammas"):
        profile_generation(target, target, [1], [0])


def test_bad_arguments():
    for batches, widths, more in (
        ([0], [1], {}),
        ([1], [0], {}),
        ([1], [1], {"repeats": 0}),
        ([1], [1], {"context": -1}),
    ):
        with pytest.raises(ValueError, match="at least"):
            profile_target(tiny.qwen_moe(), batches, widths, **more)
