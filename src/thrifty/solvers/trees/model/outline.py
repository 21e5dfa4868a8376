"""A tree as indented text, with the node numbers by which reports and options name its cuts."""

from __future__ import annotations

import numpy as np

from thrifty.solvers.trees.model.topology import NO_NODE
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.wording import short_number


def outline(tree: Tree) -> str:
    r"""One line a node: the branch where a test holds comes first, below it the one where it does not.

    Example:
        >>> from thrifty.solvers.trees.model.outline import outline
        >>> from thrifty.solvers.trees.model.weka import tree_from_weka
        >>> print(outline(tree_from_weka("width <= 0.6: a (50.0)\nwidth > 0.6: b (100.0/2.0)")))
        0: width ≤ 0.6
           1: a (50 of 50)
           2: b (98 of 100)
    """
    lines = []
    for v in tree.topology.preorder:
        indent = "   " * int(tree.topology.depth[v])
        if tree.left[v] == NO_NODE:
            right = tree.counts[v, tree.labels[v]]
            text = f"{tree.classes[tree.labels[v]]} ({right:.6g} of {tree.weight[v]:.6g})"
        else:
            j = int(tree.feature[v])
            thresholds = tree.threshold[tree.feature == j]
            text = f"{tree.feature_name(j)} ≤ {short_number(tree.threshold[v], thresholds, np.float32)}"
        lines.append(f"{indent}{v}: {text}")
    return "\n".join(lines)
