import io
import logging
import math

import pytest
import torch
from amorlip_ground import gradients, pairs

from thrifty.training.amorlip import (
    AmorLIPConfig,
    AmorLIPLoss,
    Coefficients,
    amortized_clip_loss,
    batch_log_partition,
    estimate_log_partition,
)

S = torch.tensor(14.0)
FAST = {"ema_decay": 0.5, "beta_epochs": 2, "steps_per_epoch": 10, "amor_every": 2}


def make(**options):
    return AmorLIPLoss(16, **(FAST | options))


def train(loss, first, last, **more):
    return [loss(*pairs(step), S, **more).item() for step in range(first, last)]


def state_of(loss):
    held = [p.clone() for p in loss.amortizer.parameters()]
    return held, loss.amortizer.get_extra_state()


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a[0], b[0], strict=True)) and str(a[1]) == str(b[1])


def test_it_stands_in_for_clip_loss():
    open_clip = pytest.importorskip("open_clip")
    u, v = pairs()
    s = S.clone().requires_grad_()
    arguments = {"image_features": u, "text_features": v, "logit_scale": s}
    found = make()(**arguments, output_dict=True)
    assert [name for name in found if name.endswith("_loss")] == list(found) == ["contrastive_loss"]
    assert list(open_clip.ClipLoss()(**arguments, output_dict=True)) == list(found)
    ours = gradients(make()(u, v, s, None), u, v, s)  # the first epoch: nothing is mixed in
    for a, b in zip(ours, gradients(open_clip.ClipLoss()(u, v, s), u, v, s), strict=True):
        torch.testing.assert_close(a, 2 * b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"negatives_only": True}, {"encoder_lambda": "target"}, {"pos_coef": 0.0}])
@pytest.mark.parametrize("scale", [14.0, 100.0])
def test_one_block_and_several_are_the_same(options, scale):
    """One block's logits are kept for the towers' loss; several are made again."""
    losses = make(**options).double(), make(chunk_size=5, **options).double()
    ids = torch.arange(32) % 30
    for step in range(15):
        u, v = pairs(step, dtype=torch.float64)
        s, b = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (scale, -1.0))
        found = [gradients(loss(u, v, s, b, caption_ids=ids), u, v, s, b) for loss in losses]
        for one, several in zip(*found, strict=True):
            torch.testing.assert_close(one, several, atol=1e-9, rtol=1e-9)
    assert losses[0].log_lambda is not None


def test_weights_stay_within_the_bound_of_the_mixture():
    for options in ({}, {"negatives_only": True}, {"num_samples": 5000}):
        loss = make(beta_max=0.8, **options)
        for step in range(40):
            loss(*pairs(step), S)
            found = loss.diagnostics()
            assert found["weight_max"] <= 1 / (1 - found["beta"]) + 1e-3 + bool(options)  # the pair itself, at most 1
        assert found["beta"] == 0.8
        assert found["weight_max"] > 1.5  # the mixture is at work


@pytest.mark.parametrize("which", ["target", "online"])
def test_the_networks_alone_may_be_the_denominators(which):
    loss = make(encoder_lambda=which, num_samples=1000)
    train(loss, 0, 15)
    u, v = pairs(99)
    loss.eval()
    found = loss(u, v, S)
    kappa = 31 / 999
    said = loss.amortizer.predict(u, v, which=which)
    sums = [x + math.log(31 + kappa) for x in said]
    torch.testing.assert_close(found, amortized_clip_loss(u, v, S, *sums, pos_coef=kappa))
    assert torch.equal(loss.log_partition(u, "image"), loss.amortizer.predict(u, v)[0])
    torch.testing.assert_close(
        loss.log_partition(v, "text", to_sum_scale=32), loss.amortizer.predict(u, v)[1] + math.log(31 + kappa)
    )
    with pytest.raises(ValueError, match="modality: expected one of 'image', 'text', got 'audio'"):
        loss.log_partition(u, "audio")


def test_negatives_only_adds_the_batchs_own_pair():
    loss = make(negatives_only=True, encoder_lambda="target", pos_coef=0.5)
    train(loss, 0, 5)
    u, v = pairs(99)
    image, text = (
        torch.logaddexp(x + math.log(31), S * (u * v).sum(1) + math.log(0.5)) for x in loss.amortizer.predict(u, v)
    )
    torch.testing.assert_close(loss.eval()(u, v, S), amortized_clip_loss(u, v, S, image, text, pos_coef=0.5))


