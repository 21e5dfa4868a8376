import math

import numpy as np
import pytest
import torch

from thrifty.training.amorlip import amortization_objective
from thrifty.training.amorlip.objectives import OBJECTIVES
from thrifty.training.amorlip.schedules import cosine_ramp, mix, rho_at
from thrifty.training.amorlip.temperature import with_temperature

Y = torch.tensor([-1.0, -0.5, 0.5, 1.0], dtype=torch.float64)
GOLDEN = {
    "kl": [-0.36788, -0.30327, 0.82436, 2.71828],
    "gkl": [0.26424, 0.09020, 0.17564, 1.0],
    "js": [0.075879, 0.024339, 0.040128, 0.206261],
    "l2_log": [1.0, 0.25, 0.25, 1.0],
    "neuclip": [math.exp(-1), math.exp(-0.5) - 0.5, math.exp(0.5) - 1.5, math.e - 2],
}


def value(y, name, reg=0.0, **more):
    y = torch.as_tensor(y, dtype=torch.float64).reshape(-1)
    return amortization_objective(y, torch.zeros_like(y), name, div_reg=reg, **more)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name):
    np.testing.assert_allclose([value(y, name) for y in Y], GOLDEN[name], atol=5e-6)
    assert set(GOLDEN) == set(OBJECTIVES)


@pytest.mark.parametrize(
    ("name", "reg", "best"),
    [
        ("kl", 0.0, math.e),
        ("kl", 0.1, 2.0354),
        ("gkl", 0.1, 1),
        ("js", 0.1, 1),
        ("l2_log", 0.0, 1),
        ("neuclip", 0.0, 1),
    ],
)
def test_where_the_minimum_is(name, reg, best):
    log_lambda = torch.linspace(-1, 1.5, 250_001, dtype=torch.float64)
    y = -log_lambda
    ratio = OBJECTIVES[name](y, y) + reg * y.square()
    assert math.exp(log_lambda[ratio.argmin()]) == pytest.approx(best, abs=2e-4)


@pytest.mark.parametrize("name", ["gkl", "js", "l2_log"])
def test_a_mixed_target_is_still_the_minimum(name):
    """Whatever the batch's own Z, which weighs the samples."""
    log_lambda = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.3], dtype=torch.float64)
    amortization_objective(target, log_lambda, name, log_batch=target + 0.8).backward()
    assert log_lambda.grad.abs() < 1e-12


def test_kl_weighs_by_the_unmixed_batch():
    found = amortization_objective(
        torch.tensor([1.0]), torch.tensor([0.5]), "kl", log_batch=torch.tensor([2.0]), div_reg=0.0
    )
    assert found.item() == pytest.approx(math.exp(1.5) * 0.5, rel=1e-6)


@pytest.mark.parametrize(("batch", "published"), [(8, 0.2061), (64, 0.02576), (512, 0.00322)])
def test_the_authors_scaling_divides_once_too_often(batch, published):
    """Their KL, summed over both modalities, for log λ = log target − 0.5."""
    both = 2 * value(torch.full((batch,), 0.5), "kl", official_scaling=True)
    assert both.item() == pytest.approx(published, rel=2e-3)
    assert both.item() * batch / 2 == pytest.approx(0.82436, abs=5e-6)
    ours = 2 * value(torch.full((batch,), 0.5), "kl")
    assert ours.item() == pytest.approx(2 * 0.82436, abs=1e-5)
    assert value(0.5, "js", 0.1, official_scaling=True) == value(0.5, "js", 0.1)  # of one sample
    with_share = value(torch.full((batch,), 0.5), "kl", 0.1, official_scaling=True)
    assert with_share.item() == pytest.approx(0.82436 / batch + 0.1 * 0.25, abs=1e-6)  # the share is not divided


def test_the_authors_scaling_belongs_to_their_objectives():
    for name in ("l2_log", "gkl", "neuclip"):
        with pytest.raises(ValueError, match="official_scaling: expected the objective kl or js"):
            value(0.5, name, official_scaling=True)
    with pytest.raises(ValueError, match="objective: expected one of 'l2_log', 'kl', 'gkl', 'js', 'neuclip', got"):
        value(0.5, "kl_div_sym")


@pytest.mark.parametrize("name", ["gkl", "js", "kl"])
def test_negatives_only_adds_the_pair_to_both_sides(name):
    target, said, pair = (torch.tensor([x], dtype=torch.float64) for x in (0.5, 0.0, 1.0))
    found = amortization_objective(target, said, name, log_positive=pair, div_reg=0.1)
    y = torch.logaddexp(target, pair) - torch.logaddexp(said, pair)
    assert found.item() == pytest.approx((OBJECTIVES[name](y, y) + 0.1 * 0.25).item())
    plain = amortization_objective(target, said, "l2_log", log_positive=pair)
    assert plain.item() == 0.25


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_prediction_that_is_far_off_does_not_overflow(name):
    said = torch.tensor([-500.0, 500.0], requires_grad=True)
    found = amortization_objective(torch.zeros(2), said, name)
    found.backward()
    assert found.isfinite()
    assert said.grad.isfinite().all()


def test_mixing_and_its_schedule():
    assert mix(torch.tensor(2.0), torch.tensor(3.0), 0.8).item() == pytest.approx(2.2953945291, abs=1e-6)
    three = torch.tensor(3.0)
    assert mix(torch.tensor(2.0), three, 0.0) is three
    betas = [cosine_ramp(t, 16, 0.8) for t in (0, 1, 4, 8, 12, 16, 20)]
    np.testing.assert_allclose(betas, [0, 0.007686, 0.117157, 0.4, 0.682843, 0.8, 0.8], atol=5e-7)


def test_rho_holds_for_equal_shares_of_the_epochs():
    assert [rho_at([8.5, -8.5, -8.5], t, 33) for t in (0, 10, 11, 32)] == [8.5, 8.5, -8.5, -8.5]
    assert [rho_at([6.5, 6.5, 6.5, -8.0], t, 30) for t in (0, 20, 21, 29)] == [6.5, 6.5, -8.0, -8.0]
    assert rho_at(8.5, 3, None) == 8.5
    assert rho_at(None, 3, None) is None
    with pytest.raises(ValueError, match="rho: expected between one value and one an epoch"):
        rho_at([1.0, 2.0, 3.0], 0, 2)
    with pytest.raises(ValueError, match="rho"):
        rho_at([1.0], 0, None)


def test_the_temperatures_share_of_the_loss(four):
    from thrifty.training.amorlip import amortized_clip_loss, batch_log_partition

    u, v, s = four
    Z = batch_log_partition(u, v, s)
    loss = with_temperature(amortized_clip_loss(u, v, s, Z.image, Z.text), s, 8.5)
    assert loss.item() == pytest.approx(0.2505702222, abs=5e-11)
    loss.backward()
    assert s.grad.item() == pytest.approx(-0.3665204387, abs=5e-11)
