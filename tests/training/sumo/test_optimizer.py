"""The optimizer as torch's users know optimizers: groups, schedules, closures, bad gradients, AdamW beside SUMO."""

import copy
import warnings

import pytest
import torch
from sumo_ground import matrix, run
from torch import nn

from thrifty.training.sumo import SUMO, sumo_param_groups


def parameter(rng, *shape, **options):
    return nn.Parameter(matrix(rng, *shape, **options))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", -1.0),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("weight_decay", -0.1),
        ("rank", 0),
        ("rank", 2.5),
        ("update_proj_gap", 0),
        ("norm_growth_limit", 1.0),
        ("scale", 0.0),
        ("residual", "sgd"),
        ("residual_scale", -1.0),
        ("limit_target", "weight"),
        ("refresh", "energy"),
        ("projector", "qr"),
        ("orthogonalizer", "ns6"),
        ("adjust_lr_fn", "spectral"),
        ("betas", (0.9, 1.0)),
        ("eps", -1e-8),
        ("oversample", -1),
        ("power_iters", -1),
        ("split", 5),
        ("state_dtype", torch.int8),
        ("rounding", "up"),
        ("nonfinite", "ignore"),
        ("lr", torch.ones(2)),
        ("lr", torch.tensor(-1.0)),
        ("lr", "0.1"),
        ("lr", None),
        ("lr", float("nan")),
        ("momentum", "high"),
        ("betas", 0.9),
        ("betas", (0.9,)),
        ("eps", None),
        ("scale", "4"),
        ("norm_growth_limit", "1.1"),
        ("rank", True),
        ("seed", 1.5),
    ],
)
def test_bad_options_are_named_with_what_came(option, value, rng):
    with pytest.raises(ValueError, match=rf"^({option}|betas\[1\]|energy_threshold)\b.*: "):
        SUMO([parameter(rng, 8, 6)], **{option: value})


def test_options_that_contradict_each_other_are_refused(rng):
    with pytest.raises(ValueError, match="limit_target"):
        SUMO([parameter(rng, 8, 6)], limit_target="residual", residual="fira")
    with pytest.raises(ValueError, match="rounding"):
        SUMO([nn.Parameter(torch.zeros(8, 6, dtype=torch.float16))], rounding="stochastic")
    with pytest.raises(ValueError, match="complex"):
        SUMO([nn.Parameter(torch.zeros(8, 6, dtype=torch.complex64))])
    optimizer = SUMO([parameter(rng, 8, 6)], rank=2)
    with pytest.raises(ValueError, match="rank"):
        optimizer.add_param_group({"params": [parameter(rng, 8, 6)], "rank": 0})
    assert len(optimizer.param_groups) == 1


def test_rank_above_the_smaller_side_is_cut_with_one_warning(rng):
    with pytest.warns(UserWarning, match=r"rank: 128 is not below .* \(8, 6\)") as caught:
        optimizer = SUMO([parameter(rng, 8, 6), parameter(rng, 9, 6)])
    assert len(caught) == 1
    weight = optimizer.param_groups[0]["params"][0]
    weight.grad = matrix(rng, 8, 6)
    optimizer.step()
    assert optimizer.state[weight]["basis"].shape == (8, 6)


def test_no_learning_rate_changes_nothing_and_decay_alone_decays(rng):
    start, gradients = matrix(rng, 8, 6), [matrix(rng, 8, 6) for _ in range(3)]
    weights, _ = run(gradients, start, lr=0.0, rank=2, weight_decay=0.1)
    assert torch.equal(weights[-1], start)
    weights, _ = run([torch.zeros(8, 6)] * 3, start, lr=0.5, rank=2, weight_decay=0.1)
    torch.testing.assert_close(weights[-1], start * 0.95**3)


def test_a_zero_gradient_moves_nothing_and_leaves_the_refresh_due(rng):
    start, G = matrix(rng, 8, 6), matrix(rng, 8, 6)
    weights, optimizer = run([torch.zeros(8, 6), torch.zeros(8, 6), G], start, lr=0.5, rank=2)
    assert torch.equal(weights[0], start)
    assert torch.equal(weights[1], start)
    state = next(iter(optimizer.state.values()))
    assert (int(state["refresh_count"]), int(state["refreshed_at"]), int(state["step"])) == (1, 2, 3)
    assert not torch.equal(weights[2], start)


