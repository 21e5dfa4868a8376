"""What each node predicts, given the training weight of each class at it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.model.topology import Topology


def majority_shares(topology: Topology, counts: NDArray[np.float64], *, old: NDArray[np.intp]) -> NDArray[np.float64]:
    """Class shares of every node, such that the first largest share is the class that the node shall predict.

    A node that nothing reaches takes its parent's shares. Where classes tie for the majority and the old class is
    one of them, but not the first, its share is raised to the next float above: ``argmax`` then keeps it, here and in
    every library that reads the shares.

    Args:
        topology: The tree's shape.
        counts: Weight of each class at each node; ``[n_nodes, n_classes]``.
        old: Class that each node predicted before; ``[n_nodes]``.

    Returns:
        Shares, float64 ``[n_nodes, n_classes]``.

    Raises:
        ValueError: The root has no weight.
    """
    weight = counts.sum(axis=1)
    if weight[0] <= 0:
        raise ValueError("sample_weight: expected a row of positive weight, got none")
    value = np.empty_like(counts)
    for v in topology.preorder:
        if weight[v] == 0:
            value[v] = value[topology.parent[v]]
            continue
        value[v] = counts[v] / weight[v]
        kept = old[v]
        if counts[v, kept] == counts[v].max() and value[v].argmax() != kept:
            value[v, kept] = np.nextafter(value[v].max(), np.inf)
    return value


def leaf_errors(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weight outside the majority class of each leaf, err(S) = |S| - max_c |S_c|; ``[n_leaves]``."""
    errors: NDArray[np.float64] = counts.sum(axis=1) - counts.max(axis=1)
    return errors


def is_reasonable(counts: NDArray[np.float64], labels: NDArray[np.intp]) -> bool:
    """Whether no leaf is empty and each predicts one of its most frequent classes (the paper's reasonable trees).

    Args:
        counts: Weight of each class at each leaf; ``[n_leaves, n_classes]``.
        labels: Class that each leaf predicts; ``[n_leaves]``.
    """
    largest = counts.max(axis=1)
    return bool((largest > 0).all() and (counts[np.arange(len(counts)), labels] == largest).all())
