"""Equations 8 to 11 against printed values, enumeration, a Monte Carlo, and each other."""

import numpy as np
import pytest

from thrifty.inference.speculation.activation import expected_active_experts, full_activation_tokens, tokens_per_expert
from thrifty.inference.speculation.roofline import roofline, roofline_scale, scaled_roofline


def test_active_experts_are_those_of_equation_8():
    found = expected_active_experts([1, 2, 4, 8, 16, 32], 64, 8)
    assert found == pytest.approx([8, 15, 26.4844, 42.0090, 56.4437, 63.1079], abs=1e-4)
    assert expected_active_experts(4, 8, 2) == pytest.approx(5.46875)
    assert expected_active_experts(16, 60, 4) == pytest.approx(40.1052, abs=1e-4)
    assert expected_active_experts(64, 256, 8) == pytest.approx(222.4425, abs=1e-4)
    assert expected_active_experts([0, 1, 7], 8, 8).tolist() == [0, 8, 8]


def test_active_experts_agree_with_random_subsets():
    rng = np.random.default_rng(0)
    draws = [len(set(np.concatenate([rng.permutation(16)[:3] for _ in range(5)]))) for _ in range(4000)]
    assert np.mean(draws) == pytest.approx(float(expected_active_experts(5, 16, 3)), abs=0.1)


def test_a_router_that_is_not_uniform_wakes_fewer():
    probs = np.array([0.9, 0.5, 0.3, 0.3])
    t = 3
    assert expected_active_experts(t, 4, 2, router_probs=probs) == pytest.approx((1 - (1 - probs) ** t).sum())
    assert expected_active_experts(t, 4, 2, router_probs=probs) < expected_active_experts(t, 4, 2)
    uniform = expected_active_experts([1, 5], 4, 2, router_probs=[0.5] * 4)
    assert uniform == pytest.approx(expected_active_experts([1, 5], 4, 2))


def test_blocks_of_independent_tokens_give_equation_8_back():
    batch, width = np.array([1, 4, 9]), 3
    block = expected_active_experts(width, 32, 4)
    found = expected_active_experts(batch, 32, 4, block_experts=block)
    assert found == pytest.approx(expected_active_experts(batch * width, 32, 4))


def test_tokens_per_expert_rises_with_density():
    assert tokens_per_expert(64, 64, 8) == pytest.approx(8.0016, abs=1e-4)
    assert tokens_per_expert(1, 64, 8) == pytest.approx(1)
    assert tokens_per_expert([1, 7, 50], 6, 6) == pytest.approx([1, 7, 50])
    for t in (1.5, 2, 10, 200):
        assert np.all(np.diff(tokens_per_expert(t, 64, np.arange(1, 65))) > 0)


def test_full_activation_is_the_first_batch_above_the_threshold():
    found = [full_activation_tokens(*pair) for pair in ((64, 8), (8, 2), (60, 4), (256, 8))]
    assert found == [23, 11, 44, 95]
    for (experts, k), t in zip(((64, 8), (8, 2), (60, 4), (256, 8)), found, strict=True):
        assert expected_active_experts(t - 1, experts, k) < 0.95 * experts <= expected_active_experts(t, experts, k)
    assert full_activation_tokens(4, 4) == 1


def test_the_roofline_and_its_tangent():
    assert roofline([10, 40, 100], 20, 1.05) == pytest.approx([1.6288946, 5.2423943, 13.0096842], abs=1e-7)
    h = 1e-6
    below, above = (
        (roofline(20, 20, 1.05) - roofline(20 - h, 20, 1.05)) / h,
        (roofline(20 + h, 20, 1.05) - roofline(20, 20, 1.05)) / h,
    )
    assert below == pytest.approx(0.1294548, abs=1e-5)
    assert above == pytest.approx(0.1294548, abs=1e-5)


def test_the_scaled_form_is_the_same_and_does_not_overflow():
    t = np.array([1, 19.9, 20, 33, 500])
    direct = np.where(t <= 20, 1.05**t, 1.05**20 * (1 + np.log(1.05) * (t - 20)))
    assert roofline(t, 20, 1.05) == pytest.approx(direct, rel=1e-12)
    assert scaled_roofline(t, 20, 1.05) * roofline_scale(20, 1.05) == pytest.approx(direct, rel=1e-12)
    assert np.all(np.isfinite(scaled_roofline([1, 5000], 2000, 2.0)))
    assert scaled_roofline([5, 25], 20, float("inf")).tolist() == [0, 5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_active_experts(1, 4, 5), "top_k"),
        (lambda: expected_active_experts(1, 4, 0), "top_k"),
        (lambda: expected_active_experts(-1, 4, 2), "tokens"),
        (lambda: expected_active_experts(float("nan"), 4, 2), "tokens"),
        (lambda: expected_active_experts(1, 4, 2, router_probs=[0.5] * 3), "router_probs"),
        (lambda: expected_active_experts(1, 4, 2, router_probs=[0.9] * 4), "router_probs"),
        (lambda: expected_active_experts(1, 4, 2, block_experts=5), "block_experts"),
        (lambda: expected_active_experts(1, 4, 2, block_experts=2, router_probs=[0.5] * 4), "at most one"),
        (lambda: tokens_per_expert(0, 4, 2), "tokens"),
        (lambda: full_activation_tokens(4, 2, 1.0), "threshold"),
        (lambda: roofline(1, 20, 1.0), "growth"),
        (lambda: roofline(1, 0, 1.1), "ridge"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
