"""What turns one tree into another: tests changed, subtrees replaced by a leaf, subtrees raised.

Any tree that local search and pruning can make of
another is reached from it by a set of them, at most one a node; `edits_between` finds a smallest such set.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.model.topology import NO_NODE
from thrifty.solvers.trees.model.tree import NO_FEATURE, Tree

Kind = Literal["adjust", "exchange", "replace", "raise"]
NO_LABEL = -1
Pair = tuple[int, int]
_Step = tuple[str, tuple[Pair, ...]]
_Cost = tuple[int, int]


@dataclass(frozen=True)
class Edit:
    """One operation on a node of a tree.

    Attributes:
        node: The node, by its number in the tree before.
        kind: ``"adjust"``: another threshold (or missing direction). ``"exchange"``: another column. ``"replace"``:
            the subtree becomes one leaf. ``"raise"``: the subtree of one child takes its place.
        removed: Cuts that go.
        feature: Column tested after an adjustment or exchange, else -1.
        threshold: Its threshold, else 0.
        missing_left: Its missing direction, else ``None``.
        child: The child that is raised, else -1.
        label: Class (index into the tree's) that a leaf put in place of a subtree predicts, else -1.
    """

    node: int
    kind: Kind
    removed: int = 0
    feature: int = NO_FEATURE
    threshold: float = 0.0
    missing_left: bool | None = None
    child: int = NO_NODE
    label: int = NO_LABEL


def edits_between(before: Tree, after: Tree) -> tuple[Edit, ...]:
    """The fewest operations that make ``before`` test what ``after`` tests; classes at leaves are not compared.

    As few tests as possible change, then as few subtrees as possible are replaced or raised (how many cuts go is
    fixed by the two sizes).

    Returns:
        The operations, by their nodes in preorder of ``before``.

    Raises:
        ValueError: The trees read different columns, or ``after`` is no result of such operations.
    """
    if (before.n_features, before.feature_names) != (after.n_features, after.feature_names):
        raise ValueError(
            f"after: expected a tree of the same columns, got {_columns(before)} before, {_columns(after)} after"
        )
    if (before.missing_left is None) != (after.missing_left is None):
        raise ValueError(
            "after: expected a tree that treats missing values as the tree before, got one of the other kind"
        )
    steps = _alignment(before, after)
    if steps is None:
        raise ValueError(
            f"after: expected a tree that can be made of the one before ({before.n_cuts} cuts) by changing tests, "
            f"replacing subtrees by leaves, or raising subtrees, got one of {after.n_cuts} cuts that cannot"
        )
    edits: list[Edit] = []
    pending = [(0, 0)]
    while pending:
        v, w = pending.pop()
        action, rest = steps[v, w]
        pending += reversed(rest)
        size = int(before.topology.subtree_cuts[v])
        if action == "replace":
            edits.append(Edit(v, "replace", removed=size, label=int(after.labels[w])))
        elif action == "raise":
            child = rest[0][0]
            edits.append(Edit(v, "raise", removed=size - int(before.topology.subtree_cuts[child]), child=child))
        elif action == "change":
            kind: Kind = "adjust" if before.feature[v] == after.feature[w] else "exchange"
            side = None if after.missing_left is None else bool(after.missing_left[w])
            edits.append(Edit(v, kind, 0, int(after.feature[w]), float(after.threshold[w]), side))
    return tuple(edits)


def apply_edits(tree: Tree, edits: Collection[Edit]) -> Tree:
    """The tree after some operations; nodes that stay keep their statistics, and are numbered anew in preorder.

    Args:
        tree: The tree before.
        edits: At most one a node. Those below a subtree that goes have no effect.
    """
    by_node = {edit.node: edit for edit in edits}
    kept: list[int] = []
    left: list[int] = []
    right: list[int] = []
    pending: list[tuple[int, int, bool]] = [(0, NO_NODE, False)]
    while pending:
        v, parent, is_left = pending.pop()
        while v in by_node and by_node[v].kind == "raise":
            v = by_node[v].child
        node = len(kept)
        kept.append(v)
        left.append(NO_NODE)
        right.append(NO_NODE)
        if parent != NO_NODE:
            (left if is_left else right)[parent] = node
        replaced = v in by_node and by_node[v].kind == "replace"
        if tree.left[v] != NO_NODE and not replaced:
            pending += [(int(tree.right[v]), node, False), (int(tree.left[v]), node, True)]

    leaf = np.array(left) == NO_NODE
    feature, threshold = np.where(leaf, NO_FEATURE, tree.feature[kept]), np.where(leaf, 0.0, tree.threshold[kept])
    missing_left = None if tree.missing_left is None else tree.missing_left[kept] & ~leaf
    for node, v in enumerate(kept):
        edit = by_node.get(v)
        if edit is not None and edit.kind in ("adjust", "exchange"):
            feature[node], threshold[node] = edit.feature, edit.threshold
            if missing_left is not None:
                missing_left[node] = bool(edit.missing_left)
    return replace(
        tree,
        left=np.array(left),
        right=np.array(right),
        feature=feature,
        threshold=threshold,
        value=tree.value[kept],
        weight=tree.weight[kept],
        n_samples=tree.n_samples[kept],
        missing_left=missing_left,
    )


def _alignment(before: Tree, after: Tree) -> dict[Pair, _Step] | None:
    """How each pair (node before, node after) that can correspond does so at the least cost; ``None`` if none can.

    A dynamic programme over pairs from the roots down, kept on an explicit stack. Where both subtrees have equally
    many cuts nothing was removed, so their shapes must agree: trees of one shape take one pass.
    """
    best: dict[Pair, tuple[_Cost, _Step] | None] = {}
    pending: list[Pair] = [(0, 0)]
    while pending:
        pair = pending[-1]
        if pair in best:
            pending.pop()
            continue
        steps = _steps(before, after, *pair)
        lacking = [child for _, step in steps for child in step[1] if child not in best]
        if lacking:
            pending += lacking
            continue
        best[pair] = None
        for (changes, prunings), step in steps:
            below = [best[child] for child in step[1]]
            costs = [found[0] for found in below if found is not None]
            if len(costs) < len(below):
                continue
            cost = (changes + sum(c[0] for c in costs), prunings + sum(c[1] for c in costs))
            so_far = best[pair]
            if so_far is None or cost < so_far[0]:
                best[pair] = (cost, step)
        pending.pop()
    if best[0, 0] is None:
        return None
    return {pair: found[1] for pair, found in best.items() if found is not None}


def _steps(before: Tree, after: Tree, v: int, w: int) -> list[tuple[_Cost, _Step]]:
    """What node ``v`` may have become for node ``w`` to stand in its place: own cost, and the pairs that remain."""
    size, wanted = before.topology.subtree_cuts[v], after.topology.subtree_cuts[w]
    if size < wanted:
        return []
    if wanted == 0:
        return [((0, 0), ("keep", ()))] if size == 0 else [((0, 1), ("replace", ()))]
    left, right = int(before.left[v]), int(before.right[v])
    differs = not _same_test(before, v, after, w)
    pairs = ((left, int(after.left[w])), (right, int(after.right[w])))
    steps: list[tuple[_Cost, _Step]] = [((int(differs), 0), ("change" if differs else "keep", pairs))]
    if size > wanted:
        steps += [((0, 1), ("raise", ((child, w),))) for child in (left, right)]
    return steps


def _same_test(before: Tree, v: int, after: Tree, w: int) -> bool:
    return bool(
        before.feature[v] == after.feature[w]
        and before.threshold[v] == after.threshold[w]
        and (
            before.missing_left is None or after.missing_left is None or before.missing_left[v] == after.missing_left[w]
        )
    )


def _columns(tree: Tree) -> str:
    return f"{tree.n_features} features" if tree.feature_names is None else str(list(tree.feature_names[:10]))


def majority_errors(tree: Tree, X: NDArray[np.float64], codes: NDArray[np.int32], weight: NDArray[np.float64]) -> float:
    """Weight of the rows outside the majority class of their leaf.

    Args:
        tree: A tree.
        X: A checked table, ``[n, n_features]``.
        codes: Index of each row's class, ``[n]``.
        weight: Weight of each row, ``[n]``.
    """
    counts = np.zeros((tree.n_nodes, len(tree.classes)))
    np.add.at(counts, (tree.apply(X), codes), weight)
    return float((counts.sum(axis=1) - counts.max(axis=1)).sum())
