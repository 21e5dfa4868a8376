"""The streamed cross-entropy against full logits, in float64."""

import pytest
import torch
import torch.nn.functional as F
from full_logits import B, T, V, assert_same, logits_of

from thrifty.training.streambp import (
    streamed_linear_cross_entropy,
)


@pytest.mark.parametrize("chunk", [1, 3, 8, T - 1, B * T + 5, "auto"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"softcap": 2.0, "logit_scale": 0.7, "temperature": 1.3},
        {"label_smoothing": 0.1, "z_loss": 0.01},
        {"label_smoothing": 0.1, "z_loss": 0.01, "softcap": 1.5},
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_equals_full_logits(head, chunk, options, reduction):
    hidden, weight, bias, labels = head
    ours = streamed_linear_cross_entropy(
        hidden, weight, labels, bias=bias, chunk_size=chunk, reduction=reduction, **options
    )
    z = logits_of(
        hidden, weight, bias, options.get("logit_scale", 1), options.get("softcap"), options.get("temperature", 1)
    )
    z, y = z[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1)
    losses = F.cross_entropy(z, y, reduction="none", label_smoothing=options.get("label_smoothing", 0.0))
    losses = losses + options.get("z_loss", 0.0) * z.logsumexp(-1).square() * (y != -100)
    theirs = {"mean": losses.sum() / (y != -100).sum(), "sum": losses.sum(), "none": losses.view(B, T - 1)}[reduction]
    assert_same(ours, theirs, (hidden, weight, bias))


def test_golden_values():
    """Computed once from full logits in float64, on inputs given by formulas."""
    i, j = torch.meshgrid(torch.arange(7), torch.arange(3), indexing="ij")
    weight = (((3 * i + j) % 5 - 2).double() / 4).requires_grad_()
    hidden = (((7 * torch.arange(36) % 11) - 5).double() / 5).view(2, 6, 3).requires_grad_()
    labels = torch.tensor([[-100, -100, 1, 2, 3, 4], [6, 5, 4, 3, -100, -100]])
    loss = streamed_linear_cross_entropy(hidden, weight, labels, chunk_size=2)
    loss.backward()
    assert loss.item() == pytest.approx(1.9236862982491485, rel=1e-13)
    assert weight.grad.norm().item() == pytest.approx(0.39143509548543953, rel=1e-13)
    assert hidden.grad.norm().item() == pytest.approx(0.23424561257133025, rel=1e-13)
    assert weight.grad[0].tolist() == pytest.approx([0.022642896633873477, -0.03859638070837531, 0.019905625647701382])
    assert hidden.grad[0, 1].tolist() == pytest.approx(
        [-0.0168260744858533, -0.054721998283754555, 0.040086484497571406]
    )


def test_all_labels_valid_divides_by_the_predicted_tokens(head):
    hidden, weight, _, labels = head
    labels = labels.clamp(min=0)
    theirs = F.cross_entropy(logits_of(hidden, weight)[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1))
    assert_same(streamed_linear_cross_entropy(hidden, weight, labels, chunk_size=4), theirs, (hidden, weight))


def test_window_count_divides_the_sum(head):
    hidden, weight, _, labels = head
    total = streamed_linear_cross_entropy(hidden, weight, labels, reduction="sum")
    for count in (40, torch.tensor(40)):
        ours = streamed_linear_cross_entropy(hidden, weight, labels, num_items_in_batch=count)
        assert ours.item() == pytest.approx(total.item() / 40)


def test_stats(head):
    hidden, weight, _, labels = head
    z = logits_of(hidden, weight)[:, :-1].reshape(-1, V)
    y = labels[:, 1:].reshape(-1)
    valid = y != -100
    p = z.softmax(-1)[valid]
    for reduction in ("mean", "none"):
        _, stats = streamed_linear_cross_entropy(
            hidden, weight, labels, reduction=reduction, chunk_size=3, return_stats=True
        )
        assert stats.n_tokens == valid.sum()
        assert stats.accuracy.item() == pytest.approx((z.argmax(-1) == y)[valid].double().mean().item())
        assert stats.entropy.item() == pytest.approx(-(p * p.log()).sum(-1).mean().item())


def test_nothing_counts_gives_a_connected_zero(head):
    hidden, weight, _, labels = head
    loss = streamed_linear_cross_entropy(hidden, weight, torch.full_like(labels, -100))
    loss.backward()
    assert loss.item() == 0
    assert hidden.grad.abs().sum() == 0
    assert weight.grad.abs().sum() == 0


def test_frozen_head_gets_no_gradient_buffer(head, monkeypatch):
    hidden, weight, _, labels = head
    sizes = []
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: sizes.append(a) or zeros(*a, **k))
    streamed_linear_cross_entropy(hidden, weight.detach(), labels).backward()
    assert not any(a and a[0] == weight.shape for a in sizes)
    assert hidden.grad is not None


