"""Run in a process of its own: rivals as ``rocelib`` has them, on a linear model; JSON in, JSON out.

ROAR needs nothing but the package. RNCE (Δ-robust neighbours) and PROPLACE import ``gurobipy``, which is proprietary
and not installed with the bench; where it is there, they run too (its built-in licence is large enough for a linear
model).
"""

from __future__ import annotations

import json
import sys
import time
import types
from importlib import import_module
from typing import Any


def main() -> None:
    """Read the payload, import the unzipped package, answer."""
    payload = json.load(sys.stdin)
    sys.path.insert(0, payload["folder"])
    import numpy as np
    import pandas as pd

    # These modules import every solver and model kind that the package has (tensorflow among them); none is needed.
    stubs = {"tasks": (), "tasks.Task": ("Task",), "models.imported_models.PytorchModel": ("PytorchModel",)}
    for name, holds in stubs.items():
        module = types.ModuleType(f"rocelib.{name}")
        for attribute in holds:
            setattr(module, attribute, object)
        sys.modules[f"rocelib.{name}"] = module
    if payload["method"] != "ROAR":
        import gurobipy  # type: ignore[import-not-found]

        sys.modules["gurobipy.gurobipy"] = gurobipy  # as it was called until version 11, whose licence has expired
    theta, rows = np.array(payload["theta"]), pd.DataFrame(np.array(payload["rows"]))
    made = _maker(payload["method"])(_task(theta, np.array(payload["pool"])))
    began = time.perf_counter()
    answers = made.generate(rows, delta=payload["delta"], **payload["options"]).to_numpy()
    seconds = time.perf_counter() - began
    sys.stdout.write("\n" + json.dumps({"answers": answers.tolist(), "seconds": seconds}) + "\n")


def _maker(method: str) -> Any:
    return getattr(import_module(f"rocelib.recourse_methods.{method}"), method)


def _task(theta: Any, pool: Any) -> Any:
    """Return what these methods ask of the package's task: a model (as scikit-learn's and as torch's) and a table."""
    import pandas as pd
    import torch

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


if __name__ == "__main__":
    main()
