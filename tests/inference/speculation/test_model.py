"""The cost model: Algorithm 1's numbers, its limits, the published tables, files."""

import json
from dataclasses import replace

import numpy as np
import pytest

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.model import SpeculationModel

PAPER = {
    "num_experts": 64, "top_k": 8, "bias": 2, "k1": 0.5, "k2": 0.3, "k3": 0.2, "draft_bias": 0.4, "draft_k": 0.02,
    "reject_bias": 0.05, "reject_k": 0.001, "ridge": 75, "growth": 1.02,
}  # fmt: skip
MODEL = SpeculationModel.from_paper(**PAPER, verify_width="gamma")

#: Table 1, 2 and appendix: setting, γ, σ, T_AR, T_SD, speed-up (units are not stated: ratios only).
PUBLISHED = [
    ("2×B, Qwen2, HumanEval", 2, 0.95, 15.96, 9.34, 1.71),
    ("2×B, Qwen2, HumanEval", 3, 0.93, 15.96, 7.95, 2.01),
    ("2×B, Qwen2, HumanEval", 4, 0.90, 15.96, 6.96, 2.29),
    ("2×A, Qwen2, HumanEval", 2, 0.94, 18.89, 11.61, 1.63),
    ("2×A, Qwen2, HumanEval", 3, 0.93, 15.93, 8.11, 1.96),
    ("2×A, Qwen2, HumanEval", 4, 0.91, 15.93, 7.31, 2.18),
    ("4×A, Qwen2, HumanEval", 4, 0.90, 11.20, 5.38, 2.08),
    ("4×C, Qwen2, HumanEval", 4, 0.90, 17.84, 7.94, 2.25),
    ("2×A, Qwen2, HumanEval, T=1", 4, 0.67, 19.13, 11.14, 1.72),
    ("2×A, Qwen2, MT-bench", 2, 0.71, 20.92, 16.70, 1.25),
    ("2×A, Qwen2, MT-bench", 3, 0.62, 16.00, 12.43, 1.29),
    ("2×A, Qwen2, MT-bench", 4, 0.55, 20.92, 17.53, 1.19),
    ("2×A, Mixtral, HumanEval", 4, 0.58, 20.86, 11.69, 1.79),
    ("2×A, Mixtral, MT-bench, T=1", 4, 0.35, 21.33, 18.05, 1.18),
]


def test_algorithm_1():
    sigma = Acceptance.from_sigma(0.9, 4)
    assert MODEL.target_time(16) == pytest.approx(19.828691, abs=1e-6)
    assert MODEL.target_time(16, 4) == pytest.approx(23.206355, abs=1e-6)
    assert MODEL.draft_time(16) == pytest.approx(0.427456, abs=1e-6)
    assert MODEL.reject_time(16) == pytest.approx(0.066)
    assert MODEL.speedup(16, 4, sigma) == pytest.approx(3.571711, abs=1e-6)
    assert replace(MODEL, verify_width="gamma+1").speedup(16, 4, sigma) == pytest.approx(3.479299, abs=1e-6)
    back = MODEL.paper_parameters()
    assert {name: back[name] for name in ("k1", "k2", "k3", "draft_k")} == pytest.approx(
        {"k1": 0.5, "k2": 0.3, "k3": 0.2, "draft_k": 0.02}
    )


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row[0]}, γ={row[1]}")
def test_published_speedups_follow_from_their_own_parameters(row):
    """Equation 4 with the round's cost that σ, T_AR and T_SD imply gives each printed speed-up."""
    _, gamma, sigma, plain, speculative, printed = row
    acceptance = Acceptance.from_sigma(sigma, gamma)
    cost = float(acceptance.expected_tokens(gamma)) * speculative / plain  # of a round, in plain steps
    model = SpeculationModel(1, 1, 1e6, float("inf"), 1.0, 0, 0, 0, (cost - 1) / gamma, 0, 0, 0)  # verification is free
    assert model.speedup(1, gamma, acceptance) == pytest.approx(plain / speculative)
    assert model.speedup(1, gamma, acceptance) == pytest.approx(printed, abs=0.01)
    if printed == 2.29:
        assert cost == pytest.approx(1.965, abs=0.005)
        assert sigma * (gamma + 1) / 2 < printed  # what the printed denominator could reach at most


def test_limits():
    free = SpeculationModel(8, 2, 1e9, float("inf"), 1.0, 0, 0, 0, 0, 0, 0, 0)
    assert free.speedup(32, 4, Acceptance.from_rate(0.8)) == pytest.approx(5 * 0.67232)
    assert free.target_efficiency([1, 64], 5).tolist() == [1, 1]
    bound = SpeculationModel(1, 1, 1e-6, float("inf"), 0.0, 1.0, 0, 0, 0, 0, 0, 0)
    assert bound.target_efficiency(4, 5) == pytest.approx(1 / 5)
    assert MODEL.speedup([1, 7, 300], 0, Acceptance.from_rate(0.3)).tolist() == [1, 1, 1]
    full = replace(MODEL, top_k=64)
    dense = replace(full, num_experts=1, top_k=1, bias=MODEL.bias + 64 * MODEL.expert_load, expert_load=0.0)
    assert full.target_time([1, 16, 300]) == pytest.approx(dense.target_time([1, 16, 300]))


def test_the_breakdown_adds_up():
    acceptance = Acceptance.from_rate(0.8)
    parts = MODEL.breakdown(16, 4, acceptance)
    assert sum(parts["plain"].values()) == pytest.approx(float(MODEL.target_time(16)))
    assert sum(parts["round"].values()) == pytest.approx(float(MODEL.round_time(16, 4)))
    assert parts["speedup"] == pytest.approx(float(MODEL.speedup(16, 4, acceptance)))
    assert parts["round"]["draft"] == pytest.approx(4 * float(MODEL.draft_time(16)))
    assert parts["round"]["expert load"] > parts["plain"]["expert load"]


