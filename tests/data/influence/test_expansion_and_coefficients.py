"""The expansion is exact for quadratic losses and third-order else; the coefficients are the real optimizers' steps."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian

from thrifty.data.influence import optimizer_coefficients
from thrifty.data.influence.expansion import influence_matrix, influence_vector, predicted_change


def test_golden_quadratic_is_exact():
    theta = torch.tensor([0.5, -0.5], dtype=torch.float64)
    S, y = torch.tensor([[1.0, 0], [0, 1], [1, 1]]).double(), torch.tensor([1.0, 2, 0]).double()
    T, z = torch.tensor([[1.0, 2], [2, 1]]).double(), torch.tensor([1.0, -1]).double()
    lr = 0.1
    G = (S @ theta - y)[:, None] * S
    target = ((T @ theta - z)[:, None] * T).mean(0)
    H = T.T @ T / 2
    p = influence_vector(G, target)
    Q = influence_matrix(G, lambda rows: rows @ H)
    assert torch.allclose(p, torch.tensor([-0.375, 1.875, 0]).double())
    assert Q[0, 0] == pytest.approx(0.208333, abs=1e-6)
    assert Q[0, 1] == pytest.approx(0.833333, abs=1e-6)
    assert Q[1, 1] == pytest.approx(5.208333, abs=1e-6)
    assert not Q[2].any()

    def loss(theta):
        return ((T @ theta - z) ** 2).mean() / 2

    for weights, expected in (([1.0, 1, 1], -0.0381944), ([3.0, 0, 0], 0.0406250)):
        w = torch.tensor(weights).double()
        change = loss(theta - lr / 3 * G.T @ w) - loss(theta)
        assert float(change) == pytest.approx(expected, abs=1e-6)
        assert float(predicted_change(w, p, Q, lr) - change) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("adaptive", [False, True])
def test_the_error_is_of_third_order_on_a_network(adaptive):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    values = {name: p.detach() for name, p in net.named_parameters()}
    shapes = [(name, v.shape, v.numel()) for name, v in values.items()]

    def unflat(theta):
        pieces = theta.split([size for *_, size in shapes])
        return {name: piece.reshape(shape) for (name, shape, _), piece in zip(shapes, pieces, strict=True)}

    theta = torch.cat([v.reshape(-1) for v in values.values()])
    S, T = torch.randn(4, 3).double(), torch.randn(6, 3).double()
    y, z = torch.randn(4).double(), torch.randn(6).double()

    def loss(theta, x, y):
        return (functional_call(net, unflat(theta), (x,)).squeeze(-1) - y).square().mean()

    G = torch.stack([grad(loss)(theta, S[i : i + 1], y[i : i + 1]) for i in range(4)])
    a = torch.rand(len(theta)).double() + 0.5 if adaptive else torch.ones(len(theta)).double()
    b = torch.randn(len(theta)).double() if adaptive else torch.zeros(len(theta)).double()
    w = torch.tensor([2.0, 0.5, 0, 1.5]).double()
    H, g = hessian(loss)(theta, T, z), grad(loss)(theta, T, z)
    errors = []
    for lr in (0.04, 0.02, 0.01):
        p = influence_vector(G, g, a=a, curved_b=H @ b, lr=lr)
        Q = influence_matrix(G, lambda rows: rows @ H, a=a)
        moved = theta - lr * (a * (G.T @ w / 4) + b)
        still = theta - lr * b
        # The step without examples is common to all weights; f measures from there, up to third order.
        errors.append(abs(float(loss(moved, T, z) - loss(still, T, z) - predicted_change(w, p, Q, lr))))
    assert errors[0] / errors[1] > 5.5
    assert errors[1] / errors[2] > 6.5


CASES = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD, decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.3}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.1}),
    "damped": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.4, "weight_decay": 0.2}),
    "Nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.2}),
    "ascent": (torch.optim.SGD, {"lr": 0.1, "maximize": True, "weight_decay": 0.2}),
}


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("case", CASES)
def test_sgd_steps_exactly(case, steps):
    kind, options = CASES[case]
    p = nn.Parameter(torch.randn(5, generator=torch.Generator().manual_seed(0)).double())
    optimizer = kind([p], **options)
    g = torch.Generator().manual_seed(1)
    for _ in range(steps):
        p.grad = torch.randn(5, generator=g).double()
        optimizer.step()
    found = optimizer_coefficients(optimizer, {"p": p})
    before, p.grad = p.detach().clone(), torch.randn(5, generator=g).double()
    optimizer.step()
    assert torch.allclose(p - before, -found.lr * (found.a["p"] * p.grad + found.b["p"]), atol=1e-10, rtol=0)


ADAMS = {
    "Adam": (torch.optim.Adam, {}),
    "Adam, L2": (torch.optim.Adam, {"weight_decay": 0.1}),
    "AdamW": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "AdamW, no decay": (torch.optim.AdamW, {"weight_decay": 0.0}),
    "decoupled Adam": (torch.optim.Adam, {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "ascent": (torch.optim.AdamW, {"weight_decay": 0.1, "maximize": True}),
}


@pytest.mark.parametrize("case", ADAMS)
def test_adam_steps_exactly_once_the_second_moment_is_advanced(case):
    kind, options = ADAMS[case]
    p = nn.Parameter(torch.randn(5, generator=torch.Generator().manual_seed(0)).double())
    optimizer = kind([p], lr=1e-2, **options)
    g = torch.Generator().manual_seed(1)
    for _ in range(10):
        p.grad = torch.randn(5, generator=g).double()
        optimizer.step()
    p.grad = torch.randn(5, generator=g).double()
    advanced = copy.deepcopy(optimizer)
    state = advanced.state[advanced.param_groups[0]["params"][0]]
    coupled = options.get("weight_decay", 0) and kind is torch.optim.Adam and "decoupled_weight_decay" not in options
    seen = p.grad * (-1 if options.get("maximize") else 1) + (options["weight_decay"] * p.detach() if coupled else 0)
    state["exp_avg_sq"] = 0.999 * state["exp_avg_sq"] + 0.001 * seen**2
    found = optimizer_coefficients(advanced, {"p": advanced.param_groups[0]["params"][0]})
    before = p.detach().clone()
    optimizer.step()
    assert torch.allclose(p - before, -found.lr * (found.a["p"] * p.grad + found.b["p"]), atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_groups_saved_before_there_was_a_flag_go_by_the_class(kind):
    p = nn.Parameter(torch.randn(5, generator=torch.Generator().manual_seed(0)).double())
    optimizer = kind([p], lr=1e-2, weight_decay=0.5)
    p.grad = torch.ones(5).double()
    optimizer.step()
    new = optimizer_coefficients(optimizer, {"p": p})
    del optimizer.param_groups[0]["decoupled_weight_decay"]
    assert torch.equal(optimizer_coefficients(optimizer, {"p": p}).b["p"], new.b["p"])


def test_freezing_the_second_moment_costs_less_and_less():
    errors = []
    for steps in (3, 30, 600):
        p = nn.Parameter(torch.zeros(50).double())
        optimizer = torch.optim.Adam([p], lr=1e-3)
        g = torch.Generator().manual_seed(0)
        for _ in range(steps):
            p.grad = 1 + torch.randn(50, generator=g).double()
            optimizer.step()
        found = optimizer_coefficients(optimizer, {"p": p})
        p.grad = 1 + torch.randn(50, generator=g).double()
        before = p.detach().clone()
        optimizer.step()
        step = p.detach() - before
        frozen = -found.lr * (found.a["p"] * p.grad + found.b["p"])
        errors.append(float((step - frozen).norm() / step.norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.01


def test_groups_with_different_rates_and_a_schedule_that_has_run_out():
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([{"params": [p], "lr": 0.1}, {"params": [q], "lr": 0.02, "weight_decay": 1.0}])
    found = optimizer_coefficients(optimizer, {"p": p, "q": q})
    assert found.lr == 0.1
    assert found.a["q"] == pytest.approx(0.2)
    assert torch.allclose(torch.as_tensor(found.b["q"]), torch.full((2,), 0.2))
    ended = torch.optim.SGD([p], lr=0.4)
    ended.param_groups[0] |= {"lr": 0.0, "initial_lr": 0.4}
    assert optimizer_coefficients(ended, {"p": p}).lr == pytest.approx(0.2)
    ended.param_groups[0].pop("initial_lr")
    with pytest.raises(ValueError, match="learning rate above 0"):
        optimizer_coefficients(ended, {"p": p})


def test_amsgrad_reads_its_maximum():
    p = nn.Parameter(torch.ones(3).double())
    optimizer = torch.optim.Adam([p], lr=1e-2, amsgrad=True)
    for size in (5.0, 0.1, 0.1):
        p.grad = torch.full((3,), size).double()
        optimizer.step()
    p.grad = torch.full((3,), 0.1).double()
    found, before = optimizer_coefficients(optimizer, {"p": p}), p.detach().clone()
    optimizer.step()
    assert torch.allclose(p - before, -found.lr * (found.a["p"] * p.grad + found.b["p"]), rtol=1e-3)


def test_what_is_no_optimizer_of_the_model():
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=r"does not hold 1 of the 2 selected parameters.*\(layer\.q\)"):
        optimizer_coefficients(torch.optim.SGD([p], lr=0.1), {"p": p, "layer.q": q})
    with pytest.raises(ValueError, match=r"no state for 1 selected parameters \(p\).*Warm up first"):
        optimizer_coefficients(torch.optim.AdamW([p]), {"p": p})
    with pytest.raises(TypeError, match="SGD, Adam or AdamW.*got RMSprop"):
        optimizer_coefficients(torch.optim.RMSprop([p]), {"p": p})
