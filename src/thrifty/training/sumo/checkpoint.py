"""Loading optimizer state as it was saved.

``Optimizer.load_state_dict`` casts every floating tensor to the parameter's dtype: for bfloat16 weights it would round
the basis, the moment and even the counters. What follows puts the saved tensors back, and makes a basis that someone
rounded on the way orthonormal again.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from thrifty.training.sumo.matrix import compute_dtype, shape_of
from thrifty.training.sumo.options import check_group
from thrifty.training.sumo.orthogonal import inverse_root
from thrifty.training.sumo.sharded import is_sharded, local, shards_of

#: Counters stay on the host, where the step reads them without waiting for the device.
ON_THE_HOST = frozenset({"step", "refresh_count", "refreshed_at"})

#: ‖QᵀQ − I‖ per entry: above the first a basis is made orthonormal again, above the second it is given up.
ROUNDED, BROKEN = 1e-5, 0.1


def as_ours(optimizer: Optimizer, saved: dict[str, Any]) -> dict[str, Any]:
    """Put a state dict in the order of an optimizer, and check its options before anything is loaded.

    Raises:
        ValueError: An option is out of range, or the groups are other ones.
    """
    saved = match_names(optimizer.param_groups, saved)
    for ours, theirs in zip(optimizer.param_groups, saved["param_groups"], strict=False):  # torch counts them
        group = optimizer.defaults | theirs | {"params": ours["params"]}
        check_group(group)
        for place, parameter in zip(theirs["params"], ours["params"], strict=False):
            if state := saved["state"].get(place):
                _check_state(place, state, parameter, group)
    return saved


def _check_state(place: int, state: dict[str, Any], parameter: Tensor, group: dict[str, Any]) -> None:
    """Refuse state that is another kind of optimizer's, or of a weight of another shape.

    Raises:
        ValueError: It is.
    """
    matrix = group["use_sumo"] and parameter.ndim >= 2
    needed = ("basis", "moment") if matrix else ("exp_avg", "exp_avg_sq")
    if missing := [name for name in needed if not isinstance(state.get(name), Tensor)]:
        raise ValueError(
            f"state_dict: expected {' and '.join(needed)} for parameter {place} of shape {tuple(parameter.shape)}, got "
            f"no {missing[0]}; it is another optimizer's, or another group's"
        )
    first, second = (tuple(state[name].shape) for name in needed)
    long, short = sorted(shape_of(parameter, group["split"]), reverse=True)
    fits = (
        (first[-2], second[-1], first[-1]) == (long, short, second[-2])
        if matrix
        else first == second == tuple(parameter.shape)
    )
    if not fits:
        raise ValueError(
            f"state_dict: parameter {place} has shape {tuple(parameter.shape)}, its {needed[0]} {first} and its "
            f"{needed[1]} {second}; it is of another model"
        )


def match_names(groups: Sequence[dict[str, Any]], saved: dict[str, Any]) -> dict[str, Any]:
    """Put a state dict's groups and parameters in the order of ``groups``, if both know the same names.

    Raises:
        ValueError: The names are the same and are divided into other groups.
    """
    theirs = saved["param_groups"]
    if not all("param_names" in group for group in (*groups, *theirs)):
        return saved
    ids = {name: i for group in theirs for name, i in zip(group["param_names"], group["params"], strict=True)}
    if ids.keys() != {name for group in groups for name in group["param_names"]}:
        return saved  # renamed, as by wrapping: by place, as torch does
    by_names = {frozenset(group["param_names"]): group for group in theirs}
    ordered = []
    for ours in groups:
        names = ours["param_names"]
        if frozenset(names) not in by_names:
            raise ValueError(
                f"state_dict: it has {names[0]!r} in a group of other parameters; make the optimizer's groups as those "
                "of the one that was saved"
            )
        same = by_names[frozenset(names)]
        ordered.append({**same, "param_names": list(names), "params": [ids[name] for name in names]})
    return {**saved, "param_groups": ordered}


def restore(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Replace what ``Optimizer.load_state_dict`` cast by what was saved, on the parameters' devices.

    Args:
        optimizer: After its own loading.
        saved: The state dict, as its hooks left it.

    Raises:
        ValueError: A saved tensor is whole where the parameter is spread over ranks.
    """
    ids = chain.from_iterable(group["params"] for group in saved["param_groups"])
    parameters = [(p, group) for group in optimizer.param_groups for p in group["params"]]
    for saved_id, (parameter, group) in zip(ids, parameters, strict=True):
        values = saved["state"].get(saved_id)
        if not values:
            continue
        state = {name: _as_saved(name, value, parameter) for name, value in values.items()}
        optimizer.state[parameter] = state
        if "basis" in state:
            _check_placement(parameter, state, group["split"])
            state["basis"] = state["basis"].to(compute_dtype(parameter))
            _straighten(parameter, state, group["split"])


def _as_saved(name: str, value: Any, parameter: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return torch.tensor(float(value)) if name in ON_THE_HOST else value
    if name in ON_THE_HOST:
        return value.detach().to("cpu", torch.float32, copy=True)
    return value.detach().to(parameter.device, copy=True)


def _check_placement(parameter: Tensor, state: dict[str, Any], split: int) -> None:
    outputs, inputs = shape_of(parameter, split)
    shards = shards_of(parameter, outputs < inputs, split, "a parameter")
    if shards and not is_sharded(state["basis" if shards.axis == "rows" else "moment"]):
        raise ValueError(
            "state_dict: it holds whole tensors for a parameter that is sharded; load it with "
            "torch.distributed.checkpoint.state_dict.set_optimizer_state_dict"
        )


def _straighten(parameter: Tensor, state: dict[str, Any], split: int) -> None:
    """Make a rounded basis orthonormal again, by the nearest such matrix, so that the moment still belongs to it."""
    if not int(state["refresh_count"]):
        return
    outputs, inputs = shape_of(parameter, split)
    shards = shards_of(parameter, outputs < inputs, split, "a parameter")
    Q = local(state["basis"]).double()
    gram = Q.mT @ Q
    if shards and shards.axis == "rows":
        gram = shards.sum(gram)
    error = (gram - torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)).abs().max().item()
    if not error <= BROKEN:  # NaN too
        warnings.warn("state_dict: a basis in it is not orthonormal; it is found anew in the next step", stacklevel=5)
        state["refresh_count"].zero_()
        local(state["moment"]).zero_()
    elif error > ROUNDED:
        local(state["basis"]).copy_(Q @ inverse_root(gram, 0.0))