def test_target_efficiency_rises_then_falls_for_a_mixture_and_only_falls_for_a_dense_model():
    batches = 2.0 ** np.arange(11)
    mixture = SpeculationModel(64, 4, 40.0, 1.02, 1.0, 0.02, 0.2, 0.3, 0, 0, 0, 0).target_efficiency(batches, 5)
    dense = SpeculationModel(1, 1, 40.0, 1.02, 10.0, 0.3, 0, 0, 0, 0, 0, 0).target_efficiency(batches, 5)
    peak = int(np.argmax(mixture))
    assert 0 < peak < 10
    assert np.all(np.diff(mixture[2 : peak + 1]) > 0)
    assert np.all(np.diff(mixture[peak:]) < 0)
    assert np.all(np.diff(dense) < 0)


def test_context_and_expert_parallelism():
    model = replace(MODEL, kv_target=0.001, kv_draft=0.0005)
    assert model.target_time(8, context=1000) == pytest.approx(float(MODEL.target_time(8)) + 8)
    assert model.draft_time(8, context=1000) == pytest.approx(float(MODEL.draft_time(8)) + 4)
    assert model.target_efficiency(64, 5, context=30_000) > model.target_efficiency(
        64, 5
    )  # towards 1 for long contexts
    assert MODEL.expert_parallel(4).expert_load == pytest.approx(MODEL.expert_load / 4)


def test_measured_blocks_of_one_request_wake_fewer_experts():
    overlap = replace(MODEL, block_experts=(8.0, 12.0, 15.0, 17.0, 19.0))
    assert overlap.active_experts(1, [1, 5]).tolist() == pytest.approx([8, 19])
    assert overlap.active_experts(8, 5) < MODEL.active_experts(8, 5)
    assert overlap.speedup(4, 4, Acceptance.from_rate(0.8)) > MODEL.speedup(4, 4, Acceptance.from_rate(0.8))


def test_scaling_all_times_changes_no_speedup():
    acceptance = Acceptance.from_rate(0.7)
    assert MODEL.scaled(7.0).speedup([1, 30], 3, acceptance) == pytest.approx(MODEL.speedup([1, 30], 3, acceptance))


def test_files_round_trip_and_unknown_fields_are_refused(tmp_path):
    hard = replace(MODEL, growth=float("inf"), block_experts=(8.0, 12.0), measured_batches=(1, 64), measured_top_k=(8,))
    path = hard.save(tmp_path / "model.json")
    assert SpeculationModel.load(path) == hard
    with pytest.raises(FileExistsError):
        hard.save(path)
    record = json.loads(path.read_text(), parse_constant=pytest.fail)  # JSON has no infinity
    for change in ({"extra": 1}, {"version": 2}, {"bias": "x"}, {"measured_batches": [1]}):
        (tmp_path / "other.json").write_text(json.dumps(record | change))
        with pytest.raises(ValueError, match=r"other\.json"):
            SpeculationModel.load(tmp_path / "other.json")
    (tmp_path / "other.json").write_text("not JSON")
    with pytest.raises(ValueError, match="JSON"):
        SpeculationModel.load(tmp_path / "other.json")


def test_more_tokens_of_a_request_than_were_measured_wake_more_experts():
    model = replace(MODEL, block_experts=(8.0, 13.0, 17.0, 20.0))
    alone = [float(model.active_experts(1, width)) for width in (1, 4, 5, 8, 40)]
    assert alone == pytest.approx([8, 20, 23, 32, 64])
    assert float(replace(MODEL, block_experts=(8.0,)).active_experts(1, 3)) == pytest.approx(24)


def test_extrapolation_is_flagged():
    model = replace(MODEL, measured_batches=(1.0, 64.0), measured_top_k=(8,))
    assert model.extrapolated([1, 64, 65]).tolist() == [False, False, True]
    assert bool(model.extrapolated(4, top_k=2))
    assert MODEL.extrapolated([4]).tolist() == [True]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: MODEL.speedup(0, 4, Acceptance.from_rate(0.8)), ValueError, "batch"),
        (lambda: MODEL.speedup(float("nan"), 4, Acceptance.from_rate(0.8)), ValueError, "batch"),
        (lambda: MODEL.speedup(1, -1, Acceptance.from_rate(0.8)), ValueError, "gamma"),
        (lambda: MODEL.speedup(1, 4, 0.8), TypeError, "acceptance"),
        (lambda: MODEL.speedup(1, 2.5, Acceptance.from_rate(0.8)), ValueError, "whole"),
        (lambda: MODEL.target_time(4, 0), ValueError, "tokens"),
        (lambda: MODEL.target_time(4, context=-5), ValueError, "context"),
        (lambda: replace(MODEL, measured_batches=(1.0,)), ValueError, "measured_batches"),
        (lambda: replace(MODEL, bias=-1.0), ValueError, "bias"),
        (lambda: replace(MODEL, bias=float("nan")), ValueError, "bias"),
        (lambda: replace(MODEL, top_k=65), ValueError, "top_k"),
        (lambda: replace(MODEL, growth=0.9), ValueError, "growth"),
        (lambda: replace(MODEL, verify_width="all"), ValueError, "verify_width"),
        (lambda: MODEL.expert_parallel(0), ValueError, "degree"),
    ],
)
def test_what_cannot_be_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
