"""The next optimizer step as an affine function of the gradient: θ' = θ − η (a ⊙ g + b).

The moments are frozen at their current value (arXiv 2505.19051), so that a and b do
not depend on the weights of the examples. With step counter s, first moment μ, second moment v and decay ω,

    D = 1 / (√(v / (1 − β2^{s+1})) + ε),   a = (1 − β1) / (1 − β1^{s+1}) · D,
    b = β1 / (1 − β1^{s+1}) · D ⊙ μ + ω θ            (AdamW; with coupled L2, Adam's, a ⊙ ω θ instead of ω θ)

and for SGD a = 1, b = momentum · buffer + ω θ, with torch's dampening and Nesterov variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer


@dataclass(frozen=True)
class StepCoefficients:
    """What one optimizer step does with a gradient.

    Args:
        lr: The learning rate η; with several groups, the largest of them.
        a: Parameter name to what multiplies its gradient (the parameter's shape, or a number).
        b: Parameter name to the part of the step that no gradient changes.

    Example:
        >>> StepCoefficients(0.1, {"w": 1.0}, {"w": 0.0}).flat("a", {"w": torch.zeros(2)})
        tensor([1., 1.])

    Source:
        arXiv 2505.19051, the expansion for Adam: θ⁺ = θ − η (a ⊙ g + b).
    """

    lr: float
    a: dict[str, Tensor | float]
    b: dict[str, Tensor | float]

    def flat(self, which: str, params: Mapping[str, Tensor]) -> Tensor:
        """Return ``a`` or ``b`` of these parameters as one float32 vector, in their order."""
        table = getattr(self, which)
        pieces = [torch.as_tensor(table[name], dtype=torch.float32, device=p.device) for name, p in params.items()]
        return torch.cat([piece.expand(p.shape).reshape(-1) for piece, p in zip(pieces, params.values(), strict=True)])


def optimizer_coefficients(optimizer: Optimizer | None, params: Mapping[str, Tensor]) -> StepCoefficients:
    """Read η, a and b off a real optimizer's state.

    Args:
        optimizer: ``SGD``, ``Adam`` or ``AdamW`` (of torch, or wrapped by accelerate) that has stepped at least once;
            ``None`` is plain gradient descent with η = 1.
        params: Name to parameter, those whose gradients are used; the optimizer may hold others too.

    Returns:
        The coefficients, by parameter name. Where the scheduler has run out (lr = 0), half of ``initial_lr`` stands in.

    Raises:
        ValueError: A parameter is not the optimizer's, or has never been stepped by Adam.
        TypeError: The optimizer is of another kind.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> optimizer_coefficients(torch.optim.SGD([weight], lr=0.1), {"weight": weight}).lr
        0.1

    Source:
        arXiv 2505.19051, the expansion for Adam.
    """
    if optimizer is None:
        return StepCoefficients(1.0, dict.fromkeys(params, 1.0), dict.fromkeys(params, 0.0))
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    if type(optimizer) is not SGD and not isinstance(optimizer, Adam):
        raise TypeError(
            f"optimizer: expected torch's SGD, Adam or AdamW (or None for plain gradient descent), "
            f"got {type(optimizer).__name__}"
        )
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    if strangers := [name for name, p in params.items() if id(p) not in groups]:
        raise ValueError(
            f"optimizer: it does not hold {len(strangers)} of the {len(params)} selected parameters of the model "
            f"({_some(strangers)}); build it from this model's parameters, or select fewer with params="
        )
    rates = {name: _rate(groups[id(p)]) for name, p in params.items()}
    lr = max(rates.values())
    if lr <= 0:
        raise ValueError(f"optimizer: expected a learning rate above 0, got {lr} and no initial_lr to fall back on")
    a: dict[str, Tensor | float] = {}
    b: dict[str, Tensor | float] = {}
    unseen = []
    for name, p in params.items():
        group, state = groups[id(p)], optimizer.state.get(p, {})
        if isinstance(optimizer, SGD):
            scale: Tensor | float
            rest: Tensor | float
            scale, rest = _sgd(p, group, state)
        elif "exp_avg" not in state:
            unseen.append(name)
            continue
        else:
            scale, rest = _adam(p, group, state, decoupled=_is_decoupled(optimizer, group))
        share = rates[name] / lr
        a[name], b[name] = scale * share * (-1.0 if group.get("maximize") else 1.0), rest * share
    if unseen:
        raise ValueError(
            f"optimizer: it has no state for {len(unseen)} selected parameters ({_some(unseen)}): they were never "
            "stepped. Warm up first (thrifty.data.influence.warm_up), or pass optimizer=None"
        )
    return StepCoefficients(lr, a, b)


def _sgd(p: Tensor, group: Mapping[str, Any], state: Mapping[str, Any]) -> tuple[float, Tensor | float]:
    momentum, damping, decay = group["momentum"], group["dampening"], group["weight_decay"]
    buffer = state.get("momentum_buffer")
    keep: float
    carried: Tensor | float
    if not momentum:
        keep, carried = 1.0, 0.0
    elif buffer is None:  # torch begins with the gradient itself, undamped
        keep, carried = 1.0 + (momentum if group["nesterov"] else 0.0), 0.0
    elif group["nesterov"]:
        keep, carried = 1.0 + momentum * (1 - damping), momentum**2 * buffer.detach()
    else:
        keep, carried = 1.0 - damping, momentum * buffer.detach()
    return keep, carried + (keep * decay * p.detach() if decay else 0.0)


def _adam(p: Tensor, group: Mapping[str, Any], state: Mapping[str, Any], *, decoupled: bool) -> tuple[Tensor, Tensor]:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    following = float(state["step"]) + 1
    second = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
    scale = 1 / ((second.detach() / (1 - beta2**following)).sqrt() + group["eps"])
    a = (1 - beta1) / (1 - beta1**following) * scale
    b = beta1 / (1 - beta1**following) * scale * state["exp_avg"].detach()
    decay = group["weight_decay"]
    if decay:
        b = b + (decay * p.detach() if decoupled else a * decay * p.detach())
    return a, b


def _is_decoupled(optimizer: Optimizer, group: Mapping[str, Any]) -> bool:
    """AdamW is a subclass of Adam, and either may carry the flag, so that the class alone does not tell."""
    return bool(group.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW)))


def _rate(group: Mapping[str, Any]) -> float:
    return float(group["lr"]) or float(group.get("initial_lr", 0.0)) / 2


def _some(names: list[str], count: int = 4) -> str:
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")
