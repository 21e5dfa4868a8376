"""Choosing ε: the smallest tolerance whose recourse survives retraining as often as is wanted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from thrifty._common.checks import is_number, whole
from thrifty.solvers.ellice.ensembles import Ensemble, Kind, Recipe, make_ensemble
from thrifty.solvers.ellice.errors import EpsilonTooLargeError
from thrifty.solvers.ellice.evaluation import evaluate_recourse
from thrifty.solvers.ellice.explainer import ElliCE
from thrifty.solvers.ellice.reading import as_fitted
from thrifty.solvers.ellice.retraining import refit

#: The paper's grid begins and ends here.
SMALLEST, LARGEST = 0.00125, 0.25


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Attributes:
        epsilon: The smallest tolerance tried that reached the wanted robustness.
        robustness: What it reached, as a mean over folds; below what was wanted if nothing reached it.
        reached: Whether it was reached.
        trace: (ε, robustness, mean distance) of every tolerance tried, in order.

    Example:
        >>> found = Tuned(0.02, 0.97, True, ((0.00125, 0.6, 0.4), (0.25, 1.0, 1.9), (0.02, 0.97, 0.8)))
        >>> min(epsilon for epsilon, robustness, _ in found.trace if robustness >= 0.95) == found.epsilon
        True
    """

    epsilon: float
    robustness: float
    reached: bool
    trace: tuple[tuple[float, float, float], ...]


def tune_epsilon(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    robustness: float = 0.95,
    evaluator: Kind | Callable[[Any, Any, NDArray], Ensemble] = "bootstrap",
    folds: int = 4,
    n_models: int = 30,
    n_queries: int = 50,
    steps: int = 7,
    epsilon_target: float | None = None,
    recipe: Recipe | None = None,
    random_state: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
    **settings: Any,
) -> Tuned:
    """Bisect ε on a logarithmic scale, by cross-validation.

    Args:
        model: A scikit-learn estimator (cloned for every fold), or any model with ``recipe``.
        X: The table.
        y: Its labels.
        robustness: Wanted mean share of models that accept an answer, over all persons.
        evaluator: A kind of :func:`~thrifty.solvers.ellice.ensembles.make_ensemble`, or (model, X, y) to an ensemble.
        folds: Of stratified cross-validation; in each, ε is judged on a fifth that its model has not seen.
        n_models: Of each ensemble.
        n_queries: Persons judged in each fold.
        steps: Bisection steps, after both ends (0.00125 and 0.25) have been tried.
        epsilon_target: Tolerance of the ensembles; ``None``: all retrained models count.
        recipe: (seed, X, y) to a fitted model.
        random_state: Seed.
        progress: Told (done, total).
        settings: Further arguments of :class:`~thrifty.solvers.ellice.explainer.ElliCE`.

    Returns:
        The smallest ε that reaches ``robustness``, and every one that was tried.

    Raises:
        ValueError: An argument will not do, or no person is on the wrong side.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> tuned = tune_epsilon(model, X, y, robustness=0.5, folds=2, n_models=3, n_queries=5, steps=1)
        >>> tuned.reached
        True

    Source:
        the paper's appendix, which tunes on a grid in place of bisection.
    """
    if not (is_number(robustness) and 0 < robustness <= 1):
        raise ValueError(f"robustness: expected a share above 0, at most 1, got {robustness!r}")
    whole("folds", folds, least=2)
    whole("n_models", n_models)
    whole("n_queries", n_queries)
    whole("steps", steps, least=0)
    whole("random_state", random_state, least=0)
    X = as_fitted(model, X)
    y = np.asarray(y)
    if y.shape != (len(X),):
        raise ValueError(f"y: expected one label for each of {len(X)} rows, got shape {y.shape}")
    if folds > (rarer := np.unique(y, return_counts=True)[1].min()):
        raise ValueError(f"folds: expected at most {rarer}, the rows of the rarer label, got {folds}")
    split = StratifiedKFold(folds, shuffle=True, random_state=random_state)
    cases = []
    for fold, (rest, _) in enumerate(split.split(np.zeros(len(y)), y)):
        train, val = train_test_split(rest, test_size=0.2, stratify=y[rest], random_state=random_state + fold)
        X_train, X_val = _take(X, train), _take(X, val)
        fitted = (
            refit(model, X_train, y[train], random_state + fold)
            if recipe is None
            else recipe(random_state + fold, X_train, y[train])
        )
        with warnings.catch_warnings():
            # A fold has fewer rows than the table, so that the penalty of scikit-learn's fits is not quite λ.
            warnings.filterwarnings("ignore", message="the model does not minimise")
            explainer = ElliCE(fitted, **{"epsilon": SMALLEST, **settings}).fit(X_train, y[train])
        target = explainer.target
        says = explainer.reading_.deployed_logit(explainer.reading_.encoding.frame(X_val)) >= 0
        wrong = (
            np.flatnonzero(says != (explainer.rashomon_.sign_of(target) > 0))
            if target != "opposite"
            else np.arange(len(val))
        )
        if len(wrong):
            ensemble = (
                evaluator(fitted, X_train, y[train])
                if callable(evaluator)
                else make_ensemble(
                    evaluator, fitted, X_train, y[train], epsilon_target, n_models, random_state + fold, recipe=recipe
                )
            )
            cases.append((explainer, _take(X_val, wrong[:n_queries]), ensemble))
    if not cases:
        raise ValueError("X: expected a held-out person on the wrong side of the decision to tune on, got none")
    trace: list[tuple[float, float, float]] = []

    def judge(epsilon: float) -> float:
        scores = []
        for explainer, queries, ensemble in cases:
            try:
                result = explainer.with_epsilon(epsilon).explain(queries)
            except EpsilonTooLargeError:
                scores.append((0.0, float("nan")))
                continue
            found = evaluate_recourse(result, ensemble, explainer)
            scores.append((found.agreement, found.distance))
        mean = float(np.mean([robust for robust, _ in scores]))
        far = [far for _, far in scores if np.isfinite(far)]
        trace.append((epsilon, mean, float(np.mean(far)) if far else float("nan")))
        progress(len(trace), steps + 2)
        return mean

    low, high = SMALLEST, min(LARGEST, 0.999 * min(_most(explainer) for explainer, _, _ in cases))
    if judge(low) >= robustness:
        return Tuned(low, trace[-1][1], True, tuple(trace))
    judge(high)  # too large a tolerance leaves persons without an answer: the best is somewhere below
    for _ in range(steps):
        middle = float(np.sqrt(low * high))
        if judge(middle) >= robustness or trace[-1][1] < _before(trace, low):
            high = middle
        else:
            low = middle
    enough = [entry for entry in trace if entry[1] >= robustness]
    best = min(enough) if enough else max(trace, key=lambda entry: entry[1])
    return Tuned(best[0], best[1], bool(enough), tuple(trace))


def _before(trace: list[tuple[float, float, float]], epsilon: float) -> float:
    return next(robust for at, robust, _ in trace if at == epsilon)


def _most(explainer: ElliCE) -> float:
    target = None if explainer.target == "opposite" else explainer.target
    return explainer.rashomon_.max_epsilon(target, explainer.threshold)


def _take(X: Any, rows: NDArray) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]
