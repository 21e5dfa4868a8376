"""Run in a process of its own: rivals as ``rocelib`` has them, on a linear model.

ROAR needs nothing but the package. RNCE (Δ-robust neighbours) and PROPLACE import ``gurobipy``, which is proprietary
and not installed with the bench; where it is there, they run too (its built-in licence is large enough for a linear
model).
"""

from __future__ import annotations

import sys
import time
import types
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import torch


def answer(
    folder: str,
    method: str,
    theta: list[float],
    rows: list[list[float]],
    pool: list[list[float]],
    delta: float,
    options: dict[str, Any],
) -> tuple[list[list[float]], float]:
    """Import the unpacked package, and return its answers and the seconds that they took."""
    sys.path.insert(0, folder)
    # These modules import every solver and model kind that the package has (tensorflow among them); none is needed.
    stubs = {"tasks": (), "tasks.Task": ("Task",), "models.imported_models.PytorchModel": ("PytorchModel",)}
    for name, holds in stubs.items():
        module = types.ModuleType(f"rocelib.{name}")
        for attribute in holds:
            setattr(module, attribute, object)
        sys.modules[f"rocelib.{name}"] = module
    if method != "ROAR":
        import gurobipy  # type: ignore[import-not-found]

        sys.modules["gurobipy.gurobipy"] = gurobipy  # as it was called until version 11, whose licence has expired
    made = _maker(method)(_task(np.array(theta), np.array(pool)))
    began = time.perf_counter()
    answers = made.generate(pd.DataFrame(np.array(rows)), delta=delta, **options).to_numpy()
    return answers.tolist(), time.perf_counter() - began


def _maker(method: str) -> Any:
    return getattr(import_module(f"rocelib.recourse_methods.{method}"), method)


def _task(theta: Any, pool: Any) -> Any:
    """Return what these methods ask of the package's task: a model (as scikit-learn's and as torch's) and a table."""
    layer = torch.nn.Linear(len(theta) - 1, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(theta[None, :-1]))
        layer.bias.fill_(float(theta[-1]))
    network = torch.nn.Sequential(layer)
    network.coef_, network.intercept_ = theta[None, :-1], theta[-1:]
    model = types.SimpleNamespace(model=network, input_dim=len(theta) - 1, hidden_dim=[], output_dim=1)
    table = pd.DataFrame(pool)
    table.columns = range(pool.shape[1])
    dataset = types.SimpleNamespace(X=table, data=table.assign(target=1))
    return types.SimpleNamespace(model=model, dataset=dataset)
