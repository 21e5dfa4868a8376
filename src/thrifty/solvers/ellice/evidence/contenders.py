"""The rivals' own packages, each behind one function: ``ellice`` 0.1.4, ``dice-ml``, and ROAR out of ``rocelib``."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from thrifty.bench import carried, isolated

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


def library_is_installed() -> bool:
    """Tell whether the authors' package can be imported."""
    return find_spec("ellice") is not None


def dice(model: Any, X: Rows, y: np.ndarray, *, method: str = "random") -> Any:
    """Return a function from rows to answers by DiCE.

    Args:
        model: A linear scikit-learn model.
        X: Its training table.
        y: Its labels.
        method: ``"random"`` search on the model itself, or ``"gradient"`` on the same model as a torch network.
    """
    dice_ml = import_module("dice_ml")
    names = [f"x{j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names).assign(target=y)
    data = dice_ml.Data(dataframe=frame, continuous_features=names, outcome_name="target")
    if method == "gradient":
        wrapped = dice_ml.Model(model=_as_network(model, X), backend="PYT", func="ohe-min-max")
    else:
        wrapped = dice_ml.Model(model=_Named(model, names), backend="sklearn")
    with contextlib.redirect_stdout(io.StringIO()):
        explainer = dice_ml.Dice(data, wrapped, method=method)
    # The sparsity pass after a gradient search takes minutes a person: it asks the network at every small step.
    options: dict[str, Any] = {"random_seed": 0} if method == "random" else {"posthoc_sparsity_param": None}

    def answer(rows: Rows) -> Rows:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            found = explainer.generate_counterfactuals(
                pd.DataFrame(rows, columns=names), total_CFs=1, desired_class=1, verbose=False, **options
            )
        answers = np.full_like(rows, np.nan)
        for i, example in enumerate(found.cf_examples_list):
            if example.final_cfs_df is not None and len(example.final_cfs_df):
                answers[i] = example.final_cfs_df[names].to_numpy(float)[0]
        return answers

    return answer


def _as_network(model: Any, X: Rows) -> Any:
    """Return a linear model as DiCE's gradients want it: a torch network from columns in [0, 1] to a probability."""
    torch = import_module("torch")
    low, span = X.min(axis=0), X.max(axis=0) - X.min(axis=0)
    layer = torch.nn.Linear(X.shape[1], 1)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(model.coef_ * span))
        layer.bias.fill_(float(model.intercept_[0] + model.coef_[0] @ low))
    return torch.nn.Sequential(layer, torch.nn.Sigmoid())


class _Named:
    """A model that takes DiCE's frames without complaints about names."""

    def __init__(self, model: Any, names: list[str]) -> None:
        self.model, self.names = model, names
        self.classes_ = model.classes_

    def predict(self, frame: Any) -> Any:
        return self.model.predict(np.asarray(frame[self.names], dtype=float))

    def predict_proba(self, frame: Any) -> Any:
        return self.model.predict_proba(np.asarray(frame[self.names], dtype=float))


def rocelib(
    method: str, theta: Float[np.ndarray, " m"], rows: Rows, pool: Rows, delta: float, **options: Any
) -> tuple[Rows, float]:
    """Return a rival's answers by ``rocelib`` and its seconds; it is unzipped, and imported in a process of its own.

    Args:
        method: ``"ROAR"``, ``"RNCE"`` (Δ-robust neighbours) or ``"PROPLACE"``.
        theta: A linear model.
        rows: Whom to answer.
        pool: The training table.
        delta: δ.
        options: What else the method takes.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: The method needs a package that is not installed.
        RuntimeError: It failed.
    """
    folder = str(carried.unpacked("rocelib"))
    target = "thrifty.solvers.ellice.evidence.run_rocelib:answer"
    answers, seconds = isolated.call(
        target, folder, method, theta.tolist(), rows.tolist(), pool.tolist(), delta, options
    )
    return np.array(answers, dtype=float), float(seconds)
