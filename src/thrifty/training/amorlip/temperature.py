"""The temperature 1/s: its share of the loss, its own parameter group, its rate and its bounds.

FastCLIP-v3 (arXiv 2407.01445) divides the loss by s without gradient and adds ρ/s: ρ > 0 drives s up, ρ < 0 down. The
published numbers of AmorLIP are with it (arXiv 2505.18983, appendix C).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

#: The largest logit scale, as in CLIP.
LARGEST_SCALE = 100.0

#: From this temperature down its rate is a third (FastCLIP's recipe).
LOW_TEMPERATURE = 0.03

#: Parameters that are no weights: in a group of their own, without decay.
NAMES = ("logit_scale", "logit_bias")


def with_temperature(
    loss: Float[Tensor, ""],
    logit_scale: Float[Tensor, ""],
    rho: float | None,
    pressure: Float[Tensor, ""] | float = 0.0,
) -> Float[Tensor, ""]:
    """Return L / sg(s) + (ρ + pressure) / s; L itself where ρ is ``None``.

    Args:
        loss: L of the towers.
        logit_scale: s; through the first term no gradient flows into the division.
        rho: ρ.
        pressure: What ``adaptive_tau`` adds: −2 mean A_ii + mean(log λ^I + log λ^T) − 2 log B, without gradient.

    Source:
        arXiv 2407.01445, the objective of FastCLIP-v3.
    """
    if rho is None:
        return loss
    scale = logit_scale.reshape(())
    return loss / scale.detach() + (rho + pressure) / scale


def temperature_param_groups(
    model: nn.Module, lr: float, *, lr_tau: float | None = None, weight_decay: float = 0.2
) -> list[dict[str, Any]]:
    """Return parameter groups for AdamW: weights with decay, vectors without, and the temperature at its own rate.

    Args:
        model: The towers.
        lr: Of the towers.
        lr_tau: Of ``logit_scale`` and ``logit_bias``; a quarter of ``lr`` by default.
        weight_decay: Of matrices.

    Returns:
        Groups named ``"decay"``, ``"no_decay"`` and ``"temperature"``, those that are empty left out.

    Example:
        >>> tower = torch.nn.Linear(4, 4)
        >>> tower.logit_scale = torch.nn.Parameter(torch.tensor(2.66))
        >>> [group["name"] for group in temperature_param_groups(tower, 1e-3)]
        ['decay', 'no_decay', 'temperature']

    Source:
        arXiv 2505.18983, appendix C.
    """
    found: dict[str, list[nn.Parameter]] = {"decay": [], "no_decay": [], "temperature": []}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            own = name.rpartition(".")[2] in NAMES
            found["temperature" if own else "decay" if parameter.ndim >= 2 else "no_decay"].append(parameter)
    rates = {
        "decay": (lr, weight_decay),
        "no_decay": (lr, 0.0),
        "temperature": (lr / 4 if lr_tau is None else lr_tau, 0.0),
    }
    return [
        {"params": parameters, "lr": rates[name][0], "weight_decay": rates[name][1], "name": name}
        for name, parameters in found.items()
        if parameters
    ]


def temperature_rate(lr_tau: float, logit_scale: Tensor | float) -> float:
    """Return the temperature's rate at s: a third of it once 1/s is at most 0.03.

    Args:
        lr_tau: The rate before.
        logit_scale: s (not its logarithm).

    Example:
        >>> temperature_rate(3e-4, 14.0), round(temperature_rate(3e-4, 50.0), 7)
        (0.0003, 0.0001)

    Source:
        FastCLIP's recipe, arXiv 2407.01445.
    """
    return lr_tau / 3 if 1 / float(logit_scale) <= LOW_TEMPERATURE else lr_tau


@torch.no_grad()
def clamp_logit_scale(model: nn.Module, largest: float = LARGEST_SCALE) -> None:
    """Keep s in [1, largest], unless it is frozen; to be called after each optimiser step.

    Args:
        model: One with a parameter ``logit_scale``, t = log s, whatever wraps it; it is changed in place.
        largest: The largest s.

    Raises:
        ValueError: The model has no such parameter.

    Example:
        >>> model = nn.Module()
        >>> model.logit_scale = nn.Parameter(torch.tensor(7.0))
        >>> clamp_logit_scale(model)
        >>> round(model.logit_scale.exp().item(), 3)
        100.0

    Source:
        Radford et al., arXiv 2103.00020, section 2.5.
    """
    scale = logit_scale_of(model)
    if scale.requires_grad:
        scale.clamp_(0, math.log(largest))


@torch.no_grad()
def reset_logit_scale(model: nn.Module, scale: float = 1 / 0.07) -> None:
    """Begin at CLIP's initial s. When a checkpoint is fine-tuned, leave its own.

    Args:
        model: One with a parameter ``logit_scale``, t = log s, whatever wraps it; it is changed in place.
        scale: The s to begin at.

    Raises:
        ValueError: The model has no such parameter.

    Example:
        >>> model = nn.Module()
        >>> model.logit_scale = nn.Parameter(torch.tensor(0.0))
        >>> reset_logit_scale(model)
        >>> round(model.logit_scale.exp().item(), 2)
        14.29

    Source:
        Radford et al., arXiv 2103.00020, section 2.5.
    """
    logit_scale_of(model).fill_(math.log(scale))


def logit_scale_of(model: nn.Module) -> nn.Parameter:
    """Return the parameter t = log s of a model, whatever wraps it.

    Raises:
        ValueError: It has none.
    """
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[2] == "logit_scale":
            return parameter
    raise ValueError(f"model: expected a parameter named logit_scale, got {type(model).__name__} without one")
