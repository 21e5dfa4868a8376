"""The options of a parameter group: what each may be, and errors that say so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
_WHOLE = {"rank": 1, "update_proj_gap": 1, "oversample": 0, "power_iters": 0, "split": 1}


def check_group(group: dict[str, Any]) -> None:
    """Check the options of a group, and write ``state_dtype`` as its name so that checkpoints hold plain values.

    Raises:
        ValueError: An option is out of range, unknown, or at odds with another.
    """
    if isinstance(group["state_dtype"], torch.dtype):
        group["state_dtype"] = str(group["state_dtype"]).removeprefix("torch.")
    for name, choices in _CHOICES.items():
        if group[name] not in choices:
            raise ValueError(f"{name}: expected one of {', '.join(map(str, choices))}, got {group[name]!r}")
    for name, least in _WHOLE.items():
        value = group[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    _check_numbers(group)
    _check_pairs(group)
    for parameter in group["params"]:
        if torch.is_complex(parameter):
            raise ValueError(f"params: complex parameters are not supported, got one of shape {tuple(parameter.shape)}")
        if group["split"] > 1 and parameter.ndim >= 2 and parameter.shape[0] % group["split"]:
            raise ValueError(f"split: {group['split']} does not divide the {parameter.shape[0]} rows of a parameter")


def _check_numbers(group: dict[str, Any]) -> None:
    lr = group["lr"]
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"lr: expected a number or a tensor of one element, got shape {tuple(lr.shape)}")
    if not isinstance(lr, Tensor) and not lr >= 0:
        raise ValueError(f"lr: expected a number of at least 0, got {lr}")
    for name in ("weight_decay", "residual_scale", "eps"):
        if not group[name] >= 0:
            raise ValueError(f"{name}: expected a number of at least 0, got {group[name]}")
    for name, value in (("momentum", group["momentum"]), *zip(("betas[0]", "betas[1]"), group["betas"], strict=True)):
        if not 0 <= value < 1:
            raise ValueError(f"{name}: expected a number in [0, 1), got {value}")
    if not group["scale"] > 0:
        raise ValueError(f"scale: expected a number above 0, got {group['scale']}")
    limit = group["norm_growth_limit"]
    if limit is not None and not limit > 1:
        raise ValueError(f"norm_growth_limit: expected a number above 1, or None for no limit, got {limit}")


def _check_pairs(group: dict[str, Any]) -> None:
    threshold = group["energy_threshold"]
    if group["refresh"] != "interval" and (threshold is None or not 0 < threshold < 1):
        raise ValueError(
            f"energy_threshold: refresh={group['refresh']!r} needs a share of the gradient's norm in (0, 1), "
            f"got {threshold}"
        )
    if group["limit_target"] == "residual" and group["residual"] != "raw":
        raise ValueError(
            f'limit_target: "residual" limits a raw residual, got residual={group["residual"]!r} '
            '("fira" has a limit of its own)'
        )
    if group["rounding"] == "stochastic" and any(p.dtype == torch.float16 for p in group["params"]):
        raise ValueError('rounding: "stochastic" is for bfloat16 weights, got float16; "kahan" serves both')
