"""To and from scikit-learn's ``DecisionTreeClassifier``, every statistic of every node included.

scikit-learn has no public way to edit a fitted tree. What is here builds a fresh ``sklearn.tree._tree.Tree`` through
``__setstate__``, the way scikit-learn itself unpickles one, so that prediction, ``decision_path``, ``export_text``,
``plot_tree``, ``feature_importances_``, pickling and cloning all see a tree like any other.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier
from sklearn.tree._tree import Tree as SklearnTree
from sklearn.utils.validation import check_is_fitted

from thrifty.solvers.trees.model.topology import NO_NODE
from thrifty.solvers.trees.model.tree import NO_FEATURE, Tree

_SKLEARN_LEAF = -2  # what scikit-learn writes as the feature and the threshold of a leaf


def from_sklearn(classifier: DecisionTreeClassifier) -> Tree:
    """The tree of a fitted classifier; node numbers stay the same.

    Args:
        classifier: A fitted ``DecisionTreeClassifier`` (or ``ExtraTreeClassifier``) with one output.

    Raises:
        TypeError: It is no decision-tree classifier (a regressor, say).
        ValueError: It predicts several outputs.
        NotFittedError: It is not fitted.
    """
    if not isinstance(classifier, DecisionTreeClassifier):
        raise TypeError(f"tree: expected a DecisionTreeClassifier, got a {type(classifier).__name__}")
    check_is_fitted(classifier, "tree_")
    if classifier.n_outputs_ != 1:
        raise ValueError(f"tree: expected one output (fit a tree for each), got {classifier.n_outputs_}")
    state = classifier.tree_.__getstate__()
    nodes = state["nodes"]
    cut = nodes["left_child"] != NO_NODE
    names = getattr(classifier, "feature_names_in_", None)
    accepts_missing = classifier.__sklearn_tags__().input_tags.allow_nan
    return Tree(
        left=nodes["left_child"],
        right=nodes["right_child"],
        feature=np.where(cut, nodes["feature"], NO_FEATURE),
        threshold=np.where(cut, nodes["threshold"], 0.0),
        value=state["values"][:, 0, :],
        weight=nodes["weighted_n_node_samples"],
        n_samples=nodes["n_node_samples"],
        classes=classifier.classes_,
        n_features=int(classifier.n_features_in_),
        missing_left=nodes["missing_go_to_left"].astype(bool) if accepts_missing else None,
        feature_names=None if names is None else tuple(names),
        dtype="float32",
    )


def to_sklearn(tree: Tree, like: DecisionTreeClassifier | None = None) -> DecisionTreeClassifier:
    """A fitted classifier that predicts as ``tree`` does.

    Args:
        tree: A tree that compares in float32, as scikit-learn does.
        like: The fitted classifier that the tree came from: parameters and fitted attributes are taken over, the
            tree is not, and the classifier itself stays as it is. ``None``: default parameters.

    Raises:
        ValueError: ``tree`` compares in float64, which scikit-learn cannot; or ``like`` has other features or classes.
    """
    if tree.dtype != "float32":
        raise ValueError(
            "tree: expected one that compares in float32, as scikit-learn does, got float64, so that some rows could "
            "change sides; if that is acceptable, convert dataclasses.replace(tree, dtype='float32')"
        )
    if like is None:
        fitted = DecisionTreeClassifier()
        fitted.n_features_in_ = tree.n_features
        fitted.max_features_ = tree.n_features
        fitted.n_outputs_ = 1
        if tree.feature_names is not None:
            fitted.feature_names_in_ = np.array(tree.feature_names, dtype=object)
        fitted.classes_ = tree.classes.copy()
        fitted.n_classes_ = np.int64(len(tree.classes))
    else:
        if like.n_features_in_ != tree.n_features or not np.array_equal(like.classes_, tree.classes):
            raise ValueError(
                f"like: expected {tree.n_features} features and classes {tree.classes!r}, as the tree has, got "
                f"{like.n_features_in_} and {like.classes_!r}"
            )
        fitted = copy.copy(like)
    fitted.tree_ = _sklearn_tree(tree, fitted.criterion)
    return fitted


def _sklearn_tree(tree: Tree, criterion: str) -> SklearnTree:
    cut = tree.left != NO_NODE
    built = SklearnTree(tree.n_features, np.array([len(tree.classes)], dtype=np.intp), 1)
    nodes = np.zeros(tree.n_nodes, dtype=built.__getstate__()["nodes"].dtype)
    nodes["left_child"] = tree.left
    nodes["right_child"] = tree.right
    nodes["feature"] = np.where(cut, tree.feature, _SKLEARN_LEAF)
    nodes["threshold"] = np.where(cut, tree.threshold, _SKLEARN_LEAF)
    nodes["impurity"] = impurity(tree.value, criterion)
    nodes["n_node_samples"] = tree.n_samples
    nodes["weighted_n_node_samples"] = tree.weight
    if tree.missing_left is not None:
        nodes["missing_go_to_left"] = tree.missing_left
    built.__setstate__(
        {
            "max_depth": tree.max_depth,
            "node_count": tree.n_nodes,
            "nodes": nodes,
            "values": np.ascontiguousarray(tree.value[:, None, :]),
        }
    )
    return built


def impurity(shares: NDArray[np.float64], criterion: str) -> NDArray[np.float64]:
    """Gini impurity, or entropy in bits, of rows of class shares.

    Args:
        shares: ``[n, n_classes]``, each row adding up to 1.
        criterion: ``"gini"``, ``"entropy"`` or ``"log_loss"`` (the same as entropy), as in scikit-learn.

    Returns:
        float64 ``[n]``.
    """
    if criterion == "gini":
        mixed: NDArray[np.float64] = 1.0 - np.square(shares).sum(axis=1)
    else:
        logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
        mixed = np.abs((shares * logs).sum(axis=1))
    return mixed
