"""The streamed head against full logits, in float64."""

import pytest
import torch
import torch.nn.functional as F

from thrifty.training.streambp import (
    streamed_dpo_loss,
    streamed_grpo_loss,
    streamed_linear_cross_entropy,
    streamed_token_logps,
)

V, D, B, T = 11, 5, 2, 9


@pytest.fixture
def head(request):
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    hidden, weight, bias = make(B, T, D).requires_grad_(), make(V, D).requires_grad_(), make(V).requires_grad_()
    labels = torch.randint(0, V, (B, T), generator=generator)
    labels[0, :4] = -100  # a prompt
    labels[1, 6:] = -100  # padding
    return hidden, weight, bias, labels


def logits_of(hidden, weight, bias=None, scale=1.0, softcap=None, temperature=1.0):
    z = F.linear(hidden, weight, bias) * scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    return z / temperature


def assert_same(ours, theirs, inputs, tolerance=1e-10):
    assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    upstream = torch.linspace(0.3, 1.7, ours.numel(), dtype=ours.dtype).view(ours.shape)
    got = torch.autograd.grad(ours, inputs, upstream)
    wanted = torch.autograd.grad(theirs, inputs, upstream, retain_graph=True)
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).norm() <= tolerance * b.norm()


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


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_token_logps_and_entropies(head, softcap):
    hidden, weight, bias, labels = head
    mask = labels != -100
    ids = labels.clamp(min=0)
    logps, entropies = streamed_token_logps(
        hidden, weight, ids, bias=bias, mask=mask, temperature=0.7, softcap=softcap, chunk_size=4, with_entropy=True
    )
    full = logits_of(hidden, weight, bias, softcap=softcap, temperature=0.7).log_softmax(-1)
    wanted = full.gather(-1, ids[..., None]).squeeze(-1) * mask
    wanted_entropies = -(full.exp() * full).sum(-1) * mask
    both = torch.stack([logps, entropies])
    assert_same(both, torch.stack([wanted, wanted_entropies]), (hidden, weight, bias))


def test_foreseen_gradient_is_used_only_where_it_is_right(head):
    from thrifty.training.streambp.inputs import masked_rows
    from thrifty.training.streambp.logits import Head, LogitShape
    from thrifty.training.streambp.token_logps import token_statistics

    hidden, weight, bias, labels = head
    rows = masked_rows(labels.clamp(min=0), labels != -100)
    products = []
    original = Head._product
    Head._product = lambda self, h: products.append(len(h)) or original(self, h)
    try:
        for make_loss, passes in ((lambda x: -x.sum() / 7, 1), (lambda x: x.square().sum(), 2)):
            products.clear()
            found = token_statistics(hidden, weight, bias, rows, LogitShape(), chunk_size=4, foresee_uniform=True)
            got = torch.autograd.grad(make_loss(found.logps), (hidden, weight, bias))
            assert sum(products) == passes * len(rows)
            full = logits_of(hidden, weight, bias).log_softmax(-1).view(-1, V)
            wanted = torch.autograd.grad(make_loss(full[rows.index, rows.ids]), (hidden, weight, bias))
            for a, b in zip(got, wanted, strict=True):
                assert (a - b).norm() <= 1e-11 * b.norm()
    finally:
        Head._product = original


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize(("loss_type", "smoothing"), [("sigmoid", 0.0), ("sigmoid", 0.1), ("hinge", 0.0), ("ipo", 0.0)])
def test_dpo_schedules_equal_full_logits(loss_type, smoothing, normalised):
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(6, T, D, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(V, D, generator=generator, dtype=torch.float64).requires_grad_()
    ids = torch.randint(0, V, (6, T), generator=generator)
    mask = torch.arange(T) < torch.tensor([3, 9, 5, 9, 2, 7])[:, None]  # answers of different lengths
    reference = torch.randn(6, generator=generator, dtype=torch.float64)
    counts = mask.sum(-1) if normalised else 1
    logps = (logits_of(hidden, weight).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1) * mask).sum(-1) / counts
    chosen, rejected = (logps - reference).chunk(2)
    delta = chosen - rejected
    theirs = {
        "sigmoid": -(1 - smoothing) * F.logsigmoid(0.3 * delta) - smoothing * F.logsigmoid(-0.3 * delta),
        "hinge": torch.relu(1 - 0.3 * delta),
        "ipo": (delta - 1 / 0.6) ** 2,
    }[loss_type].mean()
    for schedule in ("two_pass", "one_pass"):
        ours, stats = streamed_dpo_loss(
            hidden,
            weight,
            ids,
            mask,
            reference,
            0.3,
            loss_type,
            smoothing,
            schedule,
            chunk_size=4,
            length_normalised=normalised,
            return_stats=True,
        )
        assert_same(ours, theirs, (hidden, weight))
        assert torch.allclose(stats.chosen_rewards, 0.3 * chosen)
        assert stats.accuracy.item() == pytest.approx((chosen > rejected).double().mean().item())


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_grpo_equals_full_logits(loss_type, level):
    generator = torch.Generator().manual_seed(3)
    double = {"generator": generator, "dtype": torch.float64}
    hidden, weight = torch.randn(B, T, D, **double).requires_grad_(), torch.randn(V, D, **double).requires_grad_()
    ids = torch.randint(0, V, (B, T), generator=generator)
    mask = torch.arange(T) < torch.tensor([9, 4])[:, None]
    advantages = torch.tensor([1.3, -0.8], dtype=torch.float64)
    full = (logits_of(hidden, weight) / 0.9).log_softmax(-1)
    logps = full.gather(-1, ids[..., None]).squeeze(-1)
    old, reference = (logps.detach() + 0.5 * torch.randn(B, T, **double) for _ in range(2))
    log_ratio = logps - old
    if level == "sequence":
        log_ratio = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    ratio = log_ratio.exp()
    per_token = -torch.min(
        ratio.clamp(max=1.9) * advantages[:, None], ratio.clamp(1 - 0.1, 1 + 0.3) * advantages[:, None]
    )
    kl = (reference - logps).exp() - (reference - logps) - 1
    per_token = per_token + 0.04 * kl
    theirs = {
        "grpo": ((per_token * mask).sum(-1) / mask.sum(-1)).mean(),
        "bnpo": (per_token * mask).sum() / mask.sum(),
        "dr_grpo": (per_token * mask).sum() / (B * 12),
        "dapo": (per_token * mask).sum() / 31,
    }[loss_type]
    ours, stats = streamed_grpo_loss(
        hidden,
        weight,
        ids,
        mask,
        advantages,
        old,
        reference,
        0.04,
        0.1,
        0.3,
        1.9,
        loss_type,
        0.9,
        31,
        level,
        max_completion_length=12,
        chunk_size=4,
        return_stats=True,
    )
    assert_same(ours, theirs, (hidden, weight))
    assert stats.kl.item() == pytest.approx(kl[mask].mean().item())
    entropies = -(full.exp() * full).sum(-1)
    assert stats.entropy.item() == pytest.approx(entropies[mask].mean().item())
    low = ((ratio < 0.9) & (advantages[:, None] < 0)).expand(B, T)[mask].double().mean()
    high = ((ratio > 1.3) & (advantages[:, None] > 0)).expand(B, T)[mask].double().mean()
    assert (stats.clip_low.item(), stats.clip_high.item()) == pytest.approx((low.item(), high.item()))
    assert stats.clip_region.item() == pytest.approx((low + high).item())


