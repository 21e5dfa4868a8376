"""The estimator is a scikit-learn estimator in every way that scikit-learn tests, and in those its users rely on."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, export_text
from sklearn.utils.estimator_checks import parametrize_with_checks

from thrifty.solvers.trees import TreeLocalSearchClassifier


@parametrize_with_checks(
    [
        TreeLocalSearchClassifier(),
        TreeLocalSearchClassifier(mode="hillclimb"),
        TreeLocalSearchClassifier(operation="adjust", secondary="margin"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture
def iris():
    return load_iris(return_X_y=True)


def test_errors_reported_are_the_errors_predicted(iris):
    X, y = iris
    model = TreeLocalSearchClassifier(DecisionTreeClassifier(max_depth=2, criterion="entropy"), mode="hillclimb")
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model.fit(X, names)
    assert model.n_errors_ == (model.predict(X) != names).sum() == (model.estimator_.predict(X) != names).sum()
    assert model.n_errors_ <= model.n_errors_before_
    assert model.status_ == "local optimum"


def test_grid_search_over_k_inside_a_pipeline(iris):
    X, y = iris
    pipeline = make_pipeline(StandardScaler(), TreeLocalSearchClassifier(random_state=0))
    search = GridSearchCV(pipeline, {"treelocalsearchclassifier__k": [0, 1]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert (pickle.loads(pickle.dumps(search)).predict(X) == search.predict(X)).all()
    assert clone(search.best_estimator_).fit(X, y).score(X, y) > 0.9


def test_prefit_improves_the_tree_given_and_leaves_it_alone(iris):
    X, y = iris
    tree = DecisionTreeClassifier(max_depth=2, max_features=1, random_state=3).fit(X, y)
    before = tree.tree_.threshold.copy(), tree.tree_.feature.copy(), tree.predict_proba(X)
    model = TreeLocalSearchClassifier(tree, prefit=True).fit(X, y)
    assert model.n_errors_ < model.n_errors_before_ == (tree.predict(X) != y).sum()
    assert (tree.tree_.threshold == before[0]).all()
    assert (tree.tree_.feature == before[1]).all()
    assert (tree.predict_proba(X) == before[2]).all()
    with pytest.raises(NotFittedError):
        TreeLocalSearchClassifier(DecisionTreeClassifier(), prefit=True).fit(X, y)


def test_data_frame_names_reach_the_tree_and_are_checked():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = TreeLocalSearchClassifier(features=["petal length (cm)"], k=1).fit(X, y)
    assert "petal" in export_text(model.estimator_, feature_names=list(model.estimator_.feature_names_in_))
    assert all(change.feature == list(X.columns).index("petal length (cm)") for change in model.operations_)
    assert list(model.feature_names_in_) == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"petal length (cm)": "other"}))


def test_missing_values_pass_where_the_tree_takes_them(iris):
    X, y = iris
    X = X.copy()
    X[::5, 2] = np.nan
    model = TreeLocalSearchClassifier(mode="hillclimb", random_state=0).fit(X, y)
    assert model.n_errors_ == (model.predict(X) != y).sum()


def test_importances_follow_the_improved_tree(iris):
    X, y = iris
    model = TreeLocalSearchClassifier(DecisionTreeClassifier(max_depth=2, max_features=1, random_state=3)).fit(X, y)
    grown = clone(model.estimator).fit(X, y)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_[model.operations_[0].feature] > 0
    assert (model.feature_importances_ != grown.feature_importances_).any()
    assert RFE(model, n_features_to_select=2).fit(X, y).support_.sum() == 2


def test_class_weight_weighs_the_errors(iris):
    X, y = iris
    tree = DecisionTreeClassifier(max_depth=1, random_state=0)
    model = TreeLocalSearchClassifier(tree, class_weight={0: 1, 1: 1, 2: 5}).fit(X, y)
    assert model.n_errors_ == ((model.predict(X) != y) * np.where(y == 2, 5, 1)).sum()
    weighted = TreeLocalSearchClassifier(tree).fit(X, y, sample_weight=np.where(y == 2, 5.0, 1.0))
    assert (model.predict_proba(X) == weighted.predict_proba(X)).all()


@pytest.mark.parametrize("wrong", [DecisionTreeRegressor(), 3, "a tree"])
@pytest.mark.parametrize("prefit", [False, True])
def test_what_is_no_tree_classifier_is_refused(iris, wrong, prefit):
    with pytest.raises(TypeError, match=f"estimator: expected a DecisionTreeClassifier, got a {type(wrong).__name__}"):
        TreeLocalSearchClassifier(wrong, prefit=prefit).fit(*iris)


@pytest.mark.parametrize("weight", [-1, np.nan, np.inf])
def test_class_weights_that_are_none_are_refused_by_name(iris, weight):
    with pytest.raises(ValueError, match="class_weight: expected finite weights of at least 0"):
        TreeLocalSearchClassifier(class_weight={0: weight}).fit(*iris)


def test_frame_and_array_give_the_same_tree(iris):
    X, y = iris
    frame = pd.DataFrame(X, columns=list("abcd"))
    by_array, by_frame = (TreeLocalSearchClassifier(random_state=0).fit(table, y) for table in (X, frame))
    assert (by_array.predict_proba(X) == by_frame.predict_proba(frame)).all()


def test_monotone_constraints_reach_the_search_with_three_classes_too():
    X, y = load_iris(return_X_y=True)
    model = TreeLocalSearchClassifier(monotonic_cst=[0, 0, 1, 1], random_state=0).fit(X, y)
    rising = X[0] + np.linspace(0, 6, 50)[:, None] * [0, 0, 1, 1]
    assert (np.diff(model.predict(rising)) >= 0).all()
