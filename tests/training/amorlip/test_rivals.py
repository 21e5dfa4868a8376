import math

import pytest
import torch
from amorlip_ground import gradients, pairs

from thrifty.training.amorlip import FastCLIPLoss, NeuCLIPLoss, SogCLRLoss, amortized_clip_loss, batch_log_partition
from thrifty.training.amorlip.rivals import log_ratios

S = torch.tensor(14.0)


def ratios(u, v, s):
    """g_i of images and texts, with all exponentials written out."""
    A = s * u @ v.T
    off = 1 - torch.eye(len(u))
    g_image = ((A - A.diagonal()[:, None]).exp() * off).sum(1) / (len(u) - 1)
    g_text = ((A - A.diagonal()).exp() * off).sum(0) / (len(u) - 1)
    return torch.stack([g_image, g_text])


def test_ratios_are_those_of_the_papers():
    u, v = pairs(batch=8)
    torch.testing.assert_close(log_ratios(u, v, S).exp(), ratios(u, v, S), rtol=1e-4, atol=1e-6)
    assert log_ratios(u, v, torch.tensor(100.0)).isfinite().all()
    with pytest.raises(ValueError, match="image_features: expected at least two pairs, got 1"):
        log_ratios(u[:1], v[:1], S)


def test_a_samples_first_visit_sets_its_average_and_later_ones_move_it():
    u, v = pairs(batch=8)
    loss = SogCLRLoss(20, gamma=0.8)
    index = torch.arange(5, 13)
    loss(u, v, S, index=index)
    g = ratios(u, v, S).detach()
    torch.testing.assert_close(loss.log_u[:, index].exp(), g, rtol=1e-4, atol=1e-6)
    assert (loss.log_u[:, :5] == -math.inf).all()
    x, y = pairs(1, batch=8)
    found = loss(x, y, S, index=index)
    mixed = 0.2 * g + 0.8 * ratios(x, y, S)
    torch.testing.assert_close(loss.log_u[:, index].exp(), mixed.detach(), rtol=1e-4, atol=1e-6)
    expected = (ratios(x, y, S) / (mixed.detach() + 1e-14)).mean(1).sum() / S
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    for a, b in zip(gradients(found, x, y), gradients(expected, x, y), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-6)
    loss.eval()
    before = loss.log_u.clone()
    loss(u, v, S, index=index)
    assert torch.equal(loss.log_u, before)


def test_on_a_first_visit_sogclr_is_the_softmax_without_the_pair():
    """Its gradient is then that of a contrastive loss with κ = 0, over s."""
    from thrifty.training.amorlip import Coefficients

    u, v = pairs(batch=8, dtype=torch.float64)
    s = S.double()
    found = gradients(SogCLRLoss(8)(u, v, s, index=torch.arange(8)), u, v)
    Z = batch_log_partition(u, v, s, coefficients=Coefficients(0.0))
    ours = gradients(amortized_clip_loss(u, v, s, Z.image, Z.text, pos_coef=0.0), u, v)
    for a, b in zip(found, ours, strict=True):
        torch.testing.assert_close(a * s, b, rtol=1e-4, atol=1e-5)


def test_fastclip_trusts_the_batch_less_and_less():
    loss = FastCLIPLoss(10, gamma=0.2, gamma_epochs=4)
    seen = []
    for epoch in (0, 2, 4, 9):
        loss.set_epoch(epoch)
        seen.append(loss.gamma)
    assert seen == [1.0, pytest.approx(0.6), pytest.approx(0.2), pytest.approx(0.2)]


def test_fastclip_v3_teaches_the_temperature():
    u, v = pairs(batch=8)
    s = S.clone().requires_grad_()
    index = torch.arange(8)
    loss = FastCLIPLoss(10, rho=8.5)
    found = loss(u, v, s, index=index)
    log_u = loss.log_u[:, :8]
    expected = (ratios(u, v, s) / log_u.exp()).mean(1).sum() / s.detach() + 8.5 / s + log_u.mean(1).sum() / (2 * s)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients(found, s)[0], gradients(expected, s)[0], rtol=1e-3, atol=1e-5)
    plain = FastCLIPLoss(10, version="v1")(u, v, S, index=index)
    assert plain.item() == pytest.approx(2 / 14, rel=1e-5)
    with pytest.raises(ValueError, match="version: expected one of 'v1', 'v3', got 'v2'"):
        FastCLIPLoss(10, version="v2")


def test_neuclips_inner_problem_ends_at_log_g():
    u, v = pairs(batch=16)
    loss = NeuCLIPLoss(16, prototypes=16, steps=1, lr=1e-9)
    loss(u, v, S)
    positive = S * (u * v).sum(1).detach()
    a = loss._a(u.detach(), v.detach(), S, positive)
    # The prototypes began as the batch itself: log(mean over all 16) against log(mean over the 15 others).
    g = ratios(u, v, S).detach()
    torch.testing.assert_close(a.exp(), (15 * g + 1) / 16, rtol=1e-3, atol=1e-4)
    fitted = NeuCLIPLoss(16, prototypes=16, steps=200)
    fitted(u, v, S)
    after = fitted._a(u.detach(), v.detach(), S, positive)
    objective = lambda a: ((g.log() - a).exp() + a - 1).mean()  # noqa: E731
    assert objective(after) < objective(a)
    assert list(fitted.eval()(u, v, S, output_dict=True)) == ["contrastive_loss"]
    assert not [p for p in fitted.parameters() if p.requires_grad]


@pytest.mark.parametrize("loss", [SogCLRLoss(100), FastCLIPLoss(100)])
@pytest.mark.parametrize("index", [None, torch.arange(5), torch.arange(93, 101), torch.arange(-1, 7)])
def test_numbers_of_pairs_that_will_not_do_are_refused(loss, index):
    with pytest.raises(ValueError, match="index: expected 8 numbers below num_samples 100, got"):
        loss(*pairs(batch=8), S, index=index)
    assert (loss.log_u == -math.inf).all()
