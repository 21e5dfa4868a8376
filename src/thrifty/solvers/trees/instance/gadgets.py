"""Instances that are hard by construction: hitting set as threshold adjustment (Theorem 5.3 of the paper).

A hitting set takes one element of each of several sets. Each element becomes a 0/1 feature with a cut that sends
every row right; adjusting the cut to "0 goes left" takes all the sets that hold the element out of the way. So the
fewest adjustments that leave no error are a smallest hitting set, and the problem is as hard.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from thrifty._common.checks import whole
from thrifty.solvers.trees.model.tree import NO_FEATURE, Tree

BELOW_ALL = -1.0
"""Threshold of every cut: below 0 and 1. (The paper starts at 0, at which rows with a 0 would go left already.)"""


def hitting_set_instance(
    sets: Sequence[Collection[int]], n_elements: int | None = None
) -> tuple[Tree, NDArray[np.float64], NDArray[np.str_]]:
    """A tree and a table of which k adjusted thresholds make no error iff k elements hit all sets.

    Args:
        sets: Each a non-empty collection of elements ``0 .. n_elements - 1``.
        n_elements: Size of the universe. ``None``: one more than the largest element.

    Returns:
        The tree, a chain of ``n_elements`` cuts that all send everything right; the table, float64
        ``[2 * n_sets + 1, n_elements]``; and the classes: ``"red"``, one row a set, 0 at its elements and 1 elsewhere,
        and ``"blue"``, one row more than there are sets, 1 everywhere.

    Raises:
        ValueError: There is no set, one is empty, or an element is none of the universe.

    Example:
        >>> from thrifty.solvers.trees import improve_tree
        >>> from thrifty.solvers.trees.instance.gadgets import hitting_set_instance
        >>> tree, X, y = hitting_set_instance([{0, 1}, {1, 2}, {3}])
        >>> [improve_tree(tree, X, y, operation="adjust", k=k)[1].n_errors for k in (0, 1, 2)]
        [3, 1, 0]

    Source:
        Theorem 5.3 of the paper, which starts its thresholds at 0 (see the module).
    """
    if len(sets) == 0:
        raise ValueError("sets: expected at least one set to hit, got none")
    if not all(isinstance(i, Integral) for members in sets for i in members):
        raise ValueError(f"sets: expected sets of whole numbers, got {sets!r}")
    if n_elements is not None:
        whole("n_elements", n_elements)
    if any(len(members) == 0 for members in sets):
        raise ValueError("sets: expected sets that something hits, got an empty one")
    largest = max(max(members) for members in sets)
    n = largest + 1 if n_elements is None else n_elements
    if min(min(members) for members in sets) < 0 or largest >= n:
        raise ValueError(f"sets: expected elements in 0..{n - 1}, the universe of n_elements={n}, got others")

    X = np.ones((2 * len(sets) + 1, n))
    for row, members in enumerate(sets):
        X[row, list(members)] = 0.0
    y = np.array(["red"] * len(sets) + ["blue"] * (len(sets) + 1))
    return _chain(n, n_red=len(sets), n_blue=len(sets) + 1), X, y


def _chain(n_cuts: int, *, n_red: int, n_blue: int) -> Tree:
    """Cut i tests feature i; its left child is a leaf, its right child cut i + 1 (at last, a leaf)."""
    n_nodes = 2 * n_cuts + 1
    cuts = np.arange(0, 2 * n_cuts, 2)
    left, right, feature = np.full((3, n_nodes), -1)
    left[cuts], right[cuts] = cuts + 1, cuts + 2
    feature[cuts] = np.arange(n_cuts)
    threshold, reached = np.zeros(n_nodes), np.zeros(n_nodes)
    threshold[cuts] = BELOW_ALL
    reached[[*cuts, n_nodes - 1]] = 1
    return Tree(
        left=left,
        right=right,
        feature=np.where(left >= 0, feature, NO_FEATURE),
        threshold=threshold,
        value=np.tile([n_blue / (n_blue + n_red), n_red / (n_blue + n_red)], (n_nodes, 1)),
        weight=reached * (n_blue + n_red),
        n_samples=(reached * (n_blue + n_red)).astype(np.int64),
        classes=np.array(["blue", "red"]),
        n_features=n_cuts,
        feature_names=tuple(f"element {i}" for i in range(n_cuts)),
    )