def test_second_backward_is_refused(head):
    hidden, weight, _, labels = head
    loss = streamed_linear_cross_entropy(hidden, weight, labels)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


def test_double_backward_is_refused(head):
    hidden, weight, _, labels = head
    loss = streamed_linear_cross_entropy(hidden, weight, labels)
    with pytest.raises(NotImplementedError, match="create_graph"):
        torch.autograd.grad(loss, hidden, create_graph=True)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_sixteen_bit_weights_accumulate_in_float32(low):
    """Summed in 16 bits, 512 chunks would lose most of the mantissa."""
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(512, 8, generator=generator).to(low).requires_grad_()
    weight = (torch.randn(16, 8, generator=generator) / 3).to(low).requires_grad_()
    labels = torch.randint(0, 16, (512,), generator=generator)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    F.cross_entropy(exact[0] @ exact[1].t(), labels, reduction="sum").backward()
    streamed_linear_cross_entropy(hidden, weight, labels, shift=False, reduction="sum", chunk_size=1).backward()
    assert weight.grad.dtype == low
    assert (weight.grad.double() - exact[1].grad).norm() / exact[1].grad.norm() < 4e-3


def test_autocast_multiplies_in_its_dtype():
    hidden, weight = torch.randn(6, 8).requires_grad_(), torch.randn(9, 8).requires_grad_()
    labels = torch.arange(6)
    with torch.autocast("cpu", torch.bfloat16):
        ours = streamed_linear_cross_entropy(hidden, weight, labels, shift=False, chunk_size=2)
        theirs = F.cross_entropy(F.linear(hidden, weight).float(), labels)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    got, wanted = (torch.autograd.grad(loss, (hidden, weight)) for loss in (ours, theirs))
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.01 * b.norm()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunk_size": 0}, "chunk_size"),
        ({"chunk_size": 2.5}, "chunk_size"),
        ({"chunk_size": True}, "chunk_size"),
        ({"reduction": "average"}, "reduction"),
        ({"label_smoothing": 1.5}, "label_smoothing"),
        ({"temperature": 0.0}, "temperature"),
        ({"softcap": -1.0}, "softcap"),
        ({"bias": torch.zeros(3)}, "bias"),
        ({"labels": torch.zeros(B, T - 1, dtype=torch.long)}, "labels: expected one a position"),
        ({"labels": torch.full((B, T), V)}, r"labels: expected ids in \[0, 11\), got 11 at \(0, 0\)"),
        ({"labels": torch.full((B, T), -1)}, r"got -1 at \(0, 0\)"),
        ({"reduction": "none", "num_items_in_batch": 3}, "num_items_in_batch"),
        ({"num_items_in_batch": 0}, "num_items_in_batch"),
        ({"num_items_in_batch": torch.tensor(-2)}, "num_items_in_batch"),
        ({"labels": torch.zeros(B, T)}, "labels: expected integers"),
        ({"accum_dtype": torch.bfloat16}, "accum_dtype"),
    ],
)
def test_bad_input_is_named(head, change, message):
    hidden, weight, _, labels = head
    with pytest.raises(ValueError, match=message):
        streamed_linear_cross_entropy(hidden, weight, change.pop("labels", labels), **change)


def test_labels_may_be_narrow_integers_and_a_fraction_may_divide(head):
    hidden, weight, _, labels = head
    wanted = streamed_linear_cross_entropy(hidden, weight, labels, reduction="sum")
    got = streamed_linear_cross_entropy(hidden, weight, labels.to(torch.int32), num_items_in_batch=0.5)
    assert got.item() == pytest.approx(2 * wanted.item())


def test_weights_wider_than_hidden_states_stay_wide():
    """As TRL keeps a head in float32 behind a 16-bit model."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(4, 8, generator=generator).bfloat16()
    weight = torch.randn(9, 8, generator=generator)
    wanted = F.cross_entropy(hidden.float() @ weight.t(), torch.arange(4))
    got = streamed_linear_cross_entropy(hidden, weight, torch.arange(4), shift=False)
    assert got.item() == pytest.approx(wanted.item(), rel=1e-6)