def test_errors_of_log_z_against_a_bank():
    loss, (u, v) = make(num_samples=2000), pairs(1)
    train(loss, 0, 15)
    loss(u, v, S)
    bank = torch.cat([pairs(step)[1].detach() for step in range(20)])
    found = loss.diagnostics(bank)
    exact = estimate_log_partition(u, bank, S)
    divided = loss.log_lambda[0] - math.log(31 + 31 / 1999)
    assert found["error_lambda"] == pytest.approx((divided - exact).square().mean().item(), rel=1e-4)
    for which in ("online", "target"):
        said = loss.amortizer.predict(u, v, S, which=which)[0]
        assert found[f"error_{which}"] == pytest.approx((said - exact).square().mean().item(), rel=1e-4)
    assert found["error_lambda"] < (batch_log_partition(u, v, S).mean_scale()[0] - exact).square().mean()
    assert "error_lambda" not in loss.diagnostics()


def test_evaluation_changes_nothing():
    loss = make()
    train(loss, 0, 8)  # in training the next call would fit the networks
    before = state_of(loss)
    loss.eval()
    train(loss, 8, 12)
    assert same(before, state_of(loss))


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit():
    whole = train(make(), 0, 33)
    first = make()
    start = train(first, 0, 17)  # in the middle of the second epoch, between two fits
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = make()
    train(second, 40, 45)  # of another past
    second.load_state_dict(torch.load(file, weights_only=True))
    assert start + train(second, 17, 33) == whole


def test_epochs_are_told_or_counted():
    told, counted = make(steps_per_epoch=None), make()
    values = []
    for step in range(30):
        if step % 10 == 0:
            told.set_epoch(step // 10)
        values.append(told(*pairs(step), S).item())
    assert values == train(counted, 0, 30)
    assert counted.amortizer.epoch == 2


def test_without_epochs_it_says_so_once_and_mixes_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        loss = make(steps_per_epoch=None)
        train(loss, 0, 30)
    assert caplog.text.count("set_epoch: it was not called") == 1
    assert loss.diagnostics()["beta"] == 0
    assert loss.amortizer.starts == 1


def test_an_average_that_never_forgets_its_start_is_remarked_on(caplog):
    with caplog.at_level(logging.WARNING):
        train(make(ema_decay=0.999), 0, 2)
        assert "ema_decay: at 0.999 the averaged networks are still" in caplog.text
        caplog.clear()
        train(make(), 0, 2)
        assert not caplog.text


def test_accumulated_calls_are_one_step():
    """As in open_clip: every call has all features of the step, and the gradient of one part of them."""
    plain, parts = make(), make(accum_freq=2)
    for step in range(25):
        u, v = pairs(step)
        wanted = gradients(plain(u, v, S), u, v)
        found = [torch.zeros_like(u), torch.zeros_like(v)]
        for half in (slice(0, 16), slice(16, 32)):
            a, b = u.detach().clone(), v.detach().clone()
            part = [u.detach()[half].requires_grad_(), v.detach()[half].requires_grad_()]
            a, b = (torch.cat([x[: half.start], mine, x[half.stop :]]) for x, mine in ((a, part[0]), (b, part[1])))
            for total, slope in zip(found, gradients(parts(a, b, S), *part), strict=True):
                total[half] += slope
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert parts.amortizer.steps == 25
    assert same(state_of(plain), state_of(parts))


def test_the_temperatures_objective(four):
    u, v, s = four
    loss = AmorLIPLoss(3, rho=8.5, steps_per_epoch=9, ema_decay=0.0)
    found = loss(u, v, s)
    assert found.item() == pytest.approx(0.2505702222, abs=5e-11)
    assert gradients(found, s)[0].item() == pytest.approx(-0.3665204387, abs=5e-11)
    adaptive = AmorLIPLoss(3, rho=8.5, adaptive_tau=True, steps_per_epoch=9, ema_decay=0.0)
    slope = gradients(adaptive(u, v, s), s)[0].item()
    Z = batch_log_partition(u, v, s)
    pressure = Z.image.mean() + Z.text.mean() - 2 * (5 * (u * v).sum(1).mean()) - 2 * math.log(4)
    assert slope == pytest.approx(-0.3665204387 - pressure.item() / 25, abs=1e-6)


def test_a_models_bias_is_taken_along():
    u, v = pairs()
    s, b = (torch.tensor([x], requires_grad=True) for x in (10.0, -10.0))
    plain = gradients(make()(u, v, s), u, v)
    biased = gradients(make()(u, v, s, b), u, v)
    for a, c in zip(plain, biased, strict=True):
        torch.testing.assert_close(a, c, atol=1e-5, rtol=1e-4)
    assert b.grad is not None  # DDP waits for it


def test_equal_captions_are_no_negatives():
    u, v = pairs()
    ids = torch.arange(32) // 2
    Z = batch_log_partition(u, v, S, caption_ids=ids)
    expected = amortized_clip_loss(u, v, S, Z.image, Z.text, caption_ids=ids)
    assert make()(u, v, S, caption_ids=ids).item() == pytest.approx(expected.item())
    for which in ("combined", "target"):
        for kappa in (0.0, 1.0):
            loss = make(pos_coef=kappa, encoder_lambda=which)
            found = loss(u, v, S, caption_ids=torch.zeros(32, dtype=torch.long))  # nobody has a negative
            (slope,) = torch.autograd.grad(found, u)
            assert found.isfinite()
            assert slope.isfinite().all()
            assert all(p.isfinite().all() for p in loss.amortizer.parameters())


def test_batches_of_other_sizes_mean_the_same():
    loss = make(num_samples=1000, encoder_lambda="target")
    train(loss, 0, 19)
    u, _ = pairs(3)
    one = loss.log_partition(u, "image")
    loss(*pairs(4, batch=5), S)  # a short last batch
    assert (loss.log_partition(u, "image") - one).abs().max() < 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_scale_100_from_first_to_last(dtype, caplog):
    loss = make(encoder_lambda="target" if dtype == torch.float32 else "combined")
    for step in range(20):
        u, v = pairs(step, dtype=dtype)
        found = loss(u, v, torch.tensor(100.0))
        found.backward()
        assert found.isfinite()
        assert u.grad.isfinite().all()
    assert not caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text_features": pairs(batch=7)[1]}, "text_features: expected the shape of image_features"),
        ({"image_features": torch.full((32, 16), math.nan)}, "image_features: expected finite numbers, got NaN or Inf"),
        ({"text_features": torch.full((32, 16), math.inf)}, "text_features: expected finite numbers"),
        ({"logit_scale": torch.tensor(-2.0)}, r"logit_scale: expected exp\(t\) > 0, .* got -2; is it the logarithm t?"),
        ({"logit_scale": torch.tensor(math.nan)}, "logit_scale"),
        (dict(zip(("image_features", "text_features"), pairs(batch=1), strict=True)), "expected at least two pairs"),
        (dict(zip(("image_features", "text_features"), pairs(dim=8), strict=True)), r"expected 16 numbers a row"),
        ({"image_features": torch.zeros(0, 16), "text_features": torch.zeros(0, 16)}, "expected a batch of rows"),
    ],
)
def test_what_cannot_be_used_is_refused_and_teaches_nothing(change, message):
    u, v = pairs()
    loss = make()
    before = state_of(loss)
    with pytest.raises(ValueError, match=message):
        loss(**({"image_features": u, "text_features": v, "logit_scale": S} | change))
    assert same(before, state_of(loss))


