"""The decision tree that is improved: arrays, one entry a node, that nothing changes once they are built.

A row goes left at a cut iff its value is at most the cut's threshold (as in
scikit-learn, C4.5 and PMML).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import one_of
from thrifty.solvers.trees.model.topology import NO_NODE, Topology

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeClassifier

Dtype = Literal["float32", "float64"]

NO_FEATURE = -1
"""Feature of a leaf."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary decision tree for classification, root at node 0.

    Attributes:
        left: Left child, -1 at a leaf; int32 ``[n_nodes]``.
        right: Right child, -1 at a leaf; int32 ``[n_nodes]``.
        feature: Column that a cut tests, -1 at a leaf; int32 ``[n_nodes]``.
        threshold: A row goes left iff its value is ``<= threshold``; float64 ``[n_nodes]``, 0 at a leaf.
        value: Class shares of the training weight at each node, each row adding up to 1; float64
            ``[n_nodes, n_classes]``. A node predicts the first class of the largest share.
        weight: Training weight that reached each node; float64 ``[n_nodes]``.
        n_samples: Training rows that reached each node; int64 ``[n_nodes]``.
        classes: Class names as predicted, ascending; ``[n_classes]``.
        n_features: Columns of the table that the tree reads.
        missing_left: Whether a missing value (NaN) goes left at a cut; bool ``[n_nodes]``. ``None``: the tree does
            not accept missing values.
        feature_names: Column names, or ``None``.
        dtype: Precision in which values are compared with thresholds. scikit-learn rounds the table to ``float32``.

    Raises:
        ValueError: The arrays do not describe a tree; the message names the array and the node.

    Example:
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> tree = Tree.from_sklearn(DecisionTreeClassifier().fit([[0], [1]], ["a", "b"]))
        >>> tree.n_cuts, tree.predict([[0.2], [0.7]]).tolist()
        (1, ['a', 'b'])

    Source:
        section 2 of the paper (arXiv 2510.12726); rounding and missing values as scikit-learn's.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]
    weight: NDArray[np.float64]
    n_samples: NDArray[np.int64]
    classes: NDArray
    n_features: int
    missing_left: NDArray[np.bool_] | None = None
    feature_names: tuple[str, ...] | None = None
    dtype: Dtype = "float64"

    def __post_init__(self) -> None:
        for name, kind in (
            ("left", np.int32),
            ("right", np.int32),
            ("feature", np.int32),
            ("threshold", np.float64),
            ("value", np.float64),
            ("weight", np.float64),
            ("n_samples", np.int64),
            ("missing_left", np.bool_),
        ):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _frozen(name, given, kind))
        object.__setattr__(self, "classes", _frozen("classes", self.classes, None))
        object.__setattr__(self, "n_features", int(self.n_features))
        if self.feature_names is not None:
            object.__setattr__(self, "feature_names", tuple(self.feature_names))
        self._check()

    def _check(self) -> None:
        n_nodes, n_classes = len(self.left), len(self.classes)
        for name, shape in (
            ("right", (n_nodes,)),
            ("feature", (n_nodes,)),
            ("threshold", (n_nodes,)),
            ("value", (n_nodes, n_classes)),
            ("weight", (n_nodes,)),
            ("n_samples", (n_nodes,)),
            ("missing_left", (n_nodes,)),
        ):
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"{name}: expected shape {shape} for {n_nodes} nodes and {n_classes} classes, got {array.shape}"
                )
        if self.classes.ndim != 1 or n_classes == 0 or len(np.unique(self.classes)) != n_classes:
            raise ValueError(f"classes: expected at least one class, each once, got {self.classes!r}")
        one_of("dtype", self.dtype, ("float32", "float64"))
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise ValueError(f"feature_names: expected {self.n_features}, got {len(self.feature_names)}")
        cuts = self.topology.cuts
        _refuse("feature", self.feature, cuts[(self.feature[cuts] < 0) | (self.feature[cuts] >= self.n_features)],
                f"a cut's feature in 0..{self.n_features - 1}")  # fmt: skip
        _refuse("threshold", self.threshold, cuts[~np.isfinite(self.threshold[cuts])], "a finite number")
        off = ~np.isfinite(self.value).all(axis=1) | (self.value < 0).any(axis=1)
        off |= np.abs(self.value.sum(axis=1) - 1) > 1e-6
        _refuse("value", self.value, np.flatnonzero(off), "class shares, not negative, that add up to 1")
        off = ~np.isfinite(self.weight) | (self.weight < 0)
        _refuse("weight", self.weight, np.flatnonzero(off), "a node's weight is finite and not negative")
        _refuse("n_samples", self.n_samples, np.flatnonzero(self.n_samples < 0), "a count is not negative")

    @cached_property
    def topology(self) -> Topology:
        """Parents, depths, walks and leaf numbers."""
        return Topology.from_children(self.left, self.right)

    @property
    def n_nodes(self) -> int:
        """Cuts and leaves."""
        return len(self.left)

    @property
    def n_cuts(self) -> int:
        """Inner nodes (s of the paper)."""
        return self.topology.n_leaves - 1

    @property
    def max_depth(self) -> int:
        """Cuts on the longest way from the root to a leaf."""
        return int(self.topology.depth.max())

    @property
    def labels(self) -> NDArray[np.intp]:
        """Index into ``classes`` that each node predicts; ``[n_nodes]``."""
        labels: NDArray[np.intp] = self.value.argmax(axis=1)
        return labels

    @property
    def counts(self) -> NDArray[np.float64]:
        """Training weight of each class at each node; float64 ``[n_nodes, n_classes]``."""
        return self.value * self.weight[:, None]

    def feature_name(self, j: int) -> str:
        """Name of column ``j``: as given, else ``x[j]``."""
        return self.feature_names[j] if self.feature_names is not None else f"x[{j}]"

    def apply(self, X: ArrayLike) -> NDArray[np.intp]:
        """The leaf (its node number) that each row of ``X`` reaches.

        Args:
            X: Table, ``[n, n_features]``; an array or a data frame.

        Returns:
            Node numbers, ``[n]``.

        Raises:
            ValueError: ``X`` has other columns than the tree, infinite values, or missing ones that the tree does
                not accept.
        """
        from thrifty.solvers.trees.model.validation import check_features  # validation checks against a Tree

        X = check_features(self, X)
        node = np.zeros(len(X), dtype=np.intp)
        moving = np.flatnonzero(self.left[node] != NO_NODE)
        while len(moving):
            at = node[moving]
            x = X[moving, self.feature[at]]
            goes_left = x <= self.threshold[at]
            if self.missing_left is not None:
                goes_left |= np.isnan(x) & self.missing_left[at]
            at = np.where(goes_left, self.left[at], self.right[at])
            node[moving] = at
            moving = moving[self.left[at] != NO_NODE]
        return node

    def predict(self, X: ArrayLike) -> NDArray:
        """Class of each row, ``[n]``. Raises as `apply`."""
        return self.classes[self.labels[self.apply(X)]]

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Class shares of the leaf of each row, float64 ``[n, n_classes]``. Raises as `apply`."""
        return self.value[self.apply(X)]

    def relabel(self, counts: NDArray[np.float64], n_samples: NDArray[np.int64]) -> Tree:
        """The same cuts with every node's statistics and majority taken from new totals.

        A tie keeps the node's old class if that is among the tied, else takes the first of them; an empty node
        takes its parent's shares.

        Args:
            counts: Weight of each class at each node; ``[n_nodes, n_classes]``.
            n_samples: Rows at each node; ``[n_nodes]``.

        Raises:
            ValueError: The root has no weight.
        """
        from thrifty.solvers.trees.model.labels import majority_shares

        weight = counts.sum(axis=1)
        return replace(
            self,
            value=majority_shares(self.topology, counts, old=self.labels),
            weight=weight,
            n_samples=n_samples,
        )

    def is_reasonable(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> bool:
        """Whether no leaf is empty on this table and each predicts one of its most frequent classes.

        Raises:
            ValueError: ``X``, ``y`` or ``sample_weight`` do not fit the tree or each other.
        """
        from thrifty.solvers.trees.model.labels import is_reasonable
        from thrifty.solvers.trees.model.validation import check_table

        _, codes, weight = check_table(self, X, y, sample_weight)
        leaf = self.apply(X)
        counts = np.zeros((self.n_nodes, len(self.classes)))
        np.add.at(counts, (leaf, codes), weight)
        leaves = self.topology.leaves
        return is_reasonable(counts[leaves], self.labels[leaves])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON; `from_dict` takes them back exactly."""
        from thrifty.solvers.trees.model.tree_json import tree_to_dict

        return tree_to_dict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Tree:
        """Rebuild a tree from `to_dict`.

        Raises:
            ValueError: Another schema or version, an unknown or missing key, or arrays that are no tree.
        """
        from thrifty.solvers.trees.model.tree_json import tree_from_dict

        return tree_from_dict(document)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the tree as JSON, and return the path.

        Raises:
            FileExistsError: ``path`` exists and ``force`` is False.
        """
        from thrifty.solvers.trees.model.tree_json import save_tree

        return save_tree(self, path, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tree:
        """Read a tree that `save` wrote; nothing in the file is executed.

        Raises:
            ValueError: The file is no JSON, or no tree.
        """
        from thrifty.solvers.trees.model.tree_json import load_tree

        return load_tree(path)

    @classmethod
    def from_sklearn(cls, classifier: DecisionTreeClassifier) -> Tree:
        """The tree of a fitted classifier; see `sklearn_tree.from_sklearn`."""
        from thrifty.solvers.trees.model.sklearn_tree import from_sklearn

        return from_sklearn(classifier)

    def to_sklearn(self, like: DecisionTreeClassifier | None = None) -> DecisionTreeClassifier:
        """A fitted classifier with this tree; see `sklearn_tree.to_sklearn`."""
        from thrifty.solvers.trees.model.sklearn_tree import to_sklearn

        return to_sklearn(self, like)


def _frozen(name: str, array: ArrayLike | Sequence, kind: type | None) -> NDArray:
    """An own, read-only copy of ``array`` as ``kind``, refusing a cast that changes a value."""
    given = np.asarray(array)
    if kind is None:
        copy = given.copy()
    else:
        try:
            copy = given.astype(kind)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name}: expected {np.dtype(kind)}, got {given.dtype}") from None
        if np.issubdtype(kind, np.integer) and not np.array_equal(copy, given):
            raise ValueError(f"{name}: expected {np.dtype(kind)}, got values that it cannot hold")
    copy.flags.writeable = False
    return copy


def _refuse(name: str, array: NDArray, wrong: NDArray, rule: str) -> None:
    """Raise for the first node in ``wrong``."""
    if len(wrong):
        v = int(wrong[0])
        raise ValueError(f"{name}[{v}]: expected {rule}, got {array[v]}")
