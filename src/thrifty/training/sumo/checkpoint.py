"""Loading optimizer state as it was saved.

``Optimizer.load_state_dict`` casts every floating tensor to the parameter's dtype: for bfloat16 weights it would round
the basis, the moment and even the counters. What follows puts the saved tensors back, and makes a basis that someone
rounded on the way orthonormal again.
"""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from thrifty.training.sumo.matrix import compute_dtype, shape_of
from thrifty.training.sumo.orthogonal import inverse_root
from thrifty.training.sumo.sharded import is_sharded, local, shards_of

#: Counters stay on the host, where the step reads them without waiting for the device.
ON_THE_HOST = frozenset({"step", "refresh_count", "refreshed_at"})

#: ‖QᵀQ − I‖ per entry: above the first a basis is made orthonormal again, above the second it is given up.
ROUNDED, BROKEN = 1e-5, 0.1


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
