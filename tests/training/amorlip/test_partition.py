import math

import numpy as np
import pytest
import torch
from amorlip_ground import coefficients, pairs

from thrifty.training.amorlip import (
    Coefficients,
    batch_log_partition,
    caption_ids,
    estimate_log_partition,
    spectral_log_partition,
)
from thrifty.training.amorlip.partition import auto_pos_coef


def test_golden_numbers(four):
    u, v, s = four
    found = batch_log_partition(u, v, s)
    np.testing.assert_allclose(found.image, [5.2942074399, 4.5942071002, 4.9290893549, 5.1145618165], atol=5e-11)
    np.testing.assert_allclose(found.text, [5.3104133195, 4.8001144435, 4.8533247815, 5.0149377832], atol=5e-11)
    small = batch_log_partition(u, v, s, coefficients=Coefficients(1e-3)).image
    np.testing.assert_allclose(small, [4.168742776723, 2.438313698565, 2.900147628667, 4.505900632275], atol=5e-13)
    none = batch_log_partition(u, v, s, coefficients=Coefficients(0.0)).image
    np.testing.assert_allclose(none, [4.166656870556, 2.430641094232, 2.893513022784, 4.505061472422], atol=5e-13)


@pytest.mark.parametrize("scale", [1.0, 14.3, 39.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_scale_and_precision_agrees_with_plain_sums_in_float64(scale, dtype):
    u, v = pairs(batch=24, dtype=dtype)
    found = batch_log_partition(u, v, scale, coefficients=Coefficients(0.1), chunk_size=7)
    A = scale * u.double() @ v.double().T + coefficients(24, 0.1).log()
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    torch.testing.assert_close(found.image.double(), A.logsumexp(1), atol=tolerance, rtol=0)
    torch.testing.assert_close(found.text.double(), A.logsumexp(0), atol=tolerance, rtol=0)


def test_identical_pairs_at_scale_100_do_not_overflow():
    u, _ = pairs(batch=8)
    found = batch_log_partition(u, u, 100.0)
    assert found.image.isfinite().all()
    assert (found.image - 100).abs().max() < 1e-3


def test_features_that_are_not_of_unit_length_do_not_overflow():
    u, v = pairs(batch=8)
    found = batch_log_partition(40 * u, 3 * v, 5.0)
    torch.testing.assert_close(found.image, (600 * u @ v.T).logsumexp(1).detach(), atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("chunk", [*range(1, 9), 100, None])
def test_blocks_change_nothing(chunk):
    u, v = pairs(batch=8, dtype=torch.float64)
    whole = batch_log_partition(u, v, 50.0, coefficients=Coefficients(0.3, 2.0), chunk_size=8)
    found = batch_log_partition(u, v, 50.0, coefficients=Coefficients(0.3, 2.0), chunk_size=chunk)
    for a, b in zip(found, whole, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_equal_captions_are_no_negatives_and_do_not_count():
    u, v = pairs(batch=6, dtype=torch.float64)
    ids = torch.tensor([3, 5, 3, 9, 3, 1])
    found = batch_log_partition(u, v, 7.0, coefficients=Coefficients(0.5, 2.0), caption_ids=ids, chunk_size=4)
    c = coefficients(6, 0.5, 2.0, ids)
    torch.testing.assert_close(found.image, (7.0 * u @ v.T + c.log()).logsumexp(1).detach(), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.text, (7.0 * u @ v.T + c.log()).logsumexp(0).detach(), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.log_count, c.sum(1).log(), atol=1e-12, rtol=0)


def test_the_mean_scale_survives_another_batch_size():
    """With κ = (B − 1)/(n − 1) every batch estimates the whole data set's partition function without bias."""
    u, v = pairs(batch=60, dim=6, dtype=torch.float64)
    exact = estimate_log_partition(u, v, 3.0).exp()
    rng = torch.Generator().manual_seed(1)
    for batch in (5, 20):
        kappa, total, seen = auto_pos_coef(batch, 60), torch.zeros(60, dtype=torch.float64), torch.zeros(60)
        for _ in range(800):
            rows = torch.randperm(60, generator=rng)[:batch]
            found = batch_log_partition(u[rows], v[rows], 3.0, coefficients=Coefficients(kappa))
            total[rows] += found.mean_scale()[0].exp()
            seen[rows] += 1
        assert ((total / seen / exact) - 1).mean().abs() < 0.01


def test_the_reference_is_exact_in_chunks():
    u, v = pairs(batch=30, dtype=torch.float64)
    found = estimate_log_partition(u[:7], v, 90.0, logit_bias=-3.0, chunk_size=3)
    torch.testing.assert_close(found, (90 * u[:7] @ v.T - 3).exp().mean(1).log().detach(), atol=1e-10, rtol=0)
    assert estimate_log_partition(u[:0], v, 1.0).shape == (0,)
    with pytest.raises(ValueError, match="bank: expected rows of 16 numbers, got"):
        estimate_log_partition(u, v[:, :3], 1.0)
    with pytest.raises(ValueError, match="bank"):
        estimate_log_partition(u, v[:0], 1.0)


def test_the_partition_function_is_linear_in_a_feature_of_the_sample_alone():
    u, v = pairs(batch=64, dim=8, dtype=torch.float64)
    found = spectral_log_partition(u[:16], v, 1.0, draws=200_000)
    assert (found - estimate_log_partition(u[:16], v, 1.0)).exp().sub(1).abs().max() < 0.005


def test_kappa_of_a_known_data_set():
    assert auto_pos_coef(33, 3201) == 0.01
    assert auto_pos_coef(8, None) == 1.0
    assert auto_pos_coef(8, 8) == 1.0
    with pytest.raises(ValueError, match="num_samples: expected at least the 8 of a batch, got 7"):
        auto_pos_coef(8, 7)


def test_captions_are_told_apart_by_their_tokens():
    tokens = torch.randint(0, 50_000, (500, 77), generator=torch.Generator().manual_seed(0))
    ids = caption_ids(torch.cat([tokens, tokens.flip(1), tokens]))
    assert len(ids.unique()) == 1000
    assert (ids[:500] == ids[1000:]).all()
    assert math.isfinite(float(ids[0]))
