"""Who is compared: SUMO, its variants, and what a user could pick instead, each from its own package.

Every contender updates the matrices of the blocks with a learning rate from one grid; everything else is updated by
AdamW at one rate, the same for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from thrifty._common.extras import require
from thrifty.training.sumo import SUMO, sumo_param_groups

#: One grid for all.
GRID = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)

#: Learning rate of AdamW on embeddings, norms and biases, beside every contender.
AUX_LR = 3e-3

BETAS = (0.9, 0.95)

#: Every variant is scaled so that an update has root mean square 0.2 · lr, at every rank.
SUMO_OPTIONS: dict[str, dict[str, Any]] = {
    "SUMO": {},
    "SUMO, no residual": {"residual": "none"},
    "SUMO, Fira's residual": {"residual": "fira"},
    "SUMO, Newton-Schulz": {"orthogonalizer": "ns5"},
    "SUMO, no transport": {"transport": False},
}


class Together(Optimizer):
    """Two optimizers that step as one: a rival for the matrices, AdamW for the rest."""

    def __init__(self, matrices: Optimizer, others: Optimizer | None) -> None:
        self.parts = [matrices] if others is None else [matrices, others]
        self.defaults: dict[str, Any] = {}
        super().__init__([p for part in self.parts for g in part.param_groups for p in g["params"]], {})
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Step both."""
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Free all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none)


def make(name: str, model: nn.Module, lr: float, *, rank: int, gap: int, seed: int = 0) -> Optimizer:
    """Build a contender for a model.

    Raises:
        ImportError: Its package is not installed.
        ValueError: There is no contender of that name.
    """
    low, *rest = sumo_param_groups(model, rank=rank)
    aux = [p for group in rest for _, p in group["params"]]
    if name in SUMO_OPTIONS:
        groups = [low, *({**group, "lr": AUX_LR} for group in rest)]
        options: dict[str, Any] = {"adjust_lr_fn": "rank_rms", "update_proj_gap": gap, "betas": BETAS, "seed": seed}
        return SUMO(groups, lr=lr, **options | SUMO_OPTIONS[name])
    if name not in RIVALS:
        raise ValueError(f"name: expected one of {', '.join([*SUMO_OPTIONS, *RIVALS])}, got {name!r}")
    others = torch.optim.AdamW(aux, lr=AUX_LR, betas=BETAS, weight_decay=0.0) if aux else None
    return Together(RIVALS[name]([p for _, p in low["params"]], lr, rank, gap), others)


def _adamw(params: list[Tensor], lr: float, rank: int, gap: int) -> Optimizer:
    return torch.optim.AdamW(params, lr=lr, betas=BETAS, weight_decay=0.0)


def _muon(params: list[Tensor], lr: float, rank: int, gap: int) -> Optimizer:
    return torch.optim.Muon(params, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")


def _galore(params: list[Tensor], lr: float, rank: int, gap: int) -> Optimizer:
    galore = require("galore_torch", extra="bench")
    group = {"params": params, "rank": rank, "update_proj_gap": gap, "scale": 1.0, "proj_type": "std"}
    made: Optimizer = galore.GaLoreAdamW([group], lr=lr, betas=BETAS, no_deprecation_warning=True)
    return made


def _adamw_8bit(params: list[Tensor], lr: float, rank: int, gap: int) -> Optimizer:
    made: Optimizer = require("bitsandbytes", extra="bench").optim.AdamW8bit(
        params, lr=lr, betas=BETAS, weight_decay=0.0
    )
    return made


def _from_collection(name: str, **options: Any) -> Callable[[list[Tensor], float, int, int], Optimizer]:
    """A rival from pytorch-optimizer, at its own defaults but for the rate, the rank and the interval."""

    def build(params: list[Tensor], lr: float, rank: int, gap: int) -> Optimizer:
        kind = getattr(require("pytorch_optimizer", extra="bench"), name)
        group: dict[str, Any] = {"params": params, **options}
        if "projection_type" in options:
            group |= {"rank": rank, "update_proj_gap": gap}
        elif name == "NorMuon":
            group |= {"use_muon": True}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made: Optimizer = kind([group], lr=lr)
        return made

    return build


RIVALS: dict[str, Callable[[list[Tensor], float, int, int], Optimizer]] = {
    "GaLore": _galore,
    "Muon": _muon,
    "AdamW": _adamw,
    "Fira": _from_collection("Fira", scale=1.0, projection_type="std"),
    "APOLLO": _from_collection("APOLLO", scale=1.0, scale_type="channel", projection_type="random"),
    "NorMuon": _from_collection("NorMuon"),
    "8-bit AdamW": _adamw_8bit,
}


def set_rate(optimizer: Optimizer, base: Sequence[float], factor: float) -> None:
    """Set every group's rate to a share of where it began."""
    for group, lr in zip(optimizer.param_groups, base, strict=True):
        group["lr"] = lr * factor


def rates(optimizer: Optimizer) -> list[float]:
    """Return the rates that the groups have."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def state_holders(optimizer: Optimizer) -> Sequence[Optimizer]:
    """Return the optimizers that hold state."""
    return optimizer.parts if isinstance(optimizer, Together) else [optimizer]
