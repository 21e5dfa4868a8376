import pytest
import torch
from amorlip_ground import pairs
from torch.nn import functional

from thrifty.training.amorlip import PartitionAmortizer, batch_log_partition, estimate_log_partition
from thrifty.training.amorlip.networks import PartitionMLP


def clusters(n=512, dim=32, spread=0.15):
    rng = torch.Generator().manual_seed(0)
    centres = functional.normalize(torch.randn(8, dim, generator=rng), dim=1)
    of = torch.randint(8, (n,), generator=rng)
    return [functional.normalize(centres[of] + spread * torch.randn(n, dim, generator=rng), dim=1) for _ in range(2)]


def weights(networks):
    return torch.cat([p.flatten() for p in networks.parameters()]).clone()


@pytest.mark.parametrize(("dim", "factor", "count"), [(512, 1.0, 527_873), (1024, 0.5, 1_054_209)])
def test_parameter_counts(dim, factor, count):
    assert sum(p.numel() for p in PartitionMLP(dim, factor).parameters()) == count


def test_the_network_written_out():
    """Linear, ReLU, LayerNorm, twice; the residual before the last ReLU."""
    net, x = PartitionMLP(8, 0.5), torch.randn(5, 8)
    net.reset(torch.Generator().manual_seed(0))

    def layer(x, linear):
        h = (x @ linear.weight.T + linear.bias).clamp(min=0)
        return (h - h.mean(1, keepdim=True)) / (h.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()

    h = (layer(layer(x, net.first), net.second) + x).clamp(min=0)
    torch.testing.assert_close(net(x, torch.tensor(1.0)), (h @ net.last.weight.T + net.last.bias).squeeze(1))


def test_fitted_to_the_whole_set_it_is_exact():
    u, v = clusters()
    exact = (estimate_log_partition(u, v, 5.0), estimate_log_partition(v, u, 5.0))
    amortizer = PartitionAmortizer(32, num_samples=512, hidden_factor=1.0, amor_steps=600)
    amortizer.fit_batch(u, v, 5.0)
    for found, true in zip(amortizer.predict(u, v, which="online"), exact, strict=True):
        assert (found - true).square().mean() < 1e-3 < true.var()


def test_fitted_to_small_batches_it_is_nearer_to_the_truth_than_they_are():
    u, v = clusters()
    exact = estimate_log_partition(u, v, 5.0)
    amortizer = PartitionAmortizer(32, num_samples=512, hidden_factor=1.0, amor_steps=1)
    rng, errors = torch.Generator().manual_seed(1), []
    for _ in range(600):
        rows = torch.randperm(512, generator=rng)[:32]
        target, _ = amortizer.fit_batch(u[rows], v[rows], 5.0)
        errors.append((target - exact[rows]).square().mean())
    found, _ = amortizer.predict(u, v, which="online")
    assert (found - exact).square().mean() < 0.2 * torch.stack(errors).mean()


def test_the_average_follows_as_slowly_as_it_is_told():
    u, v = pairs()
    for alpha, left in ((0.0, 0.0), (1.0, 1.0), (0.9, 0.9**3)):
        amortizer = PartitionAmortizer(16, ema_decay=alpha)
        amortizer.fit_batch(u, v, 14.0)
        start, now = weights(amortizer.target), weights(amortizer.online)
        assert not torch.equal(start, now)
        for _ in range(3):
            amortizer.average()
        torch.testing.assert_close(weights(amortizer.target), left * start + (1 - left) * now)


def test_an_epoch_keeps_the_average_and_starts_anew():
    u, v = pairs()
    amortizer = PartitionAmortizer(16, reinit_every=2, beta_epochs=2, ema_decay=0.0)
    amortizer.start_epoch(0)
    assert amortizer.beta == 0
    amortizer.fit_batch(u, v, 14.0)
    amortizer.average()
    learned = weights(amortizer.target)
    amortizer.start_epoch(1)
    assert torch.equal(weights(amortizer.previous), learned)
    assert torch.equal(weights(amortizer.online), learned)  # due every second epoch
    assert amortizer.beta == pytest.approx(0.4)
    amortizer.start_epoch(2)
    assert not torch.equal(weights(amortizer.online), learned)
    assert torch.equal(weights(amortizer.online), weights(amortizer.target))
    assert not amortizer.optimizer.state
    assert torch.equal(weights(amortizer.previous), learned)
    fresh = weights(amortizer.online)
    amortizer.start_epoch(2)  # again, as after a resume
    assert torch.equal(weights(amortizer.online), fresh)
    amortizer.start_epoch(3)  # nothing was fitted in epoch 2: what was learned earlier stays
    assert torch.equal(weights(amortizer.previous), learned)


def test_targets_are_mixed_with_what_the_previous_network_says():
    u, v = pairs()
    amortizer = PartitionAmortizer(16, beta_epochs=1, beta_max=0.8, ema_decay=0.0)
    amortizer.start_epoch(0)
    amortizer.fit_batch(u, v, 14.0)
    amortizer.average()
    said = amortizer.predict(u, v, which="target")
    amortizer.start_epoch(1)
    for found, previous, batch in zip(
        amortizer.fit_batch(u, v, 14.0),
        said,
        batch_log_partition(u, v, 14.0).mean_scale(),
        strict=True,
    ):
        torch.testing.assert_close(found.exp(), 0.8 * previous.exp() + 0.2 * batch.exp())


def test_a_fresh_network_begins_at_the_level_of_its_targets():
    u, v = pairs()
    amortizer = PartitionAmortizer(16, amor_steps=1, amor_lr=1e-9)
    target, _ = amortizer.fit_batch(u, v, 60.0)
    found, _ = amortizer.predict(u, v, which="online")
    assert found.mean() == pytest.approx(target.mean().item(), abs=1e-3)
    slow, _ = amortizer.predict(u, v)
    assert slow.mean() == pytest.approx(target.mean().item(), abs=1e-3)


def test_prototypes_begin_as_the_batch_whose_sum_they_stand_for():
    u, v = pairs()
    amortizer = PartitionAmortizer(16, network="prototypes", prototypes=32, amor_steps=1, amor_lr=1e-9)
    target, _ = amortizer.fit_batch(u, v, 14.0)
    torch.testing.assert_close(amortizer.predict(u, v, 14.0)[0], target, atol=1e-4, rtol=0)


def test_the_fit_ends_early_where_nothing_changes():
    u, v = pairs()
    counted = []
    for tol in (1e9, 0.0):
        amortizer = PartitionAmortizer(16, amor_steps=40, amor_tol=tol)
        amortizer.fit_batch(u, v, 14.0)
        (state, *_) = amortizer.optimizer.state.values()
        counted.append(int(state["step"]))
    assert counted == [6, 40]
    short = PartitionAmortizer(16, amor_steps=3, amor_tol=1e9)
    short.fit_batch(u, v, 14.0)
    assert int(next(iter(short.optimizer.state.values()))["step"]) == 3


def test_seeds_decide_the_networks_and_nothing_else_is_drawn():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (PartitionAmortizer(16, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(weights(one.online), weights(same.online))
    assert not torch.equal(weights(one.online), weights(other.online))


def test_an_optimizer_that_meets_the_networks_leaves_them_alone():
    amortizer = PartitionAmortizer(16)
    assert not [p for p in amortizer.parameters() if p.requires_grad]
    amortizer.fit_batch(*pairs(), 14.0)
    assert not [p for p in amortizer.parameters() if p.requires_grad or p.grad is not None]


def test_inputs_may_be_scaled():
    x = torch.randn(4, 16)
    net = PartitionMLP(16, scale_inputs=True)
    plain = PartitionMLP(16)
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x, torch.tensor(9.0)), plain(3 * x, torch.tensor(1.0)))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"beta_max": 1.0}, r"beta_max: expected a number in \[0, 1\): at 1 no batch would count any more, got 1.0"),
        ({"beta_max": -0.1}, "beta_max"),
        ({"ema_decay": 1.5}, r"ema_decay: expected a number in \[0, 1\], got 1.5"),
        ({"amor_steps": 0}, "amor_steps: expected a whole number of at least 1, got 0"),
        ({"amor_every": 0}, "amor_every"),
        ({"target_every": 0}, "target_every"),
        ({"reinit_every": -1}, "reinit_every"),
        ({"objective": "kl_div_sym"}, "objective: expected one of 'l2_log', 'kl', 'gkl', 'js', 'neuclip'"),
        ({"encoder_lambda": "batch"}, "encoder_lambda: expected one of 'combined', 'target', 'online'"),
        ({"network": "cnn"}, "network: expected one of 'mlp', 'prototypes'"),
        ({"pos_coef": -1}, "pos_coef: expected .auto. or a number of at least 0, got -1"),
        ({"rho": [1.0, 2.0, 3.0], "epochs": 2}, "rho: expected between one value and one an epoch"),
        ({"rho": [1.0, 2.0]}, "rho"),
        ({"adaptive_tau": True}, "adaptive_tau: expected rho with it"),
        ({"use_prev": False}, 'use_prev: expected encoder_lambda "target" or "online" without it'),
        ({"official_scaling": True}, "official_scaling: expected the objective kl or js with it, got 'l2_log'"),
        ({"hidden_factor": 0.01}, "hidden_factor: expected at least 0.0625 for 16, got 0.01"),
        ({"chunk_size": 0}, "chunk_size"),
        ({"temperature": 1}, "temperature: no such setting; there are objective, network"),
    ],
)
def test_settings_out_of_range_are_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        PartitionAmortizer(16, **overrides)


def test_without_the_previous_network_the_averages_memory_grows():
    amortizer = PartitionAmortizer(16, use_prev=False, encoder_lambda="target", beta_epochs=2)
    seen = []
    for epoch in range(3):
        amortizer.start_epoch(epoch)
        amortizer.fit_batch(*pairs(), 14.0)
        seen.append((amortizer.decay, amortizer.beta))
    assert seen == [(0.0, 0.0), (pytest.approx(0.4), 0.0), (0.8, 0.0)]
