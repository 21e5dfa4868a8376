"""The methods that are set beside each other, and the learning rate that each was found to like best.

Rates come from ``tuning.py``: one grid, one budget, the validation split, a seed that no report uses. The fresh head
has one rate for all of them; trained alone, it has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from thrifty.training.leff import rivals
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import Batch

OURS, FEDAVG, FEDPROX, BITFIT, HEAD = "LEFF", "FedAvg", "FedProx", "FedBitFit", "head only"
FEDLORA, SLORA, HETLORA, FLEXLORA, FLORA, FEDRA = "FedLoRA", "SLoRA", "HetLoRA", "FlexLoRA", "FLoRA", "FedRA"
LOCAL, CENTRAL = "local only", "centralised"
#: Ways of ours, for the ablation.
VARIANTS: dict[str, dict[str, Any]] = {
    OURS: {},
    "LEFF, dropped context": {"compression": "drop"},
    "LEFF, whole context": {"compression": "none"},
    "LEFF, random blocks": {"sampler": "random"},
    "LEFF, round robin": {"sampler": "round_robin"},
    "LEFF, literal softmax": {"importance_normalization": "none", "temperature": 1.0},
}
#: Rivals, the ones that go last where time is short first.
RIVALS = (FEDAVG, HEAD, FEDLORA, FEDRA, BITFIT, LOCAL, CENTRAL, FEDPROX, SLORA, FLEXLORA, FLORA, HETLORA)
GRID = (5e-5, 1e-4, 2e-4, 1e-3, 3e-3, 1e-2)
#: Of the fresh head beside whatever else is trained.
HEAD_RATE = 3e-3
#: Found by ``tuning.py``; kin take the rate of what they descend from.
RATES = {
    OURS: 1e-4, FEDAVG: 1e-4, FEDPROX: 1e-4, BITFIT: 3e-3, HEAD: 1e-2, FEDLORA: 3e-3, SLORA: 3e-3, HETLORA: 3e-3,
    FLEXLORA: 3e-3, FLORA: 3e-3, FEDRA: 3e-3, LOCAL: 1e-4, CENTRAL: 1e-4,
}  # fmt: skip
RANK = 8


def settings(name: str, seed: int, steps: int, batch: int = 8, lr: float | None = None) -> LeffConfig:
    """Return the settings of a contender: at most so many batches a round, one pass over the data."""
    rate = lr or RATES.get(name, RATES[OURS])
    own = VARIANTS.get(name, {}) | ({"proximal": 0.01} if name == FEDPROX else {})
    return LeffConfig(
        lr=rate, extras_lr=rate if name == HEAD else HEAD_RATE, max_steps=steps, batch_size=batch, seed=seed,
        importance="clients", distill_steps=10, distill_lr=5e-4, distill_every=3, **own,
    )  # fmt: skip


def contender(name: str, model: nn.Module, config: LeffConfig, proxy: Sequence[Batch] | None) -> rivals.Method:
    """Return a method, ready to begin.

    Raises:
        ImportError: PEFT is not installed.
    """
    if name in VARIANTS:
        return rivals.Leff(model, config, proxy)
    if name in (FEDAVG, FEDPROX, CENTRAL):
        return rivals.Averaging(model, config)
    if name == LOCAL:
        return rivals.LocalOnly(model, config)
    if name in (BITFIT, HEAD):
        return rivals.Averaging(model, config, "biases" if name == BITFIT else "head")
    kinds = {
        FEDLORA: rivals.FedLoRA, SLORA: rivals.SLoRA, HETLORA: rivals.HetLoRA, FLEXLORA: rivals.FlexLoRA,
        FLORA: rivals.FLoRA, FEDRA: rivals.FedRA,
    }  # fmt: skip
    return kinds[name](model, config, RANK)
