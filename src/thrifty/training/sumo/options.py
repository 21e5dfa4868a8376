"""The options of a parameter group: what each may be, and errors that say so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thrifty._common.checks import flag, is_number, number, one_of, positive, whole
from thrifty.training.sumo.matrix import shape_of
from thrifty.training.sumo.orthogonal import METHODS
from thrifty.training.sumo.refresh import PROJECTORS, REFRESHES
from thrifty.training.sumo.residual import RESIDUALS
from thrifty.training.sumo.scaling import ADJUSTMENTS
from thrifty.training.sumo.step import LIMIT_TARGETS
from thrifty.training.sumo.weights import ROUNDINGS

_CHOICES: dict[str, tuple[Any, ...]] = {
    "adjust_lr_fn": ADJUSTMENTS,
    "residual": RESIDUALS,
    "limit_target": LIMIT_TARGETS,
    "refresh": REFRESHES,
    "projector": PROJECTORS,
    "orthogonalizer": tuple(METHODS),
    "rounding": ROUNDINGS,
    "use_sumo": (True, False),
    "state_dtype": ("float32", "bfloat16", "float64"),
}

#: Lowest whole number that each may be.
_WHOLE: dict[str, int | None] = {
    "rank": 1,
    "update_proj_gap": 1,
    "oversample": 0,
    "power_iters": 0,
    "split": 1,
    "seed": None,
}

#: Everything that a parameter group may set.
GROUP_OPTIONS = (
    *_CHOICES,
    *_WHOLE,
    *("lr", "momentum", "weight_decay", "scale", "residual_scale", "norm_growth_limit", "energy_threshold"),
    *("transport", "betas", "eps", "foreach", "maximize", "stagger"),
)


def check_group(group: dict[str, Any]) -> None:
    """Check the options of a group, and write ``state_dtype`` as its name so that checkpoints hold plain values.

    Raises:
        ValueError: An option is out of range, unknown, or at odds with another.
    """
    if isinstance(group["state_dtype"], torch.dtype):
        group["state_dtype"] = str(group["state_dtype"]).removeprefix("torch.")
    for name, choices in _CHOICES.items():
        one_of(name, group[name], choices)
    for name, least in _WHOLE.items():
        group[name] = whole(name, group[name], least=least)
    if not -(2**63) <= group["seed"] < 2**63:
        raise ValueError(f"seed: expected a whole number of 64 bits, got {group['seed']}")
    for name in ("transport", "maximize", "stagger"):
        flag(name, group[name])
    one_of("foreach", group["foreach"], (True, False, None))
    _check_numbers(group)
    _check_pairs(group)
    for parameter in group["params"]:
        if torch.is_complex(parameter):
            raise ValueError(f"params: complex parameters are not supported, got one of shape {tuple(parameter.shape)}")
        if group["split"] > 1 and parameter.ndim >= 2 and parameter.shape[0] % group["split"]:
            raise ValueError(f"split: {group['split']} does not divide the {parameter.shape[0]} rows of a parameter")


def rank_is_cut(parameter: Tensor, group: dict[str, Any]) -> str | None:
    """Say so if a weight has no more rows or columns than the rank."""
    smaller = min(shape_of(parameter, group["split"]))
    if group["rank"] < smaller:
        return None
    return (
        f"rank: {group['rank']} is not below the smaller side of a weight of shape {tuple(parameter.shape)}; there it "
        f"is cut to {smaller}, and SUMO becomes momentum orthogonalised in full (said once)"
    )


def _check_numbers(group: dict[str, Any]) -> None:
    lr, betas, limit = group["lr"], group["betas"], group["norm_growth_limit"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"lr: expected a number or a tensor of one element, got shape {tuple(lr.shape)}")
    numbers = {name: group[name] for name in ("weight_decay", "residual_scale", "eps")}
    for name, value in ({"lr": lr.item() if isinstance(lr, Tensor) else lr} | numbers).items():
        number(name, value, "a number of at least 0", least=0)
    if not isinstance(betas, list | tuple) or len(betas) != 2:
        raise ValueError(f"betas: expected two numbers, got {betas!r}")
    for name, value in (("momentum", group["momentum"]), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if not is_number(value) or not 0 <= value < 1:
            raise ValueError(f"{name}: expected a number in [0, 1), got {value!r}")
    positive("scale", group["scale"], "a number above 0")
    if limit is not None and not (is_number(limit) and limit > 1):
        raise ValueError(f"norm_growth_limit: expected a number above 1, or None for no limit, got {limit!r}")


def _check_pairs(group: dict[str, Any]) -> None:
    threshold = group["energy_threshold"]
    if group["refresh"] != "interval" and not (is_number(threshold) and 0 < threshold < 1):
        raise ValueError(
            f"energy_threshold: refresh={group['refresh']!r} needs a share of the gradient's norm in (0, 1), "
            f"got {threshold!r}"
        )
    if group["limit_target"] == "residual" and group["residual"] != "raw":
        raise ValueError(
            f'limit_target: "residual" limits a raw residual, got residual={group["residual"]!r} '
            '("fira" has a limit of its own)'
        )
    if group["rounding"] == "stochastic" and any(p.dtype == torch.float16 for p in group["params"]):
        raise ValueError('rounding: "stochastic" is for bfloat16 weights, got float16; "kahan" serves both')
