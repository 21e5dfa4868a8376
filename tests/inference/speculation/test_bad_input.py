"""What is no probability, no count, no model and no file of measurements is refused in one line that names it."""

import math
from dataclasses import replace

import pytest

from thrifty.inference.speculation import (
    Acceptance,
    GammaController,
    Hardware,
    Row,
    Schedule,
    SpeculationModel,
    estimate_alpha,
    expected_active_experts,
    fit_speculation_model,
    profitable_batches,
    read_sglang_bench,
    read_vllm_bench,
    recommend_schedule,
    sigma_of_alpha,
)

NAN = math.nan
MODEL = SpeculationModel(64, 8, 75.0, 1.02, 2.0, 0.05, 0.3, 0.1, 2.0, 0.01, 0.0, 0.0)
SOME = Acceptance.from_rate(0.7)
ROWS = [Row(b, gamma=3, num_experts=8, top_k=2, t_ar_ms=1.0 + b, t_verify_ms=2.0 + b) for b in (1, 2, 4, 8)]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Acceptance.from_rate("a"), "alpha: expected a probability"),
        (lambda: Acceptance.from_rate(None), "alpha: expected a probability"),
        (lambda: Acceptance.from_sigma(0.5, 1.5), "gamma: expected a draft length of at least 1, got 1.5"),
        (lambda: Acceptance.from_sigma("a", 2), "sigma: expected"),
        (lambda: Acceptance.from_engine_rate("a", 2), "rate: expected"),
        (lambda: Acceptance("ab", 0.5), "acceptance: expected probabilities"),
        (lambda: sigma_of_alpha(NAN, 3), "alpha: expected probabilities in"),
        (lambda: sigma_of_alpha([0.5, 1.1], 3), "alpha: expected probabilities in"),
        (lambda: sigma_of_alpha(0.5, 0), "gamma: expected a draft length"),
        (lambda: estimate_alpha(["a"], 3), "accepted: expected whole numbers"),
        (lambda: estimate_alpha([1.5], 3), "accepted: expected whole numbers"),
        (lambda: expected_active_experts(1, 8.5, 2), "num_experts: expected a whole number, got 8.5"),
        (lambda: replace(MODEL, bias="a"), "bias: expected milliseconds of at least 0, got 'a'"),
        (lambda: replace(MODEL, num_experts=64.5), "num_experts: expected a whole number"),
        (lambda: replace(MODEL, block_experts="a"), "block_experts: expected numbers"),
        (lambda: replace(MODEL, measured_batches=(5, 1)), "measured_batches: expected the smallest and the largest"),
        (lambda: MODEL.scaled(0), "factor: expected a positive number"),
        (lambda: MODEL.expert_parallel(1.5), "degree: expected a number of devices"),
        (lambda: Row(1, sigma=2), "sigma: expected a number"),
        (lambda: fit_speculation_model([1, 2]), "rows: expected a list of Row"),
        (lambda: fit_speculation_model(ROWS, hardware="H100"), "hardware: expected a Hardware, got 'H100'"),
        (lambda: fit_speculation_model(ROWS, target="x"), "target: expected a MoEShape"),
        (lambda: recommend_schedule(None, SOME, max_batch=4), "model: expected SpeculationModel"),
        (lambda: recommend_schedule(MODEL, 0.7, max_batch=4), "acceptance: expected Acceptance"),
        (lambda: recommend_schedule(MODEL, SOME, max_batch=1.5), "max_batch: expected a whole number"),
        (lambda: recommend_schedule(MODEL, SOME, max_batch=4, min_gain=NAN), "min_gain: expected"),
        (lambda: recommend_schedule(MODEL, SOME, max_batch=4, min_gain=-1), "min_gain: expected"),
        (lambda: Schedule(((1, 4, 2),)).to_vllm(data_parallel=0), "data_parallel: expected a whole number"),
        (lambda: profitable_batches(MODEL, 3, SOME, margin=NAN), "margin: expected a finite number"),
        (lambda: Hardware.calibrate("tpu"), "device: expected"),
        (lambda: Hardware.calibrate(dtype="int3"), "dtype: expected one of"),
        (lambda: Hardware.calibrate(seconds=-1), "seconds: expected"),
        (lambda: GammaController(None), "model: expected a SpeculationModel"),
    ],
)
def test_arguments_that_are_none(call, says):
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        call()


@pytest.mark.parametrize(
    "given",
    [
        {"every": 0},
        {"every": 1.5},
        {"forget": 2},
        {"forget": NAN},
        {"min_switch": -1},
        {"min_gain": NAN},
        {"probe": (0, 1)},
        {"probe": "ab"},
        {"correct": "no"},
    ],
)
def test_settings_of_a_controller(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}: expected"):
        GammaController(MODEL, **given)


def test_logs_in_another_encoding(tmp_path):
    path = tmp_path / "bench.json"
    path.write_bytes(b"\xff")
    for read in (lambda: read_vllm_bench([path]), lambda: read_sglang_bench([path], gamma=3)):
        with pytest.raises(ValueError, match=r"bench\.json: expected text in UTF-8"):
            read()
