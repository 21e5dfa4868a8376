"""Log-probabilities, DPO and GRPO on the streamed head, against full logits in float64."""

import pytest
import torch
import torch.nn.functional as F
from full_logits import B, D, T, V, assert_same, logits_of

from thrifty.training.streambp import (
    streamed_dpo_loss,
    streamed_grpo_loss,
    streamed_token_logps,
)


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
        ({"mask": torch.ones(2, 2)}, "mask"),
        ({"ref_logps": torch.zeros(3)}, "ref_logps"),
        ({"loss_type": "dpo"}, "loss_type"),
        ({"schedule": "three_pass"}, "schedule"),
        ({"label_smoothing": 0.6}, "label_smoothing"),
        ({"beta": 0.0}, "beta"),
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
        ({"eps_low": -0.1}, "eps_low"),
        ({"delta": -1.0}, "delta"),
        ({"num_items_in_batch": 0}, "num_items_in_batch"),
        ({"max_completion_length": 0}, "max_completion_length"),
    ],
)
def test_bad_grpo_input_is_named(head, change, message):
    hidden, weight, _, labels = head
    given = {"advantages": torch.zeros(B), **change}
    with pytest.raises(ValueError, match=message):
        streamed_grpo_loss(hidden, weight, labels.clamp(min=0), torch.ones(B, T), **given)
