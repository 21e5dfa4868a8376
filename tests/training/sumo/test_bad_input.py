"""Options, matrices, models and states of optimizers that are none are refused in one line that names them."""

import copy
import math

import pytest
import torch
from torch import nn

from thrifty.training.sumo import (
    SUMO,
    attach_layerwise,
    describe_moment,
    estimate_state_bytes,
    lora_factors,
    orthogonalize,
    randomized_range,
    sumo_param_groups,
)

NAN = math.nan


def made(*shapes, **options):
    """An optimizer after a step."""
    parameters = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    optimizer = SUMO(parameters, rank=2, **options)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    "given",
    [
        {"lr": math.inf},
        {"weight_decay": math.inf},
        {"scale": math.inf},
        {"seed": 2**80},
        {"transport": "no"},
        {"maximize": "no"},
        {"stagger": "no"},
        {"foreach": "no"},
        {"diagnostics": "no"},
    ],
)
def test_options_that_are_none(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}: expected"):
        SUMO([nn.Parameter(torch.ones(4, 4))], **given)


@pytest.mark.parametrize("shapes", [((8, 6), (8,)), ((6, 8), (8,)), ((4, 3, 3, 3),)])
def test_states_of_others(shapes):
    ours = made(*shapes)
    before = copy.deepcopy(ours.state_dict())
    made(*shapes).load_state_dict(before)
    twin = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    adam = torch.optim.AdamW(twin)
    for parameter in twin:
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    other = made(*[(*shape[:-1], shape[-1] + 1) for shape in shapes])
    for state, says in (
        (adam.state_dict(), "expected basis and moment for parameter 0 .* got no basis"),
        (other.state_dict(), "parameter 0 has shape .* it is of another model"),
    ):
        with pytest.raises(ValueError, match=f"^state_dict: {says}"):
            ours.load_state_dict(state)
    for state in (None, {}, [1]):
        with pytest.raises(TypeError, match="^state_dict: expected what state_dict"):
            ours.load_state_dict(state)
    after = ours.state_dict()
    assert all(torch.equal(after["state"][0][name], value) for name, value in before["state"][0].items())


M = torch.ones(3, 4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: orthogonalize(M * NAN), "M: expected finite numbers"),
        (lambda: orthogonalize(M * math.inf), "M: expected finite numbers"),
        (lambda: orthogonalize(M.long()), "M: expected real floating-point numbers"),
        (lambda: orthogonalize(M.cfloat()), "M: expected real floating-point numbers"),
        (lambda: orthogonalize([[1.0]]), "M: expected a tensor, got list"),
        (lambda: randomized_range(M * NAN, 2), "G: expected finite numbers"),
        (lambda: randomized_range(M, 1.5), "rank: expected a whole number"),
        (lambda: randomized_range(M.long(), 2), "G: expected real floating-point numbers"),
        (lambda: randomized_range(None, 2), "G: expected a tensor"),
        (lambda: describe_moment(M * NAN), "M: expected one matrix of finite numbers"),
        (lambda: describe_moment(M[0]), "M: expected a matrix"),
        (lambda: describe_moment(None), "M: expected a tensor"),
        (lambda: lora_factors(M[0]), "delta: expected a matrix"),
        (lambda: lora_factors(M[:0]), "delta: expected the change of one weight"),
        (lambda: lora_factors(M.long()), "delta: expected real floating-point"),
        (lambda: lora_factors(M, 1.5), "rank: expected a whole number"),
        (lambda: lora_factors(None), "delta: expected a tensor"),
        (lambda: sumo_param_groups(None), "model: expected a torch module"),
        (lambda: attach_layerwise(None), "model: expected a torch module"),
        (lambda: attach_layerwise(nn.Linear(32, 32), torch.optim.AdamW), "optimizer: expected SUMO"),
        (lambda: estimate_state_bytes(None, 4), "model: expected a module or a list of shapes"),
        (lambda: estimate_state_bytes(["a"], 4), "model: expected a module or a list of shapes"),
        (lambda: estimate_state_bytes([(3, -1)], 4), "model: expected a module or a list of shapes"),
        (lambda: estimate_state_bytes([(3.5, 2)], 4), "model: expected a module or a list of shapes"),
        (lambda: estimate_state_bytes([(3, 2)], 4, bytes_a_number=0), "bytes_a_number: expected"),
    ],
)
def test_arguments_that_are_none(call, says):
    with pytest.raises((ValueError, TypeError), match=f"^{says}"):
        call()


def test_one_word_to_exclude_is_a_word():
    """Its letters were words, and nearly every module's name holds one of them."""
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    model.add_module("rotor", nn.Linear(32, 32))
    (low_rank, *_) = sumo_param_groups(model, exclude="norm", rank=4)
    assert "rotor.weight" in [name for name, _ in low_rank["params"]]
