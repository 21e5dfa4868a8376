"""The rivals' own packages, each behind one function: ``ellice`` 0.1.4, ``dice-ml``, and ROAR out of ``rocelib``."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import subprocess
import sys
import warnings
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from thrifty.bench import carried

Rows = Float[np.ndarray, "n d"]


def library(
    model: Any,
    X: Rows,
    y: np.ndarray,
    epsilon: float,
    l2: float,
    *,
    method: str = "continuous",
    backend: str = "sklearn",
    **options: Any,
) -> Any:
    """Return a function from rows to answers: the authors' package, a frozen model and its training table."""
    package = import_module("ellice")
    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    data = package.Data(frame.assign(target=y), "target", continuous_features=names, categorical_features=[])
    if backend == "pytorch":  # it computes in float32
        model = copy.deepcopy(model).float()
    explainer = package.Explainer(model, data, backend=backend, device="cpu")

    def answer(rows: Rows) -> Rows:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = explainer.generate_counterfactuals(
                pd.DataFrame(rows, columns=names),
                method=method,
                robustness_epsilon=epsilon,
                regularization_coefficient=l2,
                progress_bar=False,
                **options,
            )
        answers = np.full_like(rows, np.nan)
        for _, line in found.iterrows():
            answers[int(line["original_index"])] = line[names].to_numpy(float)
        return answers

    return answer


def dice(model: Any, X: Rows, y: np.ndarray) -> Any:
    """Return a function from rows to answers: DiCE's random search on the scikit-learn model."""
    dice_ml = import_module("dice_ml")
    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(target=y)
    data = dice_ml.Data(dataframe=frame, continuous_features=names, outcome_name="target")
    explainer = dice_ml.Dice(data, dice_ml.Model(model=_Named(model, names), backend="sklearn"), method="random")

    def answer(rows: Rows) -> Rows:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            found = explainer.generate_counterfactuals(
                pd.DataFrame(rows, columns=names), total_CFs=1, desired_class=1, random_seed=0, verbose=False
            )
        answers = np.full_like(rows, np.nan)
        for i, example in enumerate(found.cf_examples_list):
            if example.final_cfs_df is not None and len(example.final_cfs_df):
                answers[i] = example.final_cfs_df[names].to_numpy(float)[0]
        return answers

    return answer


class _Named:
    """A model that takes DiCE's frames without complaints about names."""

    def __init__(self, model: Any, names: list[str]) -> None:
        self.model, self.names = model, names
        self.classes_ = model.classes_

    def predict(self, frame: Any) -> Any:
        return self.model.predict(np.asarray(frame[self.names], dtype=float))

    def predict_proba(self, frame: Any) -> Any:
        return self.model.predict_proba(np.asarray(frame[self.names], dtype=float))


def rocelib_roar(theta: Float[np.ndarray, " m"], rows: Rows, delta: float) -> tuple[Rows, float]:
    """Return ROAR's answers by ``rocelib`` and its seconds; it is unzipped, and imported in a process of its own.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        RuntimeError: It failed.
    """
    wheel = carried.archive("rocelib")
    folder = wheel.with_suffix("")
    if not folder.exists():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    payload = {"theta": theta.tolist(), "rows": rows.tolist(), "delta": delta, "folder": str(folder)}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run_rocelib.py"))],
        input=json.dumps(payload), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"rocelib: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return np.array(found["answers"], dtype=float), float(found["seconds"])