def test_a_refresh_that_meets_a_zero_gradient_keeps_the_old_basis(rng):
    G, zero = matrix(rng, 8, 6), torch.zeros(8, 6)
    _, optimizer = run([G, G, zero, G], lr=0.1, rank=2, update_proj_gap=2)
    state = next(iter(optimizer.state.values()))
    assert (int(state["refresh_count"]), int(state["refreshed_at"])) == (2, 3)


def test_without_a_gradient_the_clock_stands_still(rng):
    G = matrix(rng, 8, 6)
    weights, optimizer = run([G, None, None, G], lr=0.1, rank=2, update_proj_gap=2)
    assert torch.equal(weights[0], weights[2])
    assert int(next(iter(optimizer.state.values()))["step"]) == 2


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("first", [True, False])
def test_a_gradient_that_is_not_finite_is_named_before_anything_is_written(bad, first, foreach, rng):
    weight = parameter(rng, 8, 6)
    optimizer = SUMO([("block.weight", weight)], rank=2, foreach=foreach, lr=0.1)
    if not first:
        weight.grad = matrix(rng, 8, 6)
        optimizer.step()
    before, state = weight.detach().clone(), copy.deepcopy(optimizer.state_dict()["state"])
    weight.grad = matrix(rng, 8, 6)
    weight.grad[3, 2] = bad
    with pytest.raises(
        ValueError, match=rf"block.weight: its gradient holds NaN or Inf .* at its step {int(not first)}"
    ):
        optimizer.step()
    assert torch.equal(weight, before)
    if not first:
        torch.testing.assert_close(optimizer.state_dict()["state"], state, rtol=0, atol=0)


def test_skipping_leaves_only_the_bad_parameter_out_and_counts(rng):
    names = ["a", "b", "bias"]
    parameters = [parameter(rng, 8, 6), parameter(rng, 8, 6), parameter(rng, 6)]
    optimizer = SUMO(list(zip(names, parameters, strict=True)), rank=2, lr=0.1, nonfinite="skip")
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.ones_like(p)
    parameters[0].grad[0, 0] = float("nan")
    parameters[2].grad[0] = float("inf")
    optimizer.step()
    assert [torch.equal(p, b) for p, b in zip(parameters, before, strict=True)] == [True, False, True]
    assert optimizer.skipped == {"a": 1, "bias": 1}
    assert int(optimizer.state[parameters[0]]["step"]) == 0


def test_sparse_gradients_are_refused(rng):
    table = nn.Embedding(10, 8, sparse=True)
    optimizer = SUMO(table.parameters(), rank=2)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse gradient"):
        optimizer.step()


def test_an_embedding_that_is_forced_works(rng):
    table = nn.Embedding(50, 8)
    optimizer = SUMO(table.parameters(), rank=4, residual="none", lr=0.1)
    before = table.weight.detach().clone()
    table(torch.tensor([1, 3])).pow(2).sum().backward()
    optimizer.step()
    moved = (table.weight - before).norm(dim=1) > 1e-6
    assert moved.nonzero().flatten().tolist() == [1, 3], "rows that were not used stay"


