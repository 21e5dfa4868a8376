"""Who is compared, at which rate, and how each is trained: the same windows, loss, grid and early stopping for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty.bench.timing import threads
from thrifty.models.se_htgnn import SEHTGNN, HeteroTemporalData
from thrifty.models.se_htgnn.fitting import Recipe, batches, fit
from thrifty.models.se_htgnn.metrics import regression_metrics
from thrifty.models.se_htgnn.objectives import RegressionObjective
from thrifty.models.se_htgnn.rivals.dyhatr import DyHATR
from thrifty.models.se_htgnn.rivals.htgnn import HTGNN
from thrifty.models.se_htgnn.rivals.static import Collapsed, PerSnapshotHGT
from thrifty.models.se_htgnn.scaling import Scaling
from thrifty.models.se_htgnn.splits import Split

#: One grid of Adam's rates for all.
GRID = (1e-3, 3e-3, 1e-2, 3e-2)

#: From ``tuning.py``: the best validation error on the flights.
RATES: dict[str, float] = {
    "SE-HTGNN": 3e-3,
    "HTGNN": 1e-2,
    "DyHATR-like": 3e-2,
    "RGCN": 3e-2,
    "HGT": 3e-2,
    "HGT + GRU": 3e-3,
    "GCN": 1e-2,
    "GAT": 1e-2,
}

WIDTH, WINDOW, BATCH, DECAY = 16, 7, 16, 1e-4


def network(
    name: str, data: HeteroTemporalData, layers: int = 1, window: int = WINDOW, d: int = WIDTH, **settings: Any
) -> nn.Module:
    """Build a contender for a graph; the generator of torch is at the caller's seed.

    Raises:
        KeyError: There is no contender of that name.
        ImportError: Its package is not installed.
    """
    metadata, widths = data.metadata(), data.num_features()
    kinds: dict[str, Callable[[], nn.Module]] = {
        "SE-HTGNN": lambda: SEHTGNN(metadata, widths, d, 1, num_layers=layers, window=window, **settings),
        "HTGNN": lambda: HTGNN(metadata, widths, d, 1, layers, window),
        "DyHATR-like": lambda: DyHATR(metadata, widths, d, 1, layers),
        "HGT + GRU": lambda: PerSnapshotHGT(metadata, widths, d, 1, layers),
    }
    for kind in ("GCN", "GAT", "RGCN", "HGT"):
        kinds[kind] = lambda kind=kind: Collapsed(kind, metadata, widths, d, 1, layers)  # type: ignore[misc]
    return kinds[name]()


def train(
    name: str, data: HeteroTemporalData, target: str, split: Split, seed: int, *, epochs: int, lr: float | None = None,
    layers: int = 1, window: int = WINDOW, batch: int = BATCH, patience: int = 25, log: bool = False, test: bool = True,
    device: str = "cpu", **settings: Any,
) -> dict[str, float]:  # fmt: skip
    """Train on the first split, stop by the second; return errors on the second and the third, and what it cost.

    Args:
        name: A contender.
        data: The graph.
        target: The node type to forecast.
        split: Snapshots to train on, to stop by, and to test on.
        seed: Of weights and of the order of steps.
        epochs: Passes at most.
        lr: Adam's rate; the tuned one, if ``None``.
        layers: Layers.
        window: Snapshots of a window.
        batch: Windows a step.
        patience: Epochs without a better score.
        log: Learn log(1 + y).
        test: Look at the third split too.
        device: Where to compute.
        settings: Of the model.
    """
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(name, data, layers, window, **settings).to(device)
        scaling = Scaling.of(data.y[target][split.train], log)
        recipe = Recipe(epochs, RATES[name] if lr is None else lr, DECAY, batch, patience, seed=seed)
        began = time.perf_counter()
        fitted = fit(
            RegressionObjective(model, target, scaling), batches(data, window, device), split.train,
            lambda: scores(model, data, target, split.validation, scaling, window)["mae"], recipe,
        )  # fmt: skip
        seconds = (time.perf_counter() - began) / len(fitted.scores)
        errors = scores(model, data, target, split.test, scaling, window) if test else {}
    cost = {"seconds": seconds, "parameters": sum(p.numel() for p in model.parameters())}
    return {"validation": fitted.best_score, "epochs": len(fitted.scores), **errors, **cost}


def scores(
    model: nn.Module, data: HeteroTemporalData, target: str, targets: NDArray[np.int64], scaling: Scaling, window: int
) -> dict[str, float]:
    """Return errors of one-step forecasts in the target's own unit."""
    return regression_metrics(forecasts(model, data, target, targets, scaling, window), data.y[target][targets].numpy())


@torch.no_grad()
def forecasts(
    model: nn.Module, data: HeteroTemporalData, target: str, targets: NDArray[np.int64], scaling: Scaling, window: int
) -> NDArray[np.float64]:
    """Return forecasts of one step, (snapshot, node)."""
    model.eval()
    device = next(model.parameters()).device
    out: Tensor = model(data.windows(targets, window, device), target)[target][:, :, 0, 0]
    return scaling.invert(out.double().cpu().numpy())
