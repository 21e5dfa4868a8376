"""Choosing how many cuts may change by cross-validation, with scikit-learn's own search.

``GridSearchCV`` tries any list of ``k`` on a `TreeLocalSearchClassifier`. What is added here is the choice: the best
mean score mostly belongs to a large ``k`` by chance, since scores of neighbouring ``k`` differ less than folds do. Each
change costs trust in a tree that people know, so the fewest changes that are as good within one standard error win.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def fewest_changes(cv_results: Mapping[str, Any]) -> int:
    """The candidate with the smallest ``k`` among those within one standard error of the best mean score.

    Pass it to ``GridSearchCV`` or ``RandomizedSearchCV`` as ``refit``. Several candidates with that ``k`` (if other
    parameters are searched too): the best of them.

    Args:
        cv_results: The ``cv_results_`` of a search over ``k``, or over a pipeline's ``...__k``, with one metric.

    Returns:
        The index of the candidate.

    Raises:
        ValueError: No ``k`` was searched, or there are several metrics.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from sklearn.model_selection import GridSearchCV
        >>> from thrifty.solvers.trees import TreeLocalSearchClassifier
        >>> from thrifty.solvers.trees.selection import fewest_changes
        >>> X, y = load_wine(return_X_y=True)
        >>> search = GridSearchCV(TreeLocalSearchClassifier(random_state=0), {"k": [0, 1]}, refit=fewest_changes)
        >>> search.fit(X, y).best_params_["k"] in (0, 1)
        True

    Source:
        the one-standard-error rule of Breiman et al., Classification and Regression Trees (1984), section 3.4.3.
    """
    if not isinstance(cv_results, Mapping) or "params" not in cv_results:
        raise ValueError(f"cv_results: expected the cv_results_ of a search, got another {type(cv_results).__name__}")
    names = sorted({name for params in cv_results["params"] for name in params if name.split("__")[-1] == "k"})
    if len(names) != 1:
        raise ValueError(f"cv_results: expected a search over one parameter k, got {names or 'no k'}")
    if "mean_test_score" not in cv_results:
        raise ValueError("cv_results: expected a search with one scoring, got several metrics")
    k = np.array([params.get(names[0], -1) for params in cv_results["params"]])
    mean: NDArray[np.float64] = np.asarray(cv_results["mean_test_score"])
    if k.dtype.kind not in "iu" or k.min() < 0:
        raise ValueError(f"cv_results: expected a whole number k in each candidate, got {k.tolist()}")
    if np.isnan(mean).all():
        raise ValueError("cv_results: expected a candidate whose fits did not fail, got scores of NaN alone")
    best = int(np.nanargmax(mean))
    folds = np.array([scores[best] for name, scores in cv_results.items() if _is_fold(name)])
    error = folds.std(ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else 0.0
    good = np.flatnonzero(mean >= mean[best] - error)
    fewest = good[k[good] == k[good].min()]
    return int(fewest[mean[fewest].argmax()])


def _is_fold(name: str) -> bool:
    return name.startswith("split") and name.endswith("_test_score")
