"""Tree ensembles as features, one 0/1 column a leaf: with a logistic head they are a model with a certificate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted


class LeafEmbedding(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn rows into indicators of the leaves that they reach.

    Args:
        estimator: A tree, forest or gradient-boosted ensemble of scikit-learn with ``apply``; cloned and fitted by
            :meth:`fit`.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.ensemble import GradientBoostingClassifier
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> from thrifty.solvers.ellice import ElliCE, LeafEmbedding
        >>> X, y = load_breast_cancer(return_X_y=True)
        >>> trees = GradientBoostingClassifier(n_estimators=5, max_depth=2, random_state=0)
        >>> model = make_pipeline(LeafEmbedding(trees), LogisticRegression()).fit(X, y)
        >>> result = ElliCE(model, epsilon=0.001).fit(X, y).explain(X[:1])
        >>> result.status[0]
        'optimal'

    Source:
        Facebook's boosted trees as features (He et al., 2014); the paper's section 3 allows any frozen h.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: ArrayLike, y: ArrayLike) -> LeafEmbedding:
        """Fit the trees, and learn which leaves there are.

        Raises:
            TypeError: The estimator cannot tell in which leaves a row ends.
        """
        if not hasattr(self.estimator, "apply"):
            raise TypeError(f"estimator: expected trees with apply(X), got a {type(self.estimator).__name__}")
        self.estimator_ = clone(self.estimator).fit(X, y)
        self.encoder_ = OneHotEncoder(handle_unknown="ignore").fit(self._leaves(X))
        return self

    def transform(self, X: ArrayLike) -> Any:
        """Return a sparse 0/1 matrix ``[n, leaves]``."""
        check_is_fitted(self, "encoder_")
        return self.encoder_.transform(self._leaves(X))

    def _leaves(self, X: ArrayLike) -> np.ndarray:
        return np.asarray(self.estimator_.apply(X)).reshape(len(np.asarray(X)), -1)
