"""AdamW for the parameters that are no matrices: torch's own, with float32 state for weights of 16 bits too.

Norms, biases, embeddings and heads go here (GaLore's protocol, which the paper follows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from thrifty.training.sumo.sharded import agreed, is_sharded, local
from thrifty.training.sumo.subspace import mixed_seed
from thrifty.training.sumo.weights import BLOCK, store


def state_for(parameter: Tensor, group: dict[str, Any], state: dict[str, Any]) -> bool:
    """Make what is missing of a parameter's state: AdamW's standard entries, in float32 or float64.

    Returns:
        Whether there was state of another shape, which is gone.
    """
    stale = "exp_avg" in state and local(state["exp_avg"]).shape != local(parameter).shape
    if stale or "exp_avg" not in state:
        state.clear()
        dtype = parameter.dtype if parameter.dtype.itemsize >= 4 else torch.float32
        state["step"] = torch.tensor(0.0)
        state["exp_avg"] = torch.zeros_like(parameter, dtype=dtype)
        state["exp_avg_sq"] = torch.zeros_like(parameter, dtype=dtype)
    if group["rounding"] == "kahan" and parameter.dtype.itemsize < 4 and "compensation" not in state:
        state["compensation"] = torch.zeros_like(parameter)
    return stale


def finite(parameters: Sequence[Tensor]) -> list[bool]:
    """Tell which parameters' gradients are free of NaN and Inf, on all ranks alike; one wait for the device."""
    pieces = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    held = [piece if piece.numel() else piece.new_zeros(1) for piece in pieces]
    peaks = [torch.linalg.vector_norm(piece, ord=float("inf")) for piece in held]
    flags = agreed([(~peak.isfinite()).float() for peak in peaks], parameters)
    return [not bad for bad in torch.stack(flags).tolist()]


def step_adamw(
    parameters: Sequence[Tensor],
    states: Sequence[dict[str, Any]],
    indices: Sequence[int],
    group: dict[str, Any],
) -> None:
    """Update parameters and states in place; equal to ``torch.optim.AdamW`` for float32 and float64.

    Args:
        parameters: With gradients.
        states: As :func:`state_for` makes them.
        indices: Their places among the optimizer's parameters; they seed stochastic rounding.
        group: Uses ``lr``, ``betas``, ``eps``, ``weight_decay``, ``maximize``, ``foreach``, ``rounding`` and
            ``seed``.
    """
    whole = [place for place, p in enumerate(parameters) if p.dtype.itemsize >= 4]
    gradients = [_gradient(parameters[place]) for place in whole]
    if whole:
        _adamw(
            [parameters[place] for place in whole],
            gradients,
            [states[place] for place in whole],
            [states[place]["step"] for place in whole],
            group,
        )
    for place in sorted(set(range(len(parameters))) - set(whole)):
        _step_short(parameters[place], states[place], indices[place], group)


def _gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad if parameter.grad.dtype == parameter.dtype else parameter.grad.to(parameter.dtype)


def _adamw(
    parameters: list[Tensor],
    gradients: list[Tensor],
    states: Sequence[dict[str, Any]],
    steps: list[Tensor],
    group: dict[str, Any],
) -> None:
    foreach = group["foreach"]
    if isinstance(group["lr"], Tensor) or any(is_sharded(parameter) for parameter in parameters):
        foreach = False  # torch has no foreach AdamW for a learning rate in a tensor unless it is capturable
    adamw(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        steps,
        foreach=foreach,
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=group["maximize"],
    )


def _step_short(parameter: Tensor, state: dict[str, Any], index: int, group: dict[str, Any]) -> None:
    """Update a weight of 16 bits a block at a time, in float32."""
    assert parameter.grad is not None
    weight, gradient = local(parameter), local(parameter.grad)
    kept = {name: local(state[name]) for name in ("exp_avg", "exp_avg_sq", "compensation") if name in state}
    generator = None
    if group["rounding"] == "stochastic" and weight.dtype == torch.bfloat16:
        generator = torch.Generator(weight.device).manual_seed(mixed_seed(group["seed"], index, int(state["step"]), 2))
    height = max(1, BLOCK // max(1, weight[0].numel())) if weight.ndim and len(weight) else 1
    for low in range(0, len(weight), height) if weight.ndim else [None]:
        cut = slice(low, low + height) if low is not None else ...
        new = weight[cut].float()
        step = state["step"].clone()
        part: dict[str, Any] = {name: tensor[cut] for name, tensor in kept.items()}
        _adamw([new], [gradient[cut].float()], [part], [step], group)
        store(weight[cut], new, group["rounding"], part.get("compensation"), generator)
    state["step"] += 1
