"""Two pictures: what robustness costs, and what one person would change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thrifty._common.checks import number
from thrifty._common.extras import require
from thrifty.solvers.ellice.errors import EpsilonTooLargeError
from thrifty.solvers.ellice.explainer import ElliCE
from thrifty.solvers.ellice.result import RecourseResult


def plot_price_of_robustness(explainer: ElliCE, X: Any, epsilons: Sequence[float], ax: Any = None) -> Any:
    """Draw the mean distance against ε, over persons who have an answer at every ε drawn.

    Args:
        explainer: Fitted.
        X: Raw rows.
        epsilons: Tolerances; those at which no row can be certified are left out.
        ax: Matplotlib axes; new ones by default.

    Returns:
        The axes.

    Raises:
        ValueError: A tolerance is no number, or no row can be certified at any of them.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> from thrifty.solvers.ellice import ElliCE
        >>> explainer = ElliCE(model).fit(X, y)
        >>> plot_price_of_robustness(explainer, X[y == 0][:3], [0.001, 0.01]).get_title()
        'Price of robustness (3 of 3 persons)'

    Source:
        the paper's figures of the price of robustness.
    """
    for epsilon in epsilons:
        number("epsilons", epsilon, "numbers of at least 0", least=0.0)
    results = []
    for epsilon in sorted(epsilons):
        try:
            results.append(explainer.with_epsilon(epsilon).explain(X, n_counterfactuals=1))
        except EpsilonTooLargeError:
            break
    if not results:
        raise ValueError(f"epsilons: expected one at which a row can be certified, got {list(epsilons)}")
    answered = np.all([result.answered for result in results], axis=0)
    ax = _axes(ax)
    at = [result.epsilon for result in results]
    ax.plot(at, [result.distance[answered].mean() for result in results], marker="o")
    ax.set_xlabel("tolerance ε (mean objective)")
    ax.set_ylabel("mean distance of the answer")
    ax.set_title(f"Price of robustness ({int(answered.sum())} of {len(answered)} persons)")
    return ax


def plot_changes(result: RecourseResult, entry: int = 0, ax: Any = None) -> Any:
    """Draw what one person would change: each changed feature, from its value to the answer's.

    Args:
        result: Answers.
        entry: Which of them.
        ax: Matplotlib axes; new ones by default.

    Returns:
        The axes.

    Raises:
        ValueError: That entry holds no answer.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / (1e-3 * len(X)))).fit(X, y)
        >>> from thrifty.solvers.ellice import ElliCE
        >>> result = ElliCE(model).fit(X, y).explain(X[y == 0][:1])
        >>> len(plot_changes(result).get_yticks()) == len(result.changed[0])
        True

    Source:
        ours.
    """
    if not (isinstance(entry, (int, np.integer)) and -len(result) <= entry < len(result)):
        raise ValueError(f"entry: expected 0 to {len(result) - 1}, as the result holds, got {entry!r}")
    if not result.answered[entry]:
        raise ValueError(
            f"entry: expected one with an answer, got {entry} ({result.status[entry]}): {result.message[entry]}"
        )
    ax = _axes(ax)
    before, after = result.queries.iloc[entry], result.counterfactuals.iloc[entry]
    names = result.changed[entry]
    for place, name in enumerate(names):
        now, then = before[name], after[name]
        if isinstance(now, str) or isinstance(then, str):
            label, share = f"{now} → {then}", 1.0
        else:
            label, share = (
                f"{now:.4g} → {then:.4g}",
                (float(then) - float(now)) / max(abs(float(now)), abs(float(then))),
            )
        ax.barh(place, share, color="tab:blue" if share >= 0 else "tab:orange")
        ax.annotate(label, (share, place), xytext=(4 if share >= 0 else -4, 0), textcoords="offset points", va="center",
                    ha="left" if share >= 0 else "right")  # fmt: skip
    ax.set_yticks(range(len(names)), names)
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set_xlabel("change, relative to the larger of both values")
    ax.set_title(
        f"Person {result.query[entry]}: {result.status[entry]}, certified up to ε = {result.radius[entry]:.3g}"
    )
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return require("matplotlib.figure", extra="bench").Figure(layout="constrained").subplots()
