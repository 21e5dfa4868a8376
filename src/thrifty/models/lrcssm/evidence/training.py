"""Training one contender on one set: the same network, data, order of batches and number of updates for all."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import torch
from torch import nn

from thrifty.bench.data import timeseries
from thrifty.bench.timing import threads
from thrifty.models.lrcssm.estimator import build
from thrifty.models.lrcssm.evidence.contenders import make_layer
from thrifty.models.lrcssm.fitting import Recipe, evaluate, fit
from thrifty.models.lrcssm.sequences import Sequences, checked, from_arrays

WIDTH, BATCH = 32, 16

#: Every how many steps a set is read, for every contender alike.
STRIDE = {"BasicMotions": 2, "GunPoint": 2, "OSULeaf": 4, "ACSF1": 8, "PigCVP": 16}

#: Passes over the training data: 300 to 1000 updates on the small sets.
EPOCHS = {"BasicMotions": 100, "ItalyPowerDemand": 200, "JapaneseVowels": 40, "GunPoint": 200}


@cache
def splits(name: str) -> tuple[Sequences, Sequences]:
    """Return the training and the test split of a set."""
    stride = STRIDE.get(name, 1)
    made = []
    for part in timeseries.load(name):
        found = from_arrays([x[:, ::stride] for x in part.X])
        made.append(Sequences(found.X, found.lengths, part.y))
    return made[0], made[1]


def accuracy(name: str, data: tuple[Sequences, Sequences], lr: float, seed: int, epochs: int) -> float:
    """Train on the first split, and return the accuracy on the second, in per cent."""
    train, held = data
    assert train.y is not None
    with threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            layer: nn.Module = make_layer(name, WIDTH, max(train.X.shape[1], held.X.shape[1]))
        classes = int(max(train.y.max(), 0 if held.y is None else held.y.max())) + 1
        model = build(train, classes, seed, d_model=WIDTH, d_state=WIDTH, n_layers=1, standardize=True, layers=[layer])
        try:
            fit(model, train, None, Recipe(epochs, lr, BATCH, "cosine", seed=seed))
        except RuntimeError:  # it diverged at this rate
            return 100 / classes
        return 100 * evaluate(model, held)["score"]


def validation(name: str, seed: int) -> tuple[Sequences, Sequences]:
    """Split a set's training data in two by class, to tune on; the test split is not touched."""
    train, _ = splits(name)
    assert train.y is not None
    rng = np.random.default_rng(seed)
    kept, held = [], []
    for label in np.unique(train.y):
        rows = rng.permutation(np.flatnonzero(train.y == label))
        held += rows[: len(rows) // 3].tolist()
        kept += rows[len(rows) // 3 :].tolist()
    return train.rows(np.array(kept)), train.rows(np.array(held))


def shared(name: str, seed: int, folder: str) -> tuple[Sequences, Sequences]:
    """Return a random 70/30 split of a set of the shared folder, every fourth step of it."""
    with np.load(f"{folder}/{name}.npz") as found:
        X, y = found["X"][:, ::4].astype(np.float32), found["y"]
    _, codes = np.unique(y, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(X))
    data = checked(X, np.full(len(X), X.shape[1]), codes)
    cut = int(0.7 * len(X))
    return data.rows(order[:cut]), data.rows(order[cut:])
