import math

import pytest
import torch
from amorlip_ground import coefficients, gradients, pairs, plain_loss

from thrifty.training.amorlip import Coefficients, amortized_clip_loss, batch_log_partition
from thrifty.training.amorlip.contrastive import contrast


def test_with_the_batchs_own_sums_the_gradient_is_twice_that_of_clip(four):
    open_clip = pytest.importorskip("open_clip")
    u, v, s = four
    Z = batch_log_partition(u, v, s)
    loss = amortized_clip_loss(u, v, s, Z.image, Z.text)
    assert loss.item() == pytest.approx(-7.2471488892, abs=5e-11)
    assert loss.item() == pytest.approx(2 - 2 * (s * (u * v).sum(1)).mean().item(), abs=1e-12)
    ours, clip = gradients(loss, u, v, s), open_clip.ClipLoss()(u, v, s)
    assert clip.item() == pytest.approx(0.3652825603, abs=5e-11)
    for a, b in zip(ours, gradients(clip, u, v, s), strict=True):
        torch.testing.assert_close(a, 2 * b, atol=1e-12, rtol=0)
    assert ours[2].item() == pytest.approx(-0.1326021933, abs=5e-11)


def test_golden_numbers_of_a_small_kappa_and_of_a_wrong_lambda(four):
    u, v, s = four
    Z = batch_log_partition(u, v, s, coefficients=Coefficients(1e-3))
    loss = amortized_clip_loss(u, v, s, Z.image, Z.text, pos_coef=1e-3)
    assert loss.item() == pytest.approx(-7.2471488892, abs=5e-11)
    assert gradients(loss, s)[0].item() == pytest.approx(-0.701598, abs=5e-7)
    Z = batch_log_partition(u, v, s)
    off = amortized_clip_loss(u, v, s, Z.image + 0.5, Z.text + 0.5).item()
    assert off == pytest.approx(-8.0340875698, abs=5e-11)
    assert off == pytest.approx(loss.item() - 2 + 2 * math.exp(-0.5), abs=1e-12)


@pytest.mark.parametrize("limit", [None, 0.3])
def test_gradients_are_those_of_finite_differences(limit):
    u, v = pairs(batch=5, dim=3, dtype=torch.float64)
    s, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (3.0, -0.4))
    Z = batch_log_partition(u, v, s)
    ids = torch.tensor([0, 1, 2, 1, 3])

    def value(u, v, s, b):
        return amortized_clip_loss(
            u, v, s, Z.image - 0.7, Z.text - 0.2, pos_coef=0.2, neg_coef=2.0, logit_bias=b, caption_ids=ids,
            chunk_size=2, max_log_weight=limit,
        )  # fmt: skip

    assert torch.autograd.gradcheck(value, (u, v, s, b))
    if limit is not None:
        assert contrast(u, v, s, Z.image - 0.7, Z.text - 0.2, Coefficients(), max_log_weight=limit).limited > 0


@pytest.mark.parametrize("chunk", [*range(1, 10), None])
def test_blocks_and_the_formula_agree(chunk):
    u, v = pairs(batch=9, dtype=torch.float64)
    s = torch.tensor(20.0, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([0, 1, 0, 3, 4, 4, 6, 7, 4])
    c = coefficients(9, 0.01, 3.0, ids)
    log_image, log_text = torch.linspace(1, 9, 9).double(), torch.linspace(8, 2, 9).double()
    ours = amortized_clip_loss(
        u, v, s, log_image, log_text, pos_coef=0.01, neg_coef=3.0, caption_ids=ids, chunk_size=chunk
    )
    theirs = plain_loss(u, v, s, log_image, log_text, c)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours, u, v, s), gradients(theirs, u, v, s), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-12)


def test_the_order_of_the_batch_does_not_matter():
    u, v = pairs(batch=12, dtype=torch.float64)
    Z = batch_log_partition(u, v, 9.0)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    straight = amortized_clip_loss(u, v, 9.0, Z.image, Z.text, chunk_size=5)
    shuffled = amortized_clip_loss(u[order], v[order], 9.0, Z.image[order], Z.text[order], chunk_size=5)
    torch.testing.assert_close(straight, shuffled)


