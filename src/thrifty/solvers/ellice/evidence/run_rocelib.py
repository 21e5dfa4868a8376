"""Run in a process of its own: ROAR as ``rocelib`` has it, on a linear model; JSON in, JSON out."""

from __future__ import annotations

import json
import sys
import time
import types


def main() -> None:
    """Read the payload, import the unzipped package, answer."""
    payload = json.load(sys.stdin)
    sys.path.insert(0, payload["folder"])
    import numpy as np
    import pandas as pd

    # The package's task module imports every solver it has (gurobi, tensorflow); ROAR needs none of them.
    tasks = types.ModuleType("rocelib.tasks")
    task = types.ModuleType("rocelib.tasks.Task")
    task.Task = object  # type: ignore[attr-defined]
    sys.modules["rocelib.tasks"], sys.modules["rocelib.tasks.Task"] = tasks, task
    from rocelib.recourse_methods.ROAR import ROAR  # type: ignore[import-not-found]

    theta = np.array(payload["theta"])
    inner = types.SimpleNamespace(coef_=theta[None, :-1], intercept_=theta[-1:])
    made = ROAR(types.SimpleNamespace(model=types.SimpleNamespace(model=inner)))
    rows = pd.DataFrame(np.array(payload["rows"]))
    began = time.perf_counter()
    answers = made.generate(rows, delta=payload["delta"]).to_numpy()
    seconds = time.perf_counter() - began
    sys.stdout.write("\n" + json.dumps({"answers": answers.tolist(), "seconds": seconds}) + "\n")


if __name__ == "__main__":
    main()
