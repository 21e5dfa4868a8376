"""What happens to an optimizer between steps: copies, changed options, added groups, loading in another order."""

import copy
import inspect
import pickle

import pytest
import torch
from sumo_ground import matrix
from torch import nn

from thrifty.training.sumo import SUMO, attach_layerwise, sumo_param_groups
from thrifty.training.sumo.options import GROUP_OPTIONS


def make(dtype=torch.float32, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24)).to(dtype)
    return model, SUMO(sumo_param_groups(model, rank=4), **{"lr": 0.02, "update_proj_gap": 3, **options})


def train(model, optimizer, steps):
    for step in range(steps):
        X = matrix(torch.Generator().manual_seed(step), 16, 24, dtype=next(model.parameters()).dtype)
        optimizer.zero_grad()
        (model(X) - X).pow(2).mean().backward()
        optimizer.step()


def test_every_option_of_a_group_is_an_argument():
    arguments = set(inspect.signature(SUMO).parameters) - {"params", "nonfinite", "diagnostics"}
    assert set(GROUP_OPTIONS) == arguments


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_goes_on_as_the_original(copied):
    model, optimizer = make(nonfinite="skip", diagnostics=True, seed=5)
    train(model, optimizer, 4)
    again, twin = copied((model, optimizer))
    assert (twin.nonfinite, twin.diagnostics, twin.seed) == ("skip", True, 5)
    assert twin.reports.keys() == optimizer.reports.keys()
    for each in ((model, optimizer), (again, twin)):
        train(*each, 4)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    twin.step_parameter(again[0].weight)


def test_the_seed_travels_with_the_checkpoint():
    model, optimizer = make(seed=5, power_iters=0, oversample=0)
    train(model, optimizer, 2)
    again, resumed = make(seed=6, power_iters=0, oversample=0)
    again.load_state_dict(model.state_dict())
    resumed.load_state_dict(optimizer.state_dict())
    for each in ((model, optimizer), (again, resumed)):
        train(*each, 4)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("use_sumo", [True, False])
def test_an_option_that_needs_another_entry_may_be_changed_between_steps(use_sumo):
    model, optimizer = make(torch.bfloat16)
    optimizer.param_groups[0]["use_sumo"] = use_sumo
    train(model, optimizer, 2)
    moment = optimizer.state[model[0].weight]["moment" if use_sumo else "exp_avg"]
    optimizer.param_groups[0] |= {"residual": "fira", "rounding": "kahan"}
    train(model, optimizer, 2)
    state = optimizer.state[model[0].weight]
    assert "compensation" in state
    assert ("prev_residual_norm" in state) == use_sumo
    assert state["moment" if use_sumo else "exp_avg"] is moment, "nothing else is lost"


def test_state_of_another_shape_begins_anew_with_a_warning_in_adamw_too():
    model, optimizer = make()
    train(model, optimizer, 1)
    model[2].bias.data = torch.zeros(30)
    model[2].weight.data = torch.zeros(30, 40)
    model[2].weight.grad, model[2].bias.grad = torch.ones(30, 40), torch.ones(30)
    with pytest.warns(UserWarning, match="begins anew") as caught:
        optimizer.step()
    said = sorted(str(warning.message) for warning in caught)
    assert [line.split(":")[0] for line in said] == ["2.bias", "2.weight"]
    assert optimizer.state[model[2].bias]["exp_avg"].shape == (30,)


def test_a_fused_weight_that_is_divided_otherwise_begins_anew(rng):
    weight = nn.Parameter(matrix(rng, 12, 6))
    optimizer = SUMO([("w", weight)], rank=2, split=2, lr=0.1)
    weight.grad = matrix(rng, 12, 6)
    optimizer.step()
    optimizer.param_groups[0]["split"] = 1
    with pytest.warns(UserWarning, match="w: its state was of another shape"):
        optimizer.step()


