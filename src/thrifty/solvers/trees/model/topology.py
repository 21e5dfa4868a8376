"""The shape of a binary tree: who is whose child, in which order to walk, which leaves lie under a node.

Threshold adjustment and cut exchange leave the shape alone, so it is worked out once and shared by every solver.
All walks are loops: a chain of thousands of cuts is as good as a balanced tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_NODE = -1
"""Child of a leaf, parent of the root."""


@dataclass(frozen=True, eq=False)
class Topology:
    """A rooted binary tree on nodes ``0 .. n_nodes - 1``, root 0.

    Leaves are numbered ``0 .. n_leaves - 1`` from left to right, so that the leaves under node ``v`` are the range
    ``leaf_start[v] .. leaf_stop[v] - 1`` whatever order the nodes are stored in.

    Attributes:
        left: Left child, -1 at a leaf; int32 ``[n_nodes]``.
        right: Right child, likewise.
        parent: Parent, -1 at the root; int32 ``[n_nodes]``.
        depth: Cuts above the node; int32 ``[n_nodes]``.
        preorder: All nodes, each before its left subtree, that before its right subtree; int32 ``[n_nodes]``.
        leaf_start: Number of the first leaf under each node; int32 ``[n_nodes]``.
        leaf_stop: One past the number of the last leaf under each node; int32 ``[n_nodes]``.
        leaves: The node of each leaf, left to right; int32 ``[n_leaves]``.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    preorder: NDArray[np.int32]
    leaf_start: NDArray[np.int32]
    leaf_stop: NDArray[np.int32]
    leaves: NDArray[np.int32]

    @classmethod
    def from_children(cls, left: NDArray[np.int32], right: NDArray[np.int32]) -> Topology:
        """Walk the tree once from the root.

        Args:
            left: Left child of each node, -1 at a leaf; ``[n_nodes]``.
            right: Right child of each node, -1 at a leaf; ``[n_nodes]``.

        Raises:
            ValueError: A child index is out of range, a node has one child only, or some node is not reached from
                the root exactly once (a cycle, a shared child, an orphan).
        """
        n_nodes = len(left)
        if n_nodes == 0 or len(right) != n_nodes:
            raise ValueError(f"left, right: expected one entry a node, and a node, got {n_nodes} and {len(right)}")
        for name, child in (("left", left), ("right", right)):
            wrong = np.flatnonzero((child < NO_NODE) | (child >= n_nodes))
            if len(wrong):
                v = int(wrong[0])
                raise ValueError(f"{name}[{v}]: expected a child in 1..{n_nodes - 1}, or -1 at a leaf, got {child[v]}")
        half = np.flatnonzero((left == NO_NODE) != (right == NO_NODE))
        if len(half):
            raise ValueError(f"left, right: expected two children, or none (-1 and -1), got one at node {half[0]}")

        parent = np.full(n_nodes, NO_NODE, dtype=np.int32)
        depth = np.zeros(n_nodes, dtype=np.int32)
        reached = np.zeros(n_nodes, dtype=bool)
        preorder: list[int] = []
        stack = [0]
        while stack:
            v = stack.pop()
            if reached[v]:
                raise ValueError(f"left, right: expected one parent a node, and no cycle, got node {v} twice")
            reached[v] = True
            preorder.append(v)
            if left[v] != NO_NODE:
                for below in (int(right[v]), int(left[v])):
                    parent[below] = v
                    depth[below] = depth[v] + 1
                    stack.append(below)
        if not reached.all():
            raise ValueError(
                f"left, right: expected every node below the root (node 0), got node {int(np.argmin(reached))} apart"
            )

        order = np.array(preorder, dtype=np.int32)
        is_leaf = left[order] == NO_NODE
        leaves = order[is_leaf]
        leaf_start = np.zeros(n_nodes, dtype=np.int32)
        leaf_stop = np.zeros(n_nodes, dtype=np.int32)
        leaf_start[leaves] = np.arange(len(leaves))
        leaf_stop[leaves] = leaf_start[leaves] + 1
        for cut in order[~is_leaf][::-1]:
            leaf_start[cut] = leaf_start[left[cut]]
            leaf_stop[cut] = leaf_stop[right[cut]]
        return cls(
            left=np.asarray(left, dtype=np.int32),
            right=np.asarray(right, dtype=np.int32),
            parent=parent,
            depth=depth,
            preorder=order,
            leaf_start=leaf_start,
            leaf_stop=leaf_stop,
            leaves=leaves,
        )

    @property
    def n_nodes(self) -> int:
        """Cuts and leaves."""
        return len(self.left)

    @property
    def n_leaves(self) -> int:
        """Leaves; one more than cuts."""
        return len(self.leaves)

    @property
    def cuts(self) -> NDArray[np.int32]:
        """The inner nodes in preorder; int32 ``[n_leaves - 1]``."""
        cuts: NDArray[np.int32] = self.preorder[self.left[self.preorder] != NO_NODE]
        return cuts

    @property
    def subtree_cuts(self) -> NDArray[np.int32]:
        """Cuts in the subtree of each node (s_v of the paper), 0 at a leaf; int32 ``[n_nodes]``."""
        n_cuts: NDArray[np.int32] = self.leaf_stop - self.leaf_start - 1
        return n_cuts

    def ancestors(self, v: int) -> list[int]:
        """The cuts above ``v``, nearest first."""
        above = []
        node = int(self.parent[v])
        while node != NO_NODE:
            above.append(node)
            node = int(self.parent[node])
        return above

    def subtree(self, v: int) -> NDArray[np.int32]:
        """``v`` and every node below it, in preorder."""
        start = int(np.flatnonzero(self.preorder == v)[0])
        return self.preorder[start : start + 2 * int(self.subtree_cuts[v]) + 1]

    def sum_up(self, at_leaves: NDArray) -> NDArray:
        """Totals of every node from those of its leaves.

        Args:
            at_leaves: One row a leaf, left to right; ``[n_leaves, ...]``.

        Returns:
            One row a node: the sum over the leaves under it; ``[n_nodes, ...]``. Each is added bottom-up, child to
            child, so that no other leaf's rounding enters it.
        """
        totals = np.zeros((self.n_nodes, *at_leaves.shape[1:]), dtype=at_leaves.dtype)
        totals[self.leaves] = at_leaves
        for v in self.cuts[::-1]:
            totals[v] = totals[self.left[v]] + totals[self.right[v]]
        return totals