def test_what_is_odd_is_remarked_on_once(caplog):
    u, v = pairs()
    with caplog.at_level(logging.WARNING):
        loss = make()
        for _ in range(3):
            loss(3 * u, v, torch.tensor(2.659))
    assert caplog.text.count("image_features: expected rows of unit length, got one that is off by 2") == 1
    assert caplog.text.count("logit_scale: expected exp(t), 14.29 at CLIP's start, got 2.659") == 1
    assert "text_features" not in caplog.text
    again = make(normalize=True)
    assert again(3 * u, v, S).item() == pytest.approx(make()(u, v, S).item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 16}, "num_samples: expected at least the 32 of a batch, got 16"),
        ({"gather": "ring"}, "gather: expected one of 'global', 'local', got 'ring'"),
        ({"world_size": 2}, "world_size: expected torch.distributed to be initialised for 2 ranks"),
        ({"rank": 1}, "rank: expected one of 1 ranks, got 1"),
        ({"accum_freq": 0}, "accum_freq"),
        ({"steps_per_epoch": 0}, "steps_per_epoch"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)(*pairs(), S)


def test_settings_travel_as_json(tmp_path):
    config = AmorLIPConfig(objective="gkl", epochs=4, rho=[1.0, -1.0], chunk_size=64)
    assert AmorLIPConfig.from_json(config.to_json()) == config
    config.save_pretrained(tmp_path)
    assert AmorLIPConfig.from_pretrained(tmp_path) == config
    with pytest.raises(ValueError, match="got also 'tau'"):
        AmorLIPConfig.from_json(config.to_json().replace('"seed"', '"tau"'))
    with pytest.raises(ValueError, match=r"schema 'thrifty\.amorlip' version 1"):
        AmorLIPConfig.from_json(config.to_json().replace("thrifty.amorlip", "thrifty.sumo"))
    assert AmorLIPLoss(16, config).config.ramp == 2
    assert AmorLIPConfig().ramp == 16


def test_the_whole_loss_compiles_around_stage_one():
    plain, compiled = make(), make()
    call = torch.compile(compiled, backend="aot_eager")
    for step in range(4):
        u, v = pairs(step)
        wanted = gradients(plain(u, v, S), u, v)
        for a, b in zip(wanted, gradients(call(u, v, S), u, v), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_coefficients_of_the_batch():
    assert make(num_samples=3200)._denominators.coefficients(33) == Coefficients(32 / 3199)
    assert make(pos_coef=1e-3)._denominators.coefficients(33) == Coefficients(1e-3)