def test_the_sums_of_weights_are_one_under_a_softmax():
    u, v = pairs(batch=12)
    for kappa in (1.0, 0.01, 0.0):
        Z = batch_log_partition(u, v, 30.0, coefficients=Coefficients(kappa))
        found = contrast(u, v, 30.0, Z.image, Z.text, Coefficients(kappa), chunk_size=5)
        torch.testing.assert_close(found.image_weight, torch.ones(12), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.text_weight, torch.ones(12), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scale_100_in_every_precision(dtype):
    u, v = pairs(batch=16, dtype=dtype)
    s = torch.tensor(100.0, requires_grad=True)
    exact_u, exact_v = (x.detach().double().requires_grad_() for x in (u, v))
    Z = batch_log_partition(exact_u, exact_v, 100.0)
    ours = amortized_clip_loss(u, v, s, Z.image, Z.text)
    theirs = plain_loss(exact_u, exact_v, 100.0, Z.image, Z.text, coefficients(16))
    torch.testing.assert_close(ours.double(), theirs, atol=1e-2, rtol=1e-4)
    ours.backward()
    theirs.backward()
    assert u.grad.dtype == dtype
    close = {torch.float32: 1e-4, torch.bfloat16: 8e-3, torch.float16: 2e-3}[dtype]
    scale = exact_u.grad.abs().max()
    assert (u.grad.double() - exact_u.grad).abs().max() < close * scale


def test_nothing_is_rounded_inside_autocast():
    u, v = pairs(batch=16)
    Z = batch_log_partition(u, v, 50.0)
    plain = amortized_clip_loss(u, v, 50.0, Z.image, Z.text)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = batch_log_partition(u, v, 50.0)
        rounded = amortized_clip_loss(u, v, 50.0, again.image, again.text)
    assert rounded.dtype == torch.float32
    assert rounded.item() == plain.item()


def test_a_locked_tower_gets_no_gradient_and_the_other_the_same():
    u, v = pairs(batch=8, dtype=torch.float64)
    s = torch.tensor(9.0, dtype=torch.float64, requires_grad=True)
    Z = batch_log_partition(u, v, s)
    both = gradients(amortized_clip_loss(u, v, s, Z.image, Z.text), u, v, s)
    for locked in (0, 1):
        towers = [u.detach() if locked == 0 else u, v.detach() if locked == 1 else v]
        loss = amortized_clip_loss(*towers, s, Z.image, Z.text)
        free = (v, u)[locked]
        one, of_s = gradients(loss, free, s)
        torch.testing.assert_close(one, both[1 - locked])
        torch.testing.assert_close(of_s, both[2])
    with torch.no_grad():
        assert not amortized_clip_loss(u, v, s, Z.image, Z.text).requires_grad


def test_shapes_of_scale_and_bias_are_kept():
    u, v = pairs(batch=8)
    s, b = torch.tensor([9.0], requires_grad=True), torch.tensor([-10.0], requires_grad=True)
    Z = batch_log_partition(u, v, s, logit_bias=b)
    amortized_clip_loss(u, v, s, Z.image, Z.text, logit_bias=b).backward()
    assert s.grad.shape == b.grad.shape == (1,)
    assert b.grad.abs() < 1e-5  # a softmax does not see a bias


def test_weights_beyond_the_limit_go_on_as_their_tangent():
    u, v = pairs(batch=8)
    low = torch.full((8,), -60.0)
    found = contrast(u, v, 14.0, low, low, Coefficients(), max_log_weight=10.0)
    assert found.loss.isfinite()
    assert found.limited == 2 * 64
    assert found.image_weight.max() <= 8 * 22027
    (slope,) = torch.autograd.grad(found.loss, u)
    assert slope.isfinite().all()


def test_stage_two_compiles_whole():
    u, v = pairs(batch=8)
    Z = batch_log_partition(u, v, 14.0)
    plain = gradients(amortized_clip_loss(u, v, 14.0, Z.image, Z.text, chunk_size=4), u, v)
    compiled = torch.compile(amortized_clip_loss, backend="aot_eager", fullgraph=True)
    loss = compiled(u, v, 14.0, Z.image, Z.text, chunk_size=4)
    for a, b in zip(plain, gradients(loss, u, v), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda a: a | {"text_features": a["text_features"][:3]},
            "text_features: expected the shape of image_features",
        ),
        (lambda a: a | {"text_features": a["text_features"][:, :3]}, r"text_features: .* \(8, 16\), got \(8, 3\)"),
        (lambda a: a | {"image_features": a["image_features"][:0]}, "image_features: expected a batch of rows, got"),
        (lambda a: a | {"image_features": a["image_features"][0]}, "image_features: expected a batch of rows, got"),
        (lambda a: a | {"log_lambda_text": torch.zeros(3)}, "log_lambda_text: expected 8 numbers, got"),
        (lambda a: a | {"pos_coef": -1.0}, "pos_coef: expected a number of at least 0, got -1.0"),
        (lambda a: a | {"neg_coef": 0.0}, "neg_coef: expected a number above 0, got 0.0"),
        (lambda a: a | {"logit_scale": torch.tensor(float("nan"))}, "logit_scale: expected exp"),
        (lambda a: a | {"logit_scale": -5.0}, "logit_scale: expected exp"),
        (
            lambda a: a | {"caption_ids": torch.zeros(1).long()},
            "caption_ids: expected a tensor of 8 whole numbers, got",
        ),
        (lambda a: a | {"chunk_size": 0}, "chunk_size: expected a number of rows of at least 1, got 0"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    u, v = pairs(batch=8)
    zeros = torch.zeros(8)
    arguments = {
        "image_features": u, "text_features": v, "logit_scale": 5.0, "log_lambda_image": zeros, "log_lambda_text": zeros
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        amortized_clip_loss(**change(arguments))
