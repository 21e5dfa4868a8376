"""Saving and loading: plain files, exact resume, and state that torch's own loading would round."""

import copy

import pytest
import torch
from sumo_ground import matrix
from torch import nn

from thrifty.training.sumo import SUMO, sumo_param_groups


def make(dtype=torch.float32, seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 24)).to(dtype)
    optimizer = SUMO(sumo_param_groups(model, rank=4), **{"lr": 0.02, "update_proj_gap": 5, "oversample": 4, **options})
    return model, optimizer


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        X = matrix(torch.Generator().manual_seed(step), 16, 24, dtype=next(model.parameters()).dtype)
        optimizer.zero_grad()
        (model(X) - X).pow(2).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": "fira", "limit_target": "update", "norm_growth_limit": 1.000001, "projector": "exact"},
        {"state_dtype": torch.bfloat16, "stagger": True, "lr": torch.tensor(0.02)},
        {"rounding": "kahan"},
    ],
    ids=["plain", "fira", "short moment", "kahan"],
)
def test_resuming_is_exact_across_a_refresh(dtype, options, tmp_path):
    model, optimizer = make(dtype, **options)
    train(model, optimizer, 7)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    train(model, optimizer, 5, first=7)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    again, resumed = make(dtype, seed=1, **options)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(again, resumed, 5, first=7)
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    for name, entries in optimizer.state_dict()["state"].items():
        for key, value in entries.items():
            found = resumed.state_dict()["state"][name][key]
            assert found.dtype == value.dtype
            assert torch.equal(found, value), key


def test_the_state_is_tensors_and_plain_values():
    model, optimizer = make()
    train(model, optimizer, 2)
    for entries in optimizer.state_dict()["state"].values():
        assert all(isinstance(value, torch.Tensor) for value in entries.values())
    for group in optimizer.state_dict()["param_groups"]:
        for value in group.values():
            assert isinstance(value, (int, float, str, bool, list, tuple, type(None)))


def test_loaded_state_is_a_copy():
    model, optimizer = make()
    train(model, optimizer, 2)
    kept = optimizer.state_dict()
    before = copy.deepcopy(kept["state"])
    other, loaded = make()
    loaded.load_state_dict(kept)
    train(other, loaded, 2)
    for name, entries in before.items():
        for key, value in entries.items():
            assert torch.equal(value, kept["state"][name][key])


def test_a_basis_that_was_rounded_on_the_way_is_made_orthonormal_again():
    model, optimizer = make()
    train(model, optimizer, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    wide = {name: entries["basis"] for name, entries in saved["state"].items() if "basis" in entries}
    for name, basis in wide.items():
        saved["state"][name]["basis"] = basis.bfloat16()
    _, loaded = make()
    loaded.load_state_dict(saved)
    for name, basis in wide.items():
        found = loaded.state_dict()["state"][name]["basis"]
        torch.testing.assert_close(found.T @ found, torch.eye(4), atol=1e-6, rtol=0)
        torch.testing.assert_close(found, basis, atol=5e-3, rtol=0)  # the nearest, so that the moment still fits


def test_a_basis_that_is_broken_is_given_up_with_a_warning():
    model, optimizer = make()
    train(model, optimizer, 3)
    saved = copy.deepcopy(optimizer.state_dict())
    next(e for e in saved["state"].values() if "basis" in e)["basis"].mul_(3)
    other, loaded = make()
    with pytest.warns(UserWarning, match="not orthonormal"):
        loaded.load_state_dict(saved)
    train(other, loaded, 2)


def test_hooks_on_loading_still_count():
    model, optimizer = make()
    train(model, optimizer, 2)
    _, loaded = make()
    loaded.register_load_state_dict_pre_hook(lambda _, saved: {**saved, "state": {}})
    loaded.load_state_dict(optimizer.state_dict())
    assert not loaded.state


def test_a_checkpoint_of_other_groups_is_refused():
    _, optimizer = make()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(SUMO([nn.Parameter(torch.ones(8, 6))], rank=2).state_dict())
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["momentum"] = 2.0
    with pytest.raises(ValueError, match="momentum"):
        optimizer.load_state_dict(saved)


def test_a_copied_or_pickled_optimizer_knows_new_options():
    model, optimizer = make()
    train(model, optimizer, 2)
    state = optimizer.__getstate__()
    for group in state["param_groups"]:
        del group["stagger"]
    optimizer.__setstate__(state)
    train(model, optimizer, 1)
