"""Reading a tree that WEKA's J48 (C4.5) has printed.

J48 prints one line a branch, indented by ``|`` and three blanks a level, with the class and, in brackets, the
training weight of a leaf and how much of it is misclassified::

    petal width <= 0.6: setosa (50.0)
    petal width > 0.6
    |   colour = red: versicolor (48.0/1.0)
    |   colour != red: virginica (52.0/2.0)

Numbers have at most six decimals, unless the tree was made with ``-B``, which prints them whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.model.topology import NO_NODE, Topology
from thrifty.solvers.trees.model.tree import NO_FEATURE, Tree
from thrifty.solvers.trees.model.weka_text import Branch, read_branches, siblings

_ROUNDING = 0.005  # weights are printed with two decimals


def tree_from_weka(
    text: str, *, feature_names: Sequence[str] | None = None, classes: Iterable[Any] | None = None
) -> Tree:
    r"""The tree in the printed output of WEKA's J48.

    A nominal test becomes a cut on a 0/1 column named ``attribute=value``, as one-hot tables have it: rows with that
    value go right. A test with a branch for each of several values becomes a chain of such cuts, in the printed
    order, whose last branch needs none; so the tree has more cuts than WEKA's (``-B`` makes it print binary tests).

    J48 sends a row with a missing value down both branches, in part; this tree sends it, whole, down the branch that
    held more training weight. The text does not tell the classes of the misclassified rows of a leaf: with more than
    two classes their weight is spread evenly over the others. ``improve_tree`` counts all anew.

    Args:
        text: What J48 printed: the tree alone, or the whole output around it.
        feature_names: Columns of the table that the tree shall read, in order. ``None``: those that the tree tests,
            in the order in which it does.
        classes: Class names as the table holds them; the text's are matched with them by how they print (``1`` with
            1 and 1.0). ``None``: strings, taken from the confusion matrix if it is there, else from the leaves.

    Returns:
        The tree, with the weights of the rows in its leaves.

    Raises:
        ValueError: The text is not such a tree, or cut off; it tests a column or names a class that is not among
            those given; or it misclassifies rows and shows one class only. The message names the line.

    Example:
        >>> from thrifty.solvers.trees.model.weka import tree_from_weka
        >>> tree = tree_from_weka("width <= 0.6: a (50.0)\nwidth > 0.6: b (100.0/50.0)")
        >>> tree.n_cuts, tree.predict([[0.2], [0.9]]).tolist()
        (1, ['a', 'b'])

    Source:
        ``weka.classifiers.trees.j48.ClassifierTree.dumpTree`` and ``Distribution.dumpLabel`` of WEKA 3.8 and 3.9.
    """
    known = None if classes is None else np.unique(np.asarray(list(classes)))
    lines, printed = read_branches(text, None if known is None else [str(name) for name in known])
    nodes = _binary_nodes(lines)
    names = list(dict.fromkeys(node.feature for node in nodes if node.feature))
    columns = tuple(feature_names) if feature_names is not None else tuple(names or ["x"])
    if strange := [name for name in names if name not in columns]:
        raise ValueError(
            f"feature_names: expected every column that the tree tests, got {list(columns[:20])} without {strange[:5]}"
        )
    if known is None:
        known = np.unique(np.array([*printed, *(node.label for node in nodes if node.leaf)]))
    return _assemble(nodes, columns, known)


@dataclass
class _Node:
    """A node of the binary tree; ``leaf`` is the line that ends in it."""

    feature: str = ""
    threshold: float = 0.0
    left: int = NO_NODE
    right: int = NO_NODE
    leaf: Branch | None = None

    @property
    def label(self) -> str:
        return (self.leaf.label or "") if self.leaf else ""


def _binary_nodes(lines: list[Branch]) -> list[_Node]:
    """The tree as binary nodes, root first, each group of sibling branches turned into one cut or a chain."""
    children = siblings(lines)
    nodes: list[_Node] = []
    pending: list[tuple[list[Branch], int, bool]] = [(children.get(0, lines), NO_NODE, False)]
    while pending:
        group, parent, is_left = pending.pop()
        while len(group) == 1 and group[0].label is None:
            group = children[group[0].number]
        node = len(nodes)
        nodes.append(_Node())
        if parent != NO_NODE:
            if is_left:
                nodes[parent].left = node
            else:
                nodes[parent].right = node
        if len(group) == 1:
            nodes[node].leaf = group[0]
            continue
        nodes[node].feature, nodes[node].threshold, left, right = _cut(group)
        pending += [(right, node, False), (left, node, True)]
    return nodes


def _cut(group: list[Branch]) -> tuple[str, float, list[Branch], list[Branch]]:
    """Column, threshold, and what goes left and right of a group of at least two branches."""
    first = group[0]
    if first.test == "<=":
        try:
            threshold = float(first.value)
        except ValueError:
            raise ValueError(f"text, line {first.number}: expected a number, got {first.value!r}") from None
        return first.name, threshold, group[:1], group[1:]
    return f"{first.name}={first.value}", 0.5, group[1:], group[:1]


def _assemble(nodes: list[_Node], columns: tuple[str, ...], classes: NDArray) -> Tree:
    left = np.array([node.left for node in nodes], dtype=np.int32)
    right = np.array([node.right for node in nodes], dtype=np.int32)
    topology = Topology.from_children(left, right)
    at_leaves = np.zeros((topology.n_leaves, len(classes)))
    labels = []
    for row, v in enumerate(topology.leaves):
        line = nodes[v].leaf
        assert line is not None
        labels.append(_class_index(line, classes))
        at_leaves[row] = _leaf_counts(line, labels[-1], len(classes))
    counts = topology.sum_up(at_leaves)
    weight = counts.sum(axis=1)
    value = np.full_like(counts, 1 / len(classes))
    np.divide(counts, weight[:, None], out=value, where=weight[:, None] > 0)
    for v, label in zip(topology.leaves, labels, strict=True):
        if weight[v] == 0:
            value[v] = np.eye(len(classes))[label]
        elif value[v].argmax() != label:  # a tie: the printed class is made the first of the largest
            value[v, label] = np.nextafter(value[v].max(), np.inf)
    cut = left != NO_NODE
    return Tree(
        left=left,
        right=right,
        feature=np.array([columns.index(node.feature) if node.feature else NO_FEATURE for node in nodes]),
        threshold=np.array([node.threshold for node in nodes]),
        value=value,
        weight=weight,
        n_samples=np.rint(weight).astype(np.int64),
        classes=classes,
        n_features=len(columns),
        missing_left=cut & (weight[left] >= weight[right]),
        feature_names=columns,
        dtype="float64",
    )


def _class_index(line: Branch, classes: NDArray) -> int:
    for index, name in enumerate(classes.tolist()):
        if line.label == str(name) or (not isinstance(name, str) and _number(line.label) == name):
            return index
    raise ValueError(
        f"text, line {line.number}: expected one of the classes {classes.tolist()[:20]}, got {line.label!r}"
    )


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _leaf_counts(line: Branch, label: int, n_classes: int) -> NDArray[np.float64]:
    """Weight of each class at a leaf, as far as its line tells."""
    if n_classes == 1 and line.errors > 0:
        raise ValueError(
            f"classes: expected those of the tree, since line {line.number} has errors and the text one class only"
        )
    right, others = line.weight - line.errors, line.errors / max(n_classes - 1, 1)
    if right < others - 2 * _ROUNDING:
        raise ValueError(
            f"text, line {line.number}: expected its majority's class, got {line.errors} errors of {line.weight}"
        )
    counts = np.full(n_classes, min(others, right))
    counts[label] = right
    return counts
