"""Small random problems, and trees written by hand, for the oracles."""

from __future__ import annotations

import numpy as np

from thrifty.solvers.trees import Tree


def hand_made(left, right, feature, threshold, n_classes=2, n_features=None, **more):
    """A tree with even class shares everywhere; its statistics mean nothing until it is relabelled."""
    n_nodes = len(left)
    return Tree(
        left=left,
        right=right,
        feature=feature,
        threshold=threshold,
        value=np.full((n_nodes, n_classes), 1 / n_classes),
        weight=np.zeros(n_nodes),
        n_samples=np.zeros(n_nodes, dtype=int),
        classes=more.pop("classes", np.arange(n_classes)),
        n_features=max(feature) + 1 if n_features is None else n_features,
        **more,
    )


def complete_depth_2(features, thresholds, n_features, n_classes):
    """Root, left and right cut, four leaves."""
    return hand_made(
        left=[1, 3, 5, -1, -1, -1, -1],
        right=[2, 4, 6, -1, -1, -1, -1],
        feature=[*features, -1, -1, -1, -1],
        threshold=[*thresholds, 0, 0, 0, 0],
        n_features=n_features,
        n_classes=n_classes,
    )


def chain(n_cuts, feature, threshold, **more):
    """Each cut's left child is a leaf, its right child the next cut; cut i is node 2 i."""
    left, right = np.full(2 * n_cuts + 1, -1), np.full(2 * n_cuts + 1, -1)
    left[: 2 * n_cuts : 2] = np.arange(1, 2 * n_cuts, 2)
    right[: 2 * n_cuts : 2] = np.arange(2, 2 * n_cuts + 1, 2)
    features, thresholds = np.full(2 * n_cuts + 1, -1), np.zeros(2 * n_cuts + 1)
    features[: 2 * n_cuts : 2] = feature
    thresholds[: 2 * n_cuts : 2] = threshold
    return hand_made(left, right, features, thresholds, **more)


def random_tree(rng, n_cuts, n_features, n_classes, domain, *, missing=False):
    """A random shape with nodes in random order (root 0), random tests and random labels."""
    left, right = [-1], [-1]
    for _ in range(n_cuts):
        leaf = rng.choice([v for v in range(len(left)) if left[v] == -1])
        left[leaf], right[leaf] = len(left), len(left) + 1
        left += [-1, -1]
        right += [-1, -1]
    n_nodes = len(left)
    name = np.concatenate([[0], 1 + rng.permutation(n_nodes - 1)]).astype(int)
    new_left, new_right = np.full(n_nodes, -1), np.full(n_nodes, -1)
    for v in range(n_nodes):
        if left[v] != -1:
            new_left[name[v]], new_right[name[v]] = name[left[v]], name[right[v]]
    cut = new_left != -1
    return Tree(
        left=new_left,
        right=new_right,
        feature=np.where(cut, rng.integers(n_features, size=n_nodes), -1),
        threshold=np.where(cut, rng.integers(-1, domain + 1, size=n_nodes) + rng.choice([0.0, 0.5], size=n_nodes), 0),
        value=rng.dirichlet(np.ones(n_classes), size=n_nodes),
        weight=np.zeros(n_nodes),
        n_samples=np.zeros(n_nodes, dtype=int),
        classes=np.arange(n_classes),
        n_features=n_features,
        missing_left=rng.random(n_nodes) < 0.5 if missing else None,
    )


def random_problem(seed, *, max_cuts=7, missing=None):
    """A tree, a table, and settings: n <= 40, d <= 3, D <= 5, s <= 7, C <= 3."""
    rng = np.random.default_rng(seed)
    n, d, domain, n_classes = rng.integers(1, 41), rng.integers(1, 4), rng.integers(1, 6), rng.integers(1, 4)
    missing = bool(rng.random() < 0.4) if missing is None else missing
    X = rng.integers(domain, size=(n, d)).astype(float)
    if missing:
        X[rng.random((n, d)) < 0.15] = np.nan
    y = rng.integers(n_classes, size=n)
    tree = random_tree(rng, rng.integers(0, max_cuts + 1), d, n_classes, domain, missing=missing)
    kind = rng.integers(3)
    weight = None if kind == 0 else rng.integers(1, 4, size=n) if kind == 1 else rng.random(n) + 0.01
    settings = {
        "sample_weight": weight,
        "min_samples_leaf": int(rng.integers(0, 4)),
        "operation": str(rng.choice(["adjust", "exchange"])),
    }
    if rng.random() < 0.2:
        settings["min_weight_fraction_leaf"] = 0.1
    if tree.n_cuts and rng.random() < 0.2:
        settings["frozen"] = (int(rng.choice(tree.topology.cuts)),)
    if settings["operation"] == "exchange" and rng.random() < 0.2:
        settings["features"] = [int(rng.integers(d))]
    return tree, X, y, settings