def test_on_policy_grpo_is_reinforce(head):
    hidden, weight, _, labels = head
    ids, mask, advantages = labels.clamp(min=0), labels != -100, torch.tensor([0.7, -1.1], dtype=torch.float64)
    logps = logits_of(hidden, weight).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)
    wanted = torch.autograd.grad(-(advantages[:, None] * logps * mask).sum() / mask.sum(), (hidden, weight))
    got = torch.autograd.grad(streamed_grpo_loss(hidden, weight, ids, mask, advantages), (hidden, weight))
    for a, b in zip(got, wanted, strict=True):
        assert (a - b).norm() <= 1e-12 * b.norm()


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
    ],
)
def test_bad_input_is_named(head, change, message):
    hidden, weight, _, labels = head
    with pytest.raises(ValueError, match=message):
        streamed_linear_cross_entropy(hidden, weight, change.pop("labels", labels), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": torch.ones(2, 2)}, "mask"),
        ({"ref_logps": torch.zeros(3)}, "ref_logps"),
        ({"loss_type": "dpo"}, "loss_type"),
        ({"schedule": "three_pass"}, "schedule"),
        ({"label_smoothing": 0.6}, "label_smoothing"),
    ],
)
def test_bad_preference_input_is_named(head, change, message):
    hidden, weight, _, labels = head
    given = {"mask": torch.ones(B, T), "ref_logps": torch.zeros(B), **change}
    with pytest.raises(ValueError, match=message):
        streamed_dpo_loss(hidden, weight, labels.clamp(min=0), **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": 0.1}, "ref_logps"),
        ({"loss_type": "ppo"}, "loss_type"),
        ({"level": "batch"}, "level"),
        ({"advantages": torch.zeros(3)}, "advantages"),
        ({"old_logps": torch.zeros(1)}, "old_logps"),
    ],
)
def test_bad_grpo_input_is_named(head, change, message):
    hidden, weight, _, labels = head
    given = {"advantages": torch.zeros(B), **change}
    with pytest.raises(ValueError, match=message):
        streamed_grpo_loss(hidden, weight, labels.clamp(min=0), torch.ones(B, T), **given)
