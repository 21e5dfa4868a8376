"""The scikit-learn estimator: fit a tree, then improve it without making it larger."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import Tags, compute_sample_weight, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from thrifty.solvers.trees.improve import improve_tree
from thrifty.solvers.trees.instance.problem import Features, Operation
from thrifty.solvers.trees.search import Mode, Solver
from thrifty.solvers.trees.sweeps.moves import Secondary

_log = logging.getLogger(__name__)

DEFAULT_DEPTH = 4
"""Depth of the tree that is fitted where none is given: small enough to read."""


class TreeLocalSearchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A decision tree that no change of at most k of its cuts can improve on the training table.

    Args:
        estimator: The ``DecisionTreeClassifier`` to fit and then improve. ``None``: one of
            depth 4.
        operation: ``"adjust"``, ``"exchange"`` or ``"both"``; see `improve_tree`.
        k: Cuts that may change.
        n_prune: Cuts to remove by replacing subtrees with leaves.
        n_raise: Cuts to remove by raising subtrees.
        mode: ``"exact"``, ``"hillclimb"`` or ``"vns"``.
        solver: ``"auto"``, ``"sweep"``, ``"bnb"``, ``"dp"``, ``"budget"`` or ``"brute"``.
        min_samples_leaf: Rows that a change must leave in each leaf; also of the default ``estimator``.
        min_weight_fraction_leaf: The same for the share of the total weight.
        features: Columns that cuts may be exchanged to.
        frozen: Cuts that stay as they are (for a tree that is already fitted).
        monotonic_cst: One of 1, -1 and 0 a column; for a tree that is fitted here, also of that fit.
        secondary: ``"gini"`` or ``"margin"``: the choice among equally good changes.
        class_weight: ``None``, ``"balanced"`` or a mapping from class to factor; multiplies the row weights, of the
            fit (unless prefit) and of the search.
        prefit: ``estimator`` is fitted: it is improved as it is, and left unchanged.
        time_limit: Seconds of the search; ``None``: no limit.
        memory_limit_mb: Megabytes for remembered answers.
        n_jobs: Threads of branch and bound.
        max_rounds: Local optima that ``mode="vns"`` comes to.
        random_state: For the default ``estimator``, and for ``mode="vns"``.
        verbose: Above 0, better trees are logged (at level INFO) as they are found.

    Attributes:
        estimator_: The improved ``DecisionTreeClassifier``.
        classes_: Class names; ``[n_classes]``.
        report_: The whole `Report`.
        n_errors_before_: Training errors of the tree as fitted (sum of weights).
        n_errors_: Training errors of ``estimator_``.
        errors_by_budget_: Fewest errors for each number of changes.
        operations_: What was changed.
        status_: What is proved.
        lower_bound_: No tree within the budget makes fewer errors.
        n_states_: What the solver evaluated.
        fit_time_: Seconds of the search.
        n_features_in_: Columns of the table.
        feature_names_in_: Their names, if they have any.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> from thrifty.solvers.trees import TreeLocalSearchClassifier
        >>> X, y = load_wine(return_X_y=True)
        >>> model = TreeLocalSearchClassifier(k=1, random_state=0).fit(X, y)
        >>> model.n_errors_ <= model.n_errors_before_
        True

    Source:
        Harviainen, Sommer, Sorge (NeurIPS 2025, arXiv 2510.12726).
    """

    def __init__(
        self,
        estimator: DecisionTreeClassifier | None = None,
        *,
        operation: Operation = "exchange",
        k: int = 1,
        n_prune: int = 0,
        n_raise: int = 0,
        mode: Mode = "exact",
        solver: Solver = "auto",
        min_samples_leaf: int = 1,
        min_weight_fraction_leaf: float = 0.0,
        features: Features = None,
        frozen: Collection[int] = (),
        monotonic_cst: ArrayLike | None = None,
        secondary: Secondary = "gini",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        prefit: bool = False,
        time_limit: float | None = None,
        memory_limit_mb: float = 2048,
        n_jobs: int | None = None,
        max_rounds: int = 1,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.operation = operation
        self.k = k
        self.n_prune = n_prune
        self.n_raise = n_raise
        self.mode = mode
        self.solver = solver
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.features = features
        self.frozen = frozen
        self.monotonic_cst = monotonic_cst
        self.secondary = secondary
        self.class_weight = class_weight
        self.prefit = prefit
        self.time_limit = time_limit
        self.memory_limit_mb = memory_limit_mb
        self.n_jobs = n_jobs
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = DecisionTreeClassifier() if self.estimator is None else self.estimator
        tags.input_tags.allow_nan = get_tags(inner).input_tags.allow_nan
        return tags

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TreeLocalSearchClassifier:
        """Fit the tree, unless it is, and improve it.

        Args:
            X: ``[n, n_features]``.
            y: ``[n]``.
            sample_weight: ``[n]``, at least 0. ``None``: 1 each.

        Raises:
            TypeError: ``estimator`` is no decision-tree classifier.
            NotFittedError: ``prefit=True``, and ``estimator`` is not fitted.
            ValueError: The table or another setting does not fit; see `improve_tree`.
        """
        if not (self.estimator is None or isinstance(self.estimator, DecisionTreeClassifier)):
            raise TypeError(f"estimator: expected a DecisionTreeClassifier, got a {type(self.estimator).__name__}")
        checked, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=self._finite())
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, checked, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
            if not (np.isfinite(weight).all() and (weight >= 0).all() and weight.any()):
                raise ValueError(
                    f"class_weight: expected finite weights of at least 0 that are not all 0, got {self.class_weight!r}"
                )
        table = X if hasattr(self, "feature_names_in_") else checked

        if self.prefit:
            tree = self.estimator
        else:
            tree = self._unfitted(len(np.unique(y)))
            tree.fit(table, y, sample_weight=weight)
        self.estimator_, report = improve_tree(
            tree,
            table,
            y,
            operation=self.operation,
            k=self.k,
            n_prune=self.n_prune,
            n_raise=self.n_raise,
            mode=self.mode,
            solver=self.solver,
            sample_weight=weight,
            min_samples_leaf=self.min_samples_leaf,
            min_weight_fraction_leaf=self.min_weight_fraction_leaf,
            features=self.features,
            frozen=self.frozen,
            monotonic_cst=self.monotonic_cst,
            secondary=self.secondary,
            time_limit=self.time_limit,
            memory_limit_mb=self.memory_limit_mb,
            n_jobs=self.n_jobs,
            max_rounds=self.max_rounds,
            random_state=self.random_state,
            on_incumbent=_log_errors if self.verbose > 0 else None,
        )
        self.classes_ = self.estimator_.classes_
        self.report_ = report
        self.n_errors_before_ = report.n_errors_before
        self.n_errors_ = report.n_errors
        self.errors_by_budget_ = report.errors_by_budget
        self.operations_ = report.operations
        self.status_ = report.status
        self.lower_bound_ = report.lower_bound
        self.n_states_ = report.n_states
        self.fit_time_ = report.seconds
        return self

    def _unfitted(self, n_classes: int) -> DecisionTreeClassifier:
        if self.estimator is None:
            return DecisionTreeClassifier(
                max_depth=DEFAULT_DEPTH,
                min_samples_leaf=max(1, self.min_samples_leaf),
                min_weight_fraction_leaf=self.min_weight_fraction_leaf,
                monotonic_cst=self.monotonic_cst if n_classes <= 2 else None,  # scikit-learn knows no other
                random_state=self.random_state,
            )
        return clone(self.estimator)

    def predict(self, X: ArrayLike) -> NDArray:
        """Class of each row, ``[n]``.

        Raises:
            NotFittedError: `fit` was not called.
            ValueError: ``X`` has other columns than the training table.
        """
        checked = self._check_features(X)
        return np.asarray(self.estimator_.predict(checked, check_input=False))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class shares of the leaf of each row, ``[n, n_classes]``. Raises as `predict`."""
        checked = self._check_features(X)
        return np.asarray(self.estimator_.predict_proba(checked, check_input=False))

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Share of the fall in impurity that each column brings about, ``[n_features]``, as scikit-learn counts it.

        Raises:
            NotFittedError: `fit` was not called.
        """
        check_is_fitted(self)
        return np.asarray(self.estimator_.feature_importances_)

    def _check_features(self, X: ArrayLike) -> NDArray[np.float32]:
        check_is_fitted(self)
        checked: NDArray[np.float32] = validate_data(
            self, X, reset=False, dtype=np.float32, order="C", ensure_all_finite=self._finite()
        )
        return checked

    def _finite(self) -> bool | Literal["allow-nan"]:
        """How strictly scikit-learn shall refuse NaN: as the tree inside does."""
        return "allow-nan" if get_tags(self).input_tags.allow_nan else True


def _log_errors(errors: float) -> None:
    _log.info("a tree with %g training errors", errors)
