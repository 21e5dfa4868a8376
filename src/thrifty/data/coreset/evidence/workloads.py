"""The data sets and their networks: digits (clean, and with labels changed), mnist1d, clothes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.bench.data import fashion


@dataclass(frozen=True)
class Workload:
    """A data set, split, and a network for it."""

    name: str
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    network: Callable[[], nn.Module]


def _mlp(inputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def _convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for width in (1, 25, 25):
        layers += [nn.Conv1d(width, 25, 5 if width == 1 else 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(125, 10))


@cache
def digits(noise: float = 0.0) -> Workload:
    """Return scikit-learn's digits, 1347 to train on; of the training labels a share is changed to another class."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x / 16, y, test_size=0.25, stratify=y, random_state=0)
    if noise:
        rng = np.random.default_rng(0)
        at = rng.random(len(y)) < noise
        y = np.where(at, (y + rng.integers(1, 10, len(y))) % 10, y)
    name = f"digits, {noise:.0%} of the labels changed" if noise else "digits"
    return Workload(name, *_tensors(x, y, x_test, y_test), lambda: _mlp(64))


@cache
def mnist1d() -> Workload:
    """Return mnist1d, 4000 sequences of 40 numbers to train on, made by its package.

    Raises:
        ImportError: The package is not installed.
    """
    data: Any = require("mnist1d.data", extra="bench")
    found = data.make_dataset(data.get_dataset_args())
    return Workload(
        "mnist1d",
        *_tensors(found["x"][:, None], found["y"], found["x_test"][:, None], found["y_test"]),
        _convolutions,
    )


@cache
def clothes() -> Workload:
    """Return 5000 pictures of clothes to train on, and 2000 to test.

    Raises:
        thrifty.bench.carried.UnavailableError: They are not in the cache.
    """
    (x, y), (x_test, y_test) = fashion.load("train"), fashion.load("test")
    return Workload(
        "clothes", *_tensors(x[:5000] / 255, y[:5000], x_test[:2000] / 255, y_test[:2000]), lambda: _mlp(784)
    )


def _tensors(x: Any, y: Any, x_test: Any, y_test: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        torch.as_tensor(np.asarray(x), dtype=torch.float32),
        torch.as_tensor(np.asarray(y), dtype=torch.int64),
        torch.as_tensor(np.asarray(x_test), dtype=torch.float32),
        torch.as_tensor(np.asarray(y_test), dtype=torch.int64),
    )