def test_adamw_beside_it_is_torchs(rng):
    ours, theirs = [nn.Parameter(matrix(rng, 7)) for _ in range(2)], []
    ours += [nn.Parameter(matrix(rng, 5, 4))]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    options = {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}
    optimizer = SUMO([{"params": ours[:2]}, {"params": ours[2:], "use_sumo": False}], rank=2, **options)
    torchs = torch.optim.AdamW(theirs, **options)
    for _ in range(10):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = matrix(rng, *a.shape)
            b.grad = a.grad.clone()
        optimizer.step()
        torchs.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=0)
        assert set(optimizer.state[a]) == {"step", "exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("residual", ["raw", "none", "fira"])
@pytest.mark.parametrize("limit_target", ["orthogonal", "update"])
def test_a_batch_of_matrices_takes_the_steps_of_single_ones(residual, limit_target, rng):
    shapes = [(12, 8), (12, 8), (8, 12), (20, 5), (5, 20), (9,)]
    starts = [matrix(rng, *shape) for shape in shapes]
    gradients = [[matrix(rng, *shape) for shape in shapes] for _ in range(7)]
    found = []
    for foreach in (False, True):
        parameters = [nn.Parameter(start.clone()) for start in starts]
        options = {"lr": 0.05, "rank": 4, "update_proj_gap": 3, "residual": residual, "limit_target": limit_target}
        optimizer = SUMO(parameters, foreach=foreach, **options)
        for step in gradients:
            for p, G in zip(parameters, step, strict=True):
                p.grad = G.clone()
            optimizer.step()
        found.append(parameters)
    for single, batched in zip(*found, strict=True):
        torch.testing.assert_close(single, batched, atol=1e-6, rtol=1e-5)


def test_maximize_climbs(rng):
    gradients = [matrix(rng, 9, 6, dtype=torch.float64) for _ in range(5)]
    for residual in ("raw", "fira"):
        options = {"lr": 0.1, "rank": 2, "update_proj_gap": 2, "residual": residual}
        down, _ = run(gradients, **options)
        up, _ = run(gradients, maximize=True, **options)
        torch.testing.assert_close(up[-1], -down[-1])


def test_a_learning_rate_in_a_tensor(rng):
    gradients = [matrix(rng, 9, 6) for _ in range(4)]
    options = {"rank": 2, "update_proj_gap": 2, "weight_decay": 0.1}
    for residual in ("raw", "none", "fira"):
        number, _ = run(gradients, lr=0.1, residual=residual, **options)
        tensor, _ = run(gradients, lr=torch.tensor(0.1), residual=residual, **options)
        torch.testing.assert_close(number[-1], tensor[-1], atol=1e-6, rtol=1e-6)
    bias = nn.Parameter(torch.ones(3))
    optimizer = SUMO([bias], lr=torch.tensor(0.1), foreach=True)
    bias.grad = torch.ones(3)
    optimizer.step()
    torch.testing.assert_close(bias.detach(), torch.full((3,), 0.9))


def test_closures_schedulers_and_clipping_work_as_everywhere(rng):
    model = nn.Sequential(nn.Linear(24, 32), nn.Tanh(), nn.Linear(32, 24))
    X = matrix(rng, 64, 24)
    optimizer = SUMO(sumo_param_groups(model, rank=4), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)

    def closure():
        optimizer.zero_grad()
        loss = (model(X) - X).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    losses = []
    for _ in range(60):
        losses.append(optimizer.step(closure).item())
        schedule.step()
    assert losses[-1] < 0.6 * losses[0]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-9)


