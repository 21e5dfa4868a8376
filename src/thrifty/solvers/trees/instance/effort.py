"""How large a search is before it starts: upper bounds on what the exact solvers may have to visit.

Both count what the changes allowed can reach if nothing is pruned, merged or found twice; real runs stay below, often
far below. Numbers grow past any integer type, so they are floats, infinite where even those end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.instance.problem import Problem
from thrifty.solvers.trees.instance.ranks import MISSING


def tests_at_cuts(problem: Problem) -> NDArray[np.float64]:
    """Tests that each node may be given: thresholds of its allowed features, both missing directions where they count.

    Returns:
        float64 ``[n_nodes]``; 0 at a leaf or a frozen cut.
    """
    table = problem.table
    thresholds = table.domain_sizes + 1.0
    if problem.turns_missing:
        thresholds *= 1.0 + (table.ranks == MISSING).any(axis=1)
    tests: NDArray[np.float64] = problem.allowed @ thresholds
    return tests


def max_boxes(problem: Problem, k: int) -> float:
    """Boxes that the dynamic programme may visit from the root down, with at most ``k`` changed cuts.

    A node is reached with one box for each choice of at most k changed cuts above it and of their new tests: the sum
    of the elementary symmetric polynomials of degree 0 to k in the numbers of tests above. All boxes of the table
    bound it too.

    Source:
        the lazy, top-down form of Theorems 4.1 and 4.2.
    """
    topology, tests = problem.topology, tests_at_cuts(problem)
    ways = np.zeros((topology.n_nodes, k + 1))  # ways[v, i]: with exactly i changes above v
    ways[0, 0] = 1.0
    total = 0.0
    every_box = all_boxes(problem)
    with np.errstate(over="ignore"):
        for v in topology.preorder:
            total += min(float(ways[v].sum()), every_box)
            if topology.subtree_cuts[v] == 0:
                continue
            below = ways[v].copy()
            if tests[v] > 0:
                below[1:] += tests[v] * ways[v, :-1]
            ways[topology.left[v]] = ways[topology.right[v]] = below
    return total


def all_boxes(problem: Problem) -> float:
    """Boxes of the table that differ: the product over features of the intervals of its values, and the empty one."""
    sizes = problem.table.domain_sizes.astype(float)
    with np.errstate(over="ignore"):
        return float(np.prod(np.maximum(sizes * (sizes + 1) / 2, 1.0)) + 1.0)


def paper_bound(problem: Problem) -> float:
    """Decimal logarithm of the paper's bound on boxes, (D + 1)^{2d}; Theorems 4.1 and 4.2."""
    sizes = problem.table.domain_sizes
    return float(2 * len(sizes) * np.log10(sizes.max() + 1.0))


def max_sweeps(problem: Problem, k: int) -> float:
    """Sweeps (one feature at one cut) that branch and bound makes if no bound ever prunes.

    With one change left each allowed feature of each cut is swept once; with more, both subtrees are searched again
    for every position of every feature.
    """
    topology, tests = problem.topology, tests_at_cuts(problem)
    n_features = problem.allowed.sum(axis=1)
    sweeps = np.zeros((topology.n_nodes, k + 1))
    with np.errstate(over="ignore"):
        for v in topology.cuts[::-1]:
            below = sweeps[topology.left[v]] + sweeps[topology.right[v]]
            sweeps[v] = below
            if tests[v] > 0:
                sweeps[v, 1:] += n_features[v] + tests[v] * below[:-1]
    return float(sweeps[0, k])
