"""Handwritten digits (scikit-learn's, 1797 of 8 × 8 pixels) by a multi-layer perceptron: the second workload.

It was chosen, with its target, before anything was run on it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

from thrifty.training.sumo.evidence.contenders import make, rates, set_rate
from thrifty.training.sumo.evidence.language import Run, schedule

RANK, GAP, BATCH, STEPS = 8, 50, 128, 200

Splits = dict[str, tuple[Tensor, Tensor]]


@cache
def read_digits() -> Splits:
    """Three splits, stratified: 60 % to train, 20 % to tune on, 20 % to report on; always the same."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)
    X_tune, X_test, y_tune, y_test = train_test_split(X_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=0)
    pairs = {"train": (X_train, y_train), "validation": (X_tune, y_tune), "test": (X_test, y_test)}
    return {name: (torch.from_numpy(a), torch.from_numpy(b)) for name, (a, b) in pairs.items()}


def train(name: str, lr: float, *, seed: int, steps: int = STEPS, held_out: str, every: int = 5) -> Run:
    """Train one contender; the curve is the loss on the held-out split."""
    splits = read_digits()
    X, y = splits["train"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
            nn.Sequential(nn.Linear(256, 10)),
        )  # fmt: skip
    rng = np.random.default_rng(seed)
    optimizer = make(name, model, lr, rank=RANK, gap=GAP, seed=seed)
    base, curve = rates(optimizer), []
    for step in range(1, steps + 1):
        set_rate(optimizer, base, schedule(step, steps))
        rows = torch.from_numpy(rng.integers(0, len(X), BATCH))
        optimizer.zero_grad()
        functional.cross_entropy(model(X[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % every == 0 or step == steps:
            curve.append((step, _loss(model, splits[held_out])))
    return Run(curve, 0.0, [])


@torch.no_grad()
def _loss(model: nn.Module, split: tuple[Tensor, Tensor]) -> float:
    return functional.cross_entropy(model(split[0]), split[1]).item()
