"""Every tree of a fitted forest improved on its own, in parallel."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import repeat
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import compute_sample_weight
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from thrifty._common.checks import one_of
from thrifty.solvers.trees.improve import improve_tree
from thrifty.solvers.trees.model.validation import class_codes
from thrifty.solvers.trees.report import Report

Forest = TypeVar("Forest", RandomForestClassifier, ExtraTreesClassifier)
Sample = Literal["bootstrap", "all"]


def improve_forest(
    forest: Forest,
    X: ArrayLike,
    y: ArrayLike,
    *,
    k: int = 1,
    sample: Sample = "bootstrap",
    sample_weight: ArrayLike | None = None,
    n_jobs: int | None = None,
    **search: Any,
) -> tuple[Forest, tuple[Report, ...]]:
    """Change at most ``k`` cuts of each tree of a forest so that the tree makes the fewest training errors.

    Trees that were grown until their leaves are pure make no errors on their own sample, so nothing changes in them:
    this is for forests of shallow trees. A forest lives on trees that differ; with ``sample="bootstrap"`` they
    still see different rows. Whether the vote gains is for held-out rows to tell.

    Args:
        forest: A fitted ``RandomForestClassifier`` or ``ExtraTreesClassifier`` with one output. It is not modified.
        X: The table that the forest was fitted on, ``[n, n_features]``.
        y: Its classes, ``[n]``.
        k: Cuts that may change in each tree; all of them in trees that have fewer.
        sample: ``"bootstrap"``: each tree is improved on the rows and weights that it was fitted on, drawn again from
            its random state (all rows, if the forest does not draw). ``"all"``: on all rows.
        sample_weight: ``[n]``, at least 0: that of the fit. ``None``: 1 each. The forest's ``class_weight`` is added.
        n_jobs: Threads. ``None``: 1, or what a joblib context says; -1: one a processor.
        **search: What else `improve_tree` takes: ``operation``, ``mode``, ``solver``, ``min_samples_leaf`` and so on.

    Returns:
        A new forest, without the out-of-bag score of the old one, and the report of each tree.

    Raises:
        TypeError: ``forest`` is no such forest.
        NotFittedError: It is not fitted.
        ValueError: It predicts several outputs; ``X``, ``y`` or ``sample_weight`` are not those of the fit; or another
            argument does not fit.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from sklearn.ensemble import RandomForestClassifier
        >>> from thrifty.solvers.trees.forest import improve_forest
        >>> X, y = load_wine(return_X_y=True)
        >>> forest = RandomForestClassifier(10, max_depth=2, random_state=0).fit(X, y)
        >>> better, reports = improve_forest(forest, X, y)
        >>> all(report.n_errors <= report.n_errors_before for report in reports)
        True

    Source:
        The samples of the trees as scikit-learn's forests draw them; each tree as by :func:`improve_tree`.
    """
    if not isinstance(forest, (RandomForestClassifier, ExtraTreesClassifier)):
        raise TypeError(
            f"forest: expected a RandomForestClassifier or an ExtraTreesClassifier, got a {type(forest).__name__}"
        )
    check_is_fitted(forest, "estimators_")
    if forest.n_outputs_ != 1:
        raise ValueError(f"forest: expected one output (fit a forest for each), got {forest.n_outputs_}")
    one_of("sample", sample, ("bootstrap", "all"))
    checked, labels = validate_data(forest, X, y, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
    codes = class_codes(forest.classes_, np.asarray(labels))
    given = _check_sample_weight(sample_weight, checked, dtype=np.float64, ensure_non_negative=True)
    if sample == "bootstrap":
        weights = _fit_weights(forest, codes, given)
    else:
        weights = repeat(_row_weights(forest, codes, given), len(forest.estimators_))
    grown = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(improve_tree)(
            tree, checked, codes.astype(np.float64), k=_at_most(k, tree), sample_weight=weight, **search
        )
        for tree, weight in zip(forest.estimators_, weights, strict=True)
    )
    better = copy.copy(forest)
    better.estimators_ = [tree for tree, _ in grown]
    for stale in ("oob_score_", "oob_decision_function_"):
        better.__dict__.pop(stale, None)
    return better, tuple(report for _, report in grown)


def _at_most(k: int, tree: DecisionTreeClassifier) -> int:
    """``k``, or the tree's number of cuts; what is no budget is left for `improve_tree` to refuse."""
    return min(k, int(tree.tree_.n_leaves) - 1) if isinstance(k, (int, np.integer)) and not isinstance(k, bool) else k


def _fit_weights(forest: Forest, codes: NDArray[np.int32], given: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The weight of each row in the fit of each tree, checked against the class weights that the tree's root records.

    With weights given, scikit-learn 1.9 draws rows in proportion to them, and then counts each draw once; before, it
    drew evenly and multiplied.

    Raises:
        ValueError: The rows or weights are not those of the fit.
    """
    n = len(codes)
    fitted_on = getattr(forest, "_n_samples", n)
    if fitted_on != n:
        raise ValueError(f"X: expected the {fitted_on} rows that the forest was fitted on (or sample='all'), got {n}")
    balances_draws = forest.bootstrap and forest.class_weight == "balanced_subsample"
    weighted = given if balances_draws else _row_weights(forest, codes, given)
    drawn_by_weight = hasattr(forest, "_sample_weight")
    for tree, rows in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        weight = weighted
        if forest.bootstrap:
            draws = np.bincount(rows, minlength=n).astype(np.float64)
            weight = draws if drawn_by_weight else draws * weighted
        if balances_draws:
            weight = weight * compute_sample_weight("balanced", codes, indices=rows)
        counts = np.bincount(codes, weights=weight, minlength=len(forest.classes_))
        if not np.allclose(counts, tree.tree_.value[0, 0] * tree.tree_.weighted_n_node_samples[0]):
            raise ValueError(
                "X, y, sample_weight: expected those that the forest was fitted on (or sample='all'), got others: the "
                "classes at the root of a tree add up to other weights"
            )
        yield weight


def _row_weights(forest: Forest, codes: NDArray[np.int32], given: NDArray[np.float64]) -> NDArray[np.float64]:
    """The given weights times those of the forest's ``class_weight``."""
    if forest.class_weight is None:
        return given
    if isinstance(forest.class_weight, str):  # "balanced", of the weighted rows; or that of each sample
        counts = np.bincount(codes, weights=given, minlength=len(forest.classes_))
        factor = np.divide(counts.sum(), len(counts) * counts, out=np.zeros_like(counts), where=counts > 0)[codes]
    else:
        factor = compute_sample_weight(forest.class_weight, forest.classes_[codes])
    weights: NDArray[np.float64] = given * factor
    return weights
