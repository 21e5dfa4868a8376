"""What a search knows of one subtree and its points: the tables of `few_changes` and the tests behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.few_changes import LOWER, VALUE, combine, hold_elsewhere
from thrifty.solvers.trees.bnb.one_change import change_each_cut, node_totals
from thrifty.solvers.trees.bnb.scene import Scene, Totals, Work, empty_totals


class Choice(NamedTuple):
    """The test at a changed cut, and how many of the changes below it are under its left child."""

    feature: int
    rank: int
    missing_left: bool
    n_left: int


class Answer(NamedTuple):
    """What is known of the fewest errors."""

    lower: float  # bound on the relaxed errors
    value: float  # allowed errors, if below the threshold of the question
    choice: Choice | None = None  # at the cut, where the question was about one changed cut


@dataclass(frozen=True, eq=False)
class Tables:
    """C and T for one subtree and its points.

    Attributes:
        scene: The problem.
        node: Root of the subtree.
        order: Its points by each feature that it may use; int32 ``[d, m]``.
        budget: Largest number of changes.
        totals: What each node does as it is.
        changed: C; float64 ``[2, n_nodes, budget + 1]``.
        best: T; likewise.
        choices: Test behind each entry of C that has a value.
    """

    scene: Scene
    node: int
    order: NDArray[np.int32]
    budget: int
    totals: Totals
    changed: NDArray[np.float64]
    best: NDArray[np.float64]
    choices: dict[tuple[int, int], Choice]

    @classmethod
    def start(cls, node: int, order: NDArray[np.int32], budget: int, scene: Scene, work: Work) -> Tables:
        """Tables in which at most one cut of each path is changed."""
        n_nodes = len(scene.shape.left)
        totals = empty_totals(n_nodes)
        changed = np.full((2, n_nodes, budget + 1), np.inf)
        tables = cls(scene, node, order, budget, totals, changed, np.full_like(changed, np.inf), {})
        points = order[scene.allowed_below[node].argmax()]
        node_totals(node, points, len(points), scene.shape, scene.leaf_of[node], scene.data, work.leaves, totals)
        if budget > 0:
            test = np.zeros((n_nodes, 3), dtype=np.int64)
            change_each_cut(
                node, order, len(points), 0.0, totals, scene, work, changed[LOWER, :, 1], changed[VALUE, :, 1], test
            )
            cuts = tables.cuts(1)
            for u in cuts:
                if changed[VALUE, u, 1] < np.inf:
                    feature, rank, missing_left = test[u].tolist()
                    tables.choices[u, 1] = Choice(feature, rank, bool(missing_left), 0)
            if scene.stop[0]:  # some cuts were not looked at
                changed[LOWER, cuts, 1] = totals.unavoidable[cuts]
        tables.combine()
        return tables

    def combine(self) -> None:
        """Fill T from C."""
        combine(self.node, self.budget, self.scene.shape, self.totals, self.changed, self.best)

    def record(self, u: int, a: int, answer: Answer) -> None:
        """Enter what is known of cut ``u``, changed, with ``a`` changes in all."""
        self.changed[LOWER, u, a] = min(self.changed[LOWER, u, a], answer.lower)
        if answer.choice is not None and answer.value < self.changed[VALUE, u, a]:
            self.changed[VALUE, u, a] = answer.value
            self.choices[u, a] = answer.choice

    @property
    def answer(self) -> Answer:
        """What is known of the whole subtree with the whole budget."""
        return Answer(float(self.best[LOWER, self.node, self.budget]), float(self.best[VALUE, self.node, self.budget]))

    def cuts(self, a: int) -> list[int]:
        """The cuts that may be changed with ``a - 1`` changes below them, in preorder."""
        shape, scene = self.scene.shape, self.scene
        first = shape.place[self.node]
        nodes = shape.preorder[first : first + 2 * (shape.leaf_stop[self.node] - shape.leaf_start[self.node]) - 1]
        cuts: list[int] = nodes[scene.changeable[nodes] & (scene.n_changeable[nodes] >= a)].tolist()
        return cuts

    def elsewhere(self, u: int) -> float:
        """Relaxed errors of the leaves that are not under ``u``."""
        return float(self.totals.errors[self.node] - self.totals.errors[u])

    def holds_elsewhere(self, u: int) -> bool:
        """Whether the leaves that are not under ``u`` hold their floors."""
        return bool(hold_elsewhere(u, self.node, self.totals.holds_floors, self.scene.shape))
