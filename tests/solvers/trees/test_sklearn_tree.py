"""A tree that went through ours is one that scikit-learn cannot tell from its own."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, export_text, plot_tree
from tree_instances import chain

from thrifty.solvers.trees import Tree, improve_tree

TABLES = {"iris": load_iris, "wine": load_wine, "breast_cancer": load_breast_cancer}


@pytest.fixture(params=["iris", "wine", "breast_cancer", "weighted", "missing", "best-first", "names"])
def fitted(request):
    X, y = TABLES.get(request.param, load_wine)(return_X_y=True)
    rng = np.random.default_rng(0)
    weight = None
    settings = {"max_depth": 4, "criterion": "entropy" if request.param == "wine" else "gini"}
    if request.param == "weighted":
        weight = rng.random(len(y))
    if request.param == "missing":
        X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    if request.param == "best-first":
        settings = {"max_leaf_nodes": 7}
    if request.param == "names":
        y = np.array(["a", "b", "c"])[y]
    tree = DecisionTreeClassifier(random_state=0, **settings).fit(X, y, sample_weight=weight)
    return tree, X, y, weight


def test_round_trip_is_the_same_tree(fitted):
    tree, X, *_ = fitted
    again = Tree.from_sklearn(tree).to_sklearn(like=tree)
    was, now = tree.tree_.__getstate__(), again.tree_.__getstate__()
    assert again is not tree
    assert (was["values"] == now["values"]).all()
    assert was["max_depth"] == now["max_depth"]
    for name in was["nodes"].dtype.names:
        exact = name != "impurity"
        same = np.array_equal if exact else np.allclose
        assert same(was["nodes"][name], now["nodes"][name]), name
    assert (tree.predict_proba(X) == again.predict_proba(X)).all()
    assert (Tree.from_sklearn(tree).predict_proba(X) == tree.predict_proba(X)).all()
    assert (Tree.from_sklearn(tree).predict(X) == tree.predict(X)).all()
    assert (Tree.from_sklearn(tree).apply(X) == tree.apply(X)).all()
    assert np.allclose(tree.feature_importances_, again.feature_importances_)
    assert export_text(tree, show_weights=True) == export_text(again, show_weights=True)


def test_relabelling_on_the_training_table_changes_nothing(fitted):
    tree, X, y, weight = fitted
    again, report = improve_tree(tree, X, y, k=0, sample_weight=weight)
    assert report.is_reasonable
    assert report.n_errors_before == pytest.approx(report.n_errors)
    assert np.allclose(tree.tree_.value, again.tree_.value)
    assert np.allclose(tree.tree_.impurity, again.tree_.impurity)
    assert (tree.tree_.n_node_samples == again.tree_.n_node_samples).all()
    assert np.allclose(tree.tree_.weighted_n_node_samples, again.tree_.weighted_n_node_samples)


def test_an_improved_tree_has_every_statistic_of_a_fitted_one():
    X, y = make_classification(400, 6, n_informative=4, random_state=1)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)
    better, report = improve_tree(tree, X, y, mode="hillclimb")
    assert report.operations
    state = better.tree_
    path = better.decision_path(X).toarray()
    assert (path.sum(axis=0) == state.n_node_samples).all()
    assert path[np.arange(len(X)), better.apply(X)].all()
    for v in range(state.node_count):
        share = np.bincount(y[path[:, v] == 1], minlength=2) / max(1, path[:, v].sum())
        assert np.allclose(state.value[v, 0], share)
        assert state.impurity[v] == pytest.approx(1 - (share**2).sum())
    assert better.feature_importances_.sum() == pytest.approx(1)
    assert better.get_depth() == tree.get_depth()
    assert better.get_n_leaves() == tree.get_n_leaves()
    assert export_text(better).count("class:") == better.get_n_leaves()
    assert (pickle.loads(pickle.dumps(better)).predict(X) == better.predict(X)).all()
    assert (clone(better).fit(X, y).predict(X) == tree.predict(X)).all()
    assert len(better.cost_complexity_pruning_path(X, y).ccp_alphas) > 1
    assert (tree.tree_.threshold != better.tree_.threshold).any()


def test_an_improved_tree_can_be_drawn():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    X, y = load_iris(return_X_y=True)
    better, _ = improve_tree(DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y), X, y)
    assert plot_tree(better)
    pyplot.close("all")


def test_without_a_model_to_follow():
    X, y = load_iris(return_X_y=True, as_frame=True)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    alone = Tree.from_dict(Tree.from_sklearn(tree).to_dict()).to_sklearn()
    assert (alone.predict_proba(X) == tree.predict_proba(X)).all()
    assert list(alone.feature_names_in_) == list(X.columns)


def test_what_cannot_be_converted_is_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(TypeError, match="DecisionTreeRegressor"):
        Tree.from_sklearn(DecisionTreeRegressor().fit(X, y))
    with pytest.raises(ValueError, match="one output .*got 2"):
        Tree.from_sklearn(DecisionTreeClassifier().fit(X, np.c_[y, y]))
    with pytest.raises(NotFittedError):
        Tree.from_sklearn(DecisionTreeClassifier())
    with pytest.raises(ValueError, match="float32"):
        chain(2, 0, 0.0).to_sklearn()
    with pytest.raises(ValueError, match="like: expected .*got 4"):
        chain(2, 0, 0.0, dtype="float32").to_sklearn(like=DecisionTreeClassifier().fit(X, y))
    assert Tree.from_sklearn(ExtraTreeClassifier(random_state=0).fit(X, y)).n_cuts > 0
