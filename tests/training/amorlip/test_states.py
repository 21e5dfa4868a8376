"""What the loss keeps beside its weights: when it learns, what a state must fit, and in which precision."""

import copy
import io
import logging
import math

import pytest
import torch
from amorlip_ground import gradients, pairs

from thrifty.training.amorlip import AmorLIPLoss, PartitionAmortizer

S = torch.tensor(14.0)
FAST = {"ema_decay": 0.5, "beta_epochs": 2, "steps_per_epoch": 10, "amor_every": 2}


def make(**options):
    return AmorLIPLoss(16, **(FAST | options))


def train(loss, first, last):
    return [loss(*pairs(step), S).item() for step in range(first, last)]


def held(loss):
    return {name: copy.deepcopy(value) for name, value in loss.state_dict().items()}


def same(a, b):
    return list(a) == list(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else str(x) == str(y)
        for x, y in zip(a.values(), b.values(), strict=True)
    )


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients_it_learns_nothing(context):
    loss = make()
    train(loss, 0, 12)
    before = held(loss)
    with context():
        values = train(loss, 12, 15)
    assert same(before, held(loss))
    assert values == train(loss.eval(), 12, 15)


def test_the_share_of_stage_one_is_a_share():
    loss = make(amor_steps=40, amor_every=1)
    train(loss, 0, 1)
    assert math.isnan(loss.diagnostics()["stage_one_share"])  # no time between two calls yet
    train(loss, 1, 5)
    seconds = loss._seconds
    assert 0 < loss.diagnostics()["stage_one_share"] < 1
    train(loss.eval(), 5, 6)
    train(loss.train(), 6, 7)
    assert loss._seconds == seconds  # what was between two steps was no step


def test_the_scale_may_be_a_number():
    u, v = pairs()
    assert make()(u, v, 14.0).item() == make()(u, v, S).item()
    rho = make(rho=8.5, adaptive_tau=True)(u, v, 14.0)
    assert rho.item() == pytest.approx(make(rho=8.5, adaptive_tau=True)(u, v, S).item())
    with pytest.raises(ValueError, match="logit_scale: expected exp"):
        make()(u, v, -1.0)


@pytest.mark.parametrize("ids", [torch.arange(31), torch.zeros(1).long(), torch.zeros(32, 8).long(), [0] * 32])
def test_captions_are_a_number_a_pair(ids):
    with pytest.raises(ValueError, match="caption_ids: expected a tensor of 32 whole numbers, got"):
        make()(*pairs(), S, caption_ids=ids)


def test_an_average_that_forgets_too_slowly_hears_of_one_that_does_not(caplog):
    make(steps_per_epoch=4, ema_decay=0.9, target_every=2).set_epoch(0)
    assert "still 81% their random start after an epoch of 4 steps; ema_decay=0.32 forgets it" in caplog.text
    caplog.clear()
    make(steps_per_epoch=4, ema_decay=0.32, target_every=2).set_epoch(0)
    assert not caplog.text
    make(steps_per_epoch=4, target_every=5).set_epoch(0)
    assert "still 100% their random start after an epoch of 4 steps; lower target_every" in caplog.text


def test_a_row_of_zeros_is_called_one(caplog):
    u, v = pairs()
    with torch.no_grad():
        u[3] = 0
    make(normalize=True)(u, v, S)
    assert "image_features: expected rows of unit length, got a row of zeros" in caplog.text


def test_what_autocast_rounded_is_of_unit_length(caplog):
    u, v = (x.detach().bfloat16().float() for x in pairs(batch=256))
    off = (u.norm(dim=1) - 1).abs().max()
    assert off > 1e-3
    make()(u, v, S)
    assert not caplog.text
    make()(u * (1 + 2e-3), v, S)
    assert "image_features: expected rows of unit length" in caplog.text


def test_a_scale_of_one_is_no_logarithm(caplog):
    make()(*pairs(), torch.tensor(1.0))  # where an untrained SigLIP begins
    assert not caplog.text


def test_a_run_of_one_epoch_hears_that_nothing_is_mixed_in(caplog):
    make(epochs=1, beta_epochs=None)
    assert "epochs: in a run of one epoch there is no earlier network to mix in" in caplog.text
    with pytest.raises(ValueError, match="beta_epochs: expected at most the 10 epochs, got 40"):
        make(epochs=10, beta_epochs=40)


def test_an_epoch_that_goes_back_is_remarked_on(caplog):
    loss = make(steps_per_epoch=None)
    for epoch in (5, 2):
        loss.set_epoch(epoch)
    assert "epoch: it went back from 5 to 2" in caplog.text


def test_fewer_samples_than_a_batch_are_refused_in_training_only():
    for kappa in ("auto", 0.5):
        loss = make(num_samples=16, pos_coef=kappa)
        with pytest.raises(ValueError, match="num_samples: expected at least the 32 of a batch, got 16"):
            loss(*pairs(), S)
        assert loss.eval()(*pairs(), S).isfinite()