def test_state_finds_its_parameter_by_name():
    model, optimizer = make()
    train(model, optimizer, 4)
    groups = sumo_param_groups(model, rank=4)[::-1]
    groups[-1]["params"] = groups[-1]["params"][::-1]
    other = SUMO(groups, lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            assert torch.equal(other.state[parameter][name], value)
    assert {group["use_sumo"] for group in other.param_groups[-1:]} == {True}
    assert other.param_groups[0]["lr"] == 0.02
    train(model, other, 1)


def test_groups_that_divide_the_same_names_otherwise_are_refused():
    model, optimizer = make()
    layers = [{"params": [(f"{i}.{name}", p) for name, p in model[i].named_parameters()]} for i in (0, 2)]
    with pytest.raises(ValueError, match=r"state_dict: it has '0.weight' in a group of other parameters"):
        SUMO(layers, rank=4).load_state_dict(optimizer.state_dict())


def test_renamed_parameters_are_loaded_by_place_as_torch_does():
    model, optimizer = make()
    train(model, optimizer, 2)
    wrapped = nn.Sequential()
    wrapped.module = model
    other = SUMO(sumo_param_groups(wrapped, rank=4), lr=1.0)
    other.load_state_dict(optimizer.state_dict())
    assert torch.equal(other.state[model[0].weight]["moment"], optimizer.state[model[0].weight]["moment"])


def test_a_refused_checkpoint_leaves_everything_as_it_was():
    model, optimizer = make()
    train(model, optimizer, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["momentum"] = 2.0
    before = optimizer.state[model[0].weight]["moment"]
    with pytest.raises(ValueError, match="momentum"):
        optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["momentum"] == 0.95
    assert optimizer.state[model[0].weight]["moment"] is before


def test_flattened_weights_are_refused_and_fsdp2_is_named():
    """As DeepSpeed ZeRO does: each group's parameters become one vector."""
    _, optimizer = make()
    flat = nn.Parameter(torch.cat([p.detach().flatten() for p in optimizer.param_groups[0]["params"]]))
    flat.grad = torch.ones_like(flat)
    optimizer.param_groups[0]["params"] = [flat]
    with pytest.raises(RuntimeError, match=r"group 0 were matrices and are flat now, as DeepSpeed ZeRO.*FSDP2"):
        optimizer.step()
    with pytest.raises(ValueError, match=r"2 trainable parameters are vectors; DeepSpeed ZeRO-3.*FSDP2"):
        sumo_param_groups(nn.LayerNorm(64))


def test_groups_added_while_training_take_part(rng):
    model, optimizer = make()
    model[0].requires_grad_(False)
    optimizer = SUMO(sumo_param_groups(model, rank=4), lr=0.02)
    train(model, optimizer, 2)
    model[0].requires_grad_(True)
    before = model[0].weight.detach().clone()
    optimizer.add_param_group({"params": [("0.weight", model[0].weight)], "rank": 3})
    train(model, optimizer, 1)
    assert not torch.equal(model[0].weight, before)
    assert optimizer.state[model[0].weight]["basis"].shape == (40, 3)
    assert optimizer.name_of(2) == "0.weight"


def test_names_of_the_nameless_are_their_places():
    optimizer = SUMO([{"params": [nn.Parameter(torch.ones(3))]}, {"params": [nn.Parameter(torch.ones(4))]}])
    assert optimizer.name_of(1) == "parameter 1 of shape (4,)"
    with pytest.raises(IndexError, match="got 2"):
        optimizer.name_of(2)


def test_layers_that_are_frozen_when_steps_move_to_the_backward_pass_step_as_usual_later():
    model, optimizer = make()
    model[0].requires_grad_(False)
    attach_layerwise(model, optimizer)
    X = torch.ones(3, 24)
    model(X).sum().backward()
    optimizer.step()
    model[0].requires_grad_(True)
    before = model[0].weight.detach().clone()
    model(X).sum().backward()
    assert model[2].weight.grad is None
    optimizer.step()
    assert not torch.equal(model[0].weight, before)


def test_options_reach_every_way_of_stepping(rng):
    """A batch of equal shapes and a single matrix; what the option changes is visible in the step."""
    G = matrix(rng, 60, 40)

    def step(foreach, **options):
        weights = [nn.Parameter(torch.zeros(60, 40)) for _ in range(2)]
        optimizer = SUMO(weights, **{"lr": 1.0, "rank": 4, "adjust_lr_fn": "none", "foreach": foreach, **options})
        for _ in range(2):
            for weight in weights:
                weight.grad = G.clone()
            optimizer.step()
        return weights[1].detach(), optimizer.state[weights[1]]

    for foreach in (True, False):
        plain, state = step(foreach)
        for option in ({"orthogonalizer": "ns5"}, {"residual_scale": 0.5}, {"scale": 2.0}):
            assert not torch.allclose(step(foreach, **option)[0], plain, atol=1e-3), option
        for option in ({"power_iters": 0}, {"oversample": 0}, {"projector": "exact"}):
            found = step(foreach, **option)[1]["basis"]
            assert not torch.allclose(found.abs(), state["basis"].abs(), atol=1e-3), option
        again = step(foreach, power_iters=0, update_proj_gap=1)[1]["basis"]
        first = step(foreach, power_iters=0)[1]["basis"]
        assert not torch.allclose(first.abs(), again.abs(), atol=1e-3), "each refresh draws a new sketch"