def test_grad_scaler_unscales_and_skips(rng):
    weight = parameter(rng, 8, 6)
    optimizer = SUMO([weight], rank=2, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    before = weight.detach().clone()
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(weight, before)
    optimizer.zero_grad()
    target = matrix(rng, 8, 6)
    scaler.scale((weight * target).sum()).backward()
    scaler.step(optimizer)
    (expected,), _ = run([target], before, rank=2, lr=0.1)
    torch.testing.assert_close(weight.detach(), expected, atol=1e-5, rtol=0)


def test_refreshes_can_be_staggered(rng):
    parameters = [parameter(rng, 8, 6) for _ in range(4)]
    optimizer = SUMO(parameters, rank=2, update_proj_gap=8, stagger=True, lr=0.01)
    counts = []
    for _ in range(9):
        for p in parameters:
            p.grad = matrix(rng, 8, 6)
        optimizer.step()
        counts.append(sum(int(optimizer.state[p]["refresh_count"]) for p in parameters))
    assert counts == [4, 4, 5, 5, 6, 6, 7, 7, 8]


def test_a_layer_that_was_frozen_has_its_own_clock(rng):
    a, b = parameter(rng, 8, 6), parameter(rng, 8, 6)
    optimizer = SUMO([a, b], rank=2, update_proj_gap=3, lr=0.01)
    for step in range(6):
        a.grad = matrix(rng, 8, 6)
        b.grad = matrix(rng, 8, 6) if step >= 4 else None
        optimizer.step()
    assert [int(optimizer.state[p]["refresh_count"]) for p in (a, b)] == [2, 1]


def test_a_new_rank_or_shape_begins_anew_with_a_warning(rng):
    weight = parameter(rng, 8, 6)
    optimizer = SUMO([weight], rank=2, lr=0.01)
    weight.grad = matrix(rng, 8, 6)
    optimizer.step()
    optimizer.param_groups[0]["rank"] = 3
    with pytest.warns(UserWarning, match="begins anew"):
        optimizer.step()
    assert optimizer.state[weight]["basis"].shape == (8, 3)
    weight.data, weight.grad = matrix(rng, 10, 6), None
    weight.grad = matrix(rng, 10, 6)
    with pytest.warns(UserWarning, match="begins anew"):
        optimizer.step()
    assert optimizer.state[weight]["basis"].shape == (10, 3)


def test_a_residual_that_rules_is_said_once(rng):
    gradients = [1e4 * matrix(rng, 30, 20) for _ in range(25)]
    with pytest.warns(UserWarning, match="lower residual_scale") as caught:
        run(gradients, rank=2, lr=1e-9, adjust_lr_fn="none")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(gradients, rank=2, lr=1e-9, residual="none")
        run([1e-4 * G for G in gradients], rank=2, lr=1e-9)


def test_one_seed_one_result_and_another_seed_another(rng):
    gradients = [matrix(rng, 60, 40) for _ in range(5)]
    options = {"lr": 0.1, "rank": 3, "update_proj_gap": 2, "power_iters": 0}
    torch.manual_seed(1)
    first, _ = run(gradients, **options, seed=3)
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second, _ = run(gradients, **options, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before), "the global generator is not touched"
    other, _ = run(gradients, **options, seed=4)
    assert torch.equal(first[-1], second[-1])
    assert not torch.equal(first[-1], other[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_weights_keep_float32_state(dtype, rng, monkeypatch):
    monkeypatch.setattr("thrifty.training.sumo.weights.BLOCK", 50)  # several blocks a matrix
    start, gradients = matrix(rng, 12, 8), [matrix(rng, 12, 8).to(dtype) for _ in range(6)]
    options = {"lr": 0.02, "rank": 3, "update_proj_gap": 3, "weight_decay": 0.01}
    short, optimizer = run(gradients, start.to(dtype), **options)
    wide, _ = run([G.float() for G in gradients], start.to(dtype).float(), **options)
    state = next(iter(optimizer.state.values()))
    assert {state[name].dtype for name in ("basis", "moment")} == {torch.float32}
    torch.testing.assert_close(short[-1].float(), wide[-1], atol=6 * torch.finfo(dtype).eps * 3, rtol=0)


def test_float32_weights_with_16_bit_gradients_and_a_16_bit_moment(rng):
    gradients = [matrix(rng, 12, 8) for _ in range(6)]
    options = {"lr": 0.02, "rank": 3, "update_proj_gap": 3}
    wide, _ = run(gradients, **options)
    weights, optimizer = run(gradients, state_dtype=torch.bfloat16, **options)
    assert next(iter(optimizer.state.values()))["moment"].dtype == torch.bfloat16
    torch.testing.assert_close(weights[-1], wide[-1], atol=0.02, rtol=0)


@pytest.mark.parametrize("rounding", ["stochastic", "kahan"])
@pytest.mark.parametrize("use_sumo", [True, False])
def test_small_steps_on_bfloat16_weights_are_not_lost(rounding, use_sumo, rng):
    start = torch.full((32, 16), 1.0, dtype=torch.bfloat16)
    G = matrix(rng, 32, 16).sign().bfloat16()
    options = {
        "lr": 2e-4,
        "rank": 8,
        "adjust_lr_fn": "rank_rms",
        "scale": 5.0,
        "use_sumo": use_sumo,
        "residual": "none",
    }
    exact, _ = run([G.float()] * 100, start.float(), **options)
    lost, _ = run([G] * 100, start, **options)
    found, _ = run([G] * 100, start, rounding=rounding, **options)

    def error(weight):
        return (weight[-1].float() - exact[-1]).mean().abs() + (weight[-1].float() - exact[-1]).norm() / 512**0.5

    assert error(lost) > 0.005, "a step of 2e-4 is below half the spacing at 1"
    assert error(found) < 0.6 * error(lost)