@pytest.mark.parametrize("which", ["target", "combined"])
def test_gradients_stay_within_fp16(which):
    loss = make(encoder_lambda=which, num_samples=1000)
    u, v = pairs(dtype=torch.float16)
    for slope in gradients(loss(u, v, torch.tensor(100.0)), u, v):
        assert slope.isfinite().all()


def test_a_step_that_is_under_way_is_gone_on_with():
    whole, first, second = (make(accum_freq=3, steps_per_epoch=2) for _ in range(3))
    values = train(whole, 0, 20)
    assert whole.amortizer.epoch == 3
    assert train(first, 0, 10) == values[:10]
    assert first.amortizer.calls == 1
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert train(second, 10, 20) == values[10:]
    assert same(held(whole), held(second))


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (lambda: make(hidden_factor=1.0), "hidden_factor: the state is of a loss with 1.0, got 0.5"),
        (lambda: make(network="prototypes"), "network: the state is of a loss with 'prototypes', got 'mlp'"),
        (lambda: AmorLIPLoss(8, **FAST), r"embed_dim: expected a state whose networks are as wide, .* got \(4, 8\)"),
        (lambda: torch.nn.Linear(2, 2), "state_dict: expected that of an AmorLIPLoss, got one without "),
    ],
)
def test_a_state_of_others_is_refused_whole(theirs, message):
    loss, other = make(), theirs()
    train(loss, 0, 3)
    before = held(loss)
    with pytest.raises(ValueError, match=message):
        loss.load_state_dict(other.state_dict())
    assert same(before, held(loss))
    train(loss, 3, 6)


def test_settings_that_changed_since_are_remarked_on(caplog):
    start = make(objective="gkl", ema_decay=0.9)
    train(start, 0, 3)
    make(epochs=4).load_state_dict(start.state_dict())
    for said in ("objective ('gkl', now 'l2_log')", "ema_decay (0.9, now 0.5)", "epochs (None, now 4)"):
        assert said in caplog.text
    caplog.clear()
    make(objective="gkl", ema_decay=0.9).load_state_dict(start.state_dict())
    assert not caplog.text


@pytest.mark.parametrize("narrow", [lambda loss: loss.half(), lambda loss: loss.to(torch.bfloat16)])
def test_the_networks_learn_in_32_bits_whatever_the_model(narrow, caplog):
    caplog.set_level(logging.WARNING)
    plain, cast = make(), make()
    assert train(plain, 0, 5) == train(cast, 0, 5)
    narrow(cast)
    assert {p.dtype for p in cast.parameters()} == {torch.float32}
    assert train(plain, 5, 15) == train(cast, 5, 15)
    cast.double()
    assert {p.dtype for p in cast.parameters()} == {torch.float64}
    train(cast, 15, 20)
    moments = [m for state in cast.amortizer.optimizer.state.values() for m in (state["exp_avg"], state["exp_avg_sq"])]
    assert {m.dtype for m in moments} == {torch.float64}


@pytest.mark.parametrize(
    ("features", "scale", "message"),
    [
        ([torch.full((8, 16), math.nan), torch.eye(8, 16)], 10.0, "image_features: expected finite numbers"),
        ([torch.eye(8, 16), torch.full((8, 16), math.inf)], 10.0, "text_features: expected finite numbers"),
        ([torch.eye(1, 16), torch.eye(1, 16)], 10.0, "image_features: expected at least two pairs, got one"),
        (
            [torch.eye(8, 12), torch.eye(8, 12)],
            10.0,
            r"image_features: expected 16 numbers a row .*got shape \(8, 12\)",
        ),
        ([torch.eye(8, 16), torch.eye(8, 16)], math.nan, "logit_scale: expected exp"),
        ([torch.eye(8, 16), torch.eye(8, 16)], -5.0, "logit_scale: expected exp"),
        ([torch.eye(16, 16), torch.eye(16, 16)], 10.0, "num_samples: expected at least the 16 of a batch, got 10"),
    ],
)
def test_a_batch_that_will_not_do_teaches_the_networks_nothing(features, scale, message):
    amortizer = PartitionAmortizer(16, num_samples=10, pos_coef=0.0)
    before = held(amortizer)
    with pytest.raises(ValueError, match=message):
        amortizer.fit_batch(*features, scale)
    assert same(before, held(amortizer))


def test_predictions_are_of_the_networks_width():
    with pytest.raises(ValueError, match="features: expected 16 numbers a row"):
        make().log_partition(torch.eye(4), "image")
    with pytest.raises(ValueError, match="text_features: expected 16 numbers a row"):
        PartitionAmortizer(16).predict(torch.eye(4, 16), torch.eye(4, 12))
