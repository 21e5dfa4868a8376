"""The one-standard-error rule, inside scikit-learn's searches."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees import TreeLocalSearchClassifier
from thrifty.solvers.trees.selection import fewest_changes


def results(ks, folds):
    """``cv_results_`` with one row of scores a candidate."""
    folds = np.array(folds, dtype=float)
    return {
        "params": [{"tree__k": k} for k in ks],
        "mean_test_score": folds.mean(axis=1),
        **{f"split{i}_test_score": scores for i, scores in enumerate(folds.T)},
    }


@pytest.mark.parametrize(
    ("ks", "folds", "chosen"),
    [
        ([0, 1, 2], [[0.80, 0.80], [0.89, 0.87], [0.90, 0.88]], 1),  # standard error of k=2: 0.01
        ([0, 1, 2], [[0.80, 0.80], [0.87, 0.87], [0.90, 0.88]], 2),
        ([2, 1, 0], [[0.90, 0.88], [0.89, 0.88], [0.88, 0.885]], 2),
        ([1, 1, 2], [[0.88, 0.88], [0.885, 0.885], [0.90, 0.88]], 1),  # of two with k=1 the better
        ([0, 1], [[np.nan, 0.9], [0.5, 0.5]], 1),
        ([0, 1], [[0.9], [0.91]], 1),  # one split: no standard error
    ],
)
def test_the_fewest_within_one_standard_error_of_the_best(ks, folds, chosen):
    assert fewest_changes(results(ks, folds)) == chosen


def test_inside_a_search_over_a_pipeline():
    X, y = load_breast_cancer(return_X_y=True)
    tree = TreeLocalSearchClassifier(DecisionTreeClassifier(max_depth=3, random_state=0))
    search = GridSearchCV(
        make_pipeline(StandardScaler(), tree), {"treelocalsearchclassifier__k": [0, 1]}, cv=3, refit=fewest_changes
    ).fit(X, y)
    assert search.best_params_["treelocalsearchclassifier__k"] in (0, 1)
    assert search.predict(X).shape == y.shape


def test_other_searches_are_refused():
    with pytest.raises(ValueError, match="got no k"):
        fewest_changes({"params": [{"depth": 3}], "mean_test_score": [1.0]})
    with pytest.raises(ValueError, match="several metrics"):
        fewest_changes({"params": [{"k": 3}], "mean_test_f1": [1.0]})
    for wrong in ({}, None, [1]):
        with pytest.raises(ValueError, match="cv_results: expected the cv_results_ of a search"):
            fewest_changes(wrong)
    for ks in ([{"k": 1}, {}], [{"k": 1}, {"k": "a"}], [{"k": 1}, {"k": 1.5}]):
        with pytest.raises(ValueError, match="cv_results: expected a whole number k in each candidate"):
            fewest_changes({"params": ks, "mean_test_score": [1.0, 1.0]})
    with pytest.raises(ValueError, match="scores of NaN alone"):
        fewest_changes({"params": [{"k": 1}], "mean_test_score": [np.nan]})
