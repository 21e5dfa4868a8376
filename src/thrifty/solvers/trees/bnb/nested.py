"""F(v, S, budget) for any budget: the branch and bound below changed cuts.

A budget of up to two is one kernel (`few_changes`). Beyond that a changed cut tries its thresholds in the order of
their bounds, and asks at each for the fewest errors under either child with fewer changes. Questions that wait for
others stand on a list (`Search.run`), so that neither the budget nor the depth of the tree meets a recursion limit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.bnb.few_changes import VALUE, fewest_errors
from thrifty.solvers.trees.bnb.memo import Memo
from thrifty.solvers.trees.bnb.scene import Scene, Work, take_range
from thrifty.solvers.trees.bnb.tables import Answer, Choice, Tables
from thrifty.solvers.trees.bnb.three_changes import change_with_one_below_each
from thrifty.solvers.trees.bnb.thresholds import LEFT, RIGHT, Thresholds, all_thresholds
from thrifty.solvers.trees.bnb.two_changes import change_with_one_below
from thrifty.solvers.trees.instance.ranks import MISSING

ROOM = 0.25
"""Share of the run of open positions (`Thresholds.room`) by which a question looks beyond its threshold."""

Steps = Generator[Generator[Any, Any, Any], Any, Any]
"""A search that yields searches, is sent what they return, and returns its own answer."""


def constant(limit: float) -> Callable[[], float]:
    """A threshold that stays."""
    return lambda: limit


@dataclass(eq=False)
class Search:
    """One thread's search.

    Attributes:
        scene: The problem.
        work: The thread's buffers.
        memo: Shared by all threads.
        n_states: Positions, sets and cuts evaluated so far.
    """

    scene: Scene
    work: Work
    memo: Memo
    n_states: int = 0

    @property
    def step(self) -> float:
        """What to add to some errors so that nothing but they and fewer is below."""
        return 2.0 * self.scene.data.tolerance if self.scene.data.tolerance > 0 else 0.5

    @property
    def stopped(self) -> bool:
        """Whether the search was told to end."""
        return bool(self.scene.stop[0])

    def run(self, search: Steps) -> Any:
        """Drive a search, and those that it asks for, to its answer."""
        waiting, answer = [search], None
        while True:
            try:
                asked = waiting[-1].send(answer)
            except StopIteration as done:
                waiting.pop()
                if not waiting:
                    return done.value
                answer = done.value
            else:
                waiting.append(asked)
                answer = None

    def fewest(self, v: int, order: NDArray[np.int32], budget: int, threshold: float) -> Steps:
        """F(v, S, budget).

        Args:
            v: Node.
            order: The points S by each feature that the subtree may use; int32 ``[d, m]``.
            budget: Changes.
            threshold: Only fewer errors than this are of interest.

        Returns:
            An `Answer` whose lower bound is exact below the threshold unless there are floors.
        """
        scene, m = self.scene, order.shape[1]
        budget = min(budget, int(scene.n_changeable[v]))
        self.n_states += 1
        if m == 0:
            leaves = slice(scene.shape.leaf_start[v], scene.shape.leaf_stop[v])
            floors = scene.data.floors
            asks = (floors.n_rows[leaves] > 0).any() or (floors.weight[leaves] > 0).any()
            return Answer(0.0, np.inf if asks else 0.0)
        if budget <= 1:
            return Answer(*fewest_errors(v, order, m, budget, threshold, scene, self.work))
        key = (v, budget, self._packed(order[scene.allowed_below[v].argmax()]))
        if (known := self.memo.get(key, threshold)) is not None:
            return known
        if budget == 2:
            answer = Answer(*fewest_errors(v, order, m, budget, threshold, scene, self.work))
        else:
            answer = (yield self.tables(v, order, budget, threshold)).answer
        if not self.stopped:
            self.memo.put(key, threshold, answer)
        return answer

    def _packed(self, points: NDArray[np.int32]) -> bytes:
        is_in = np.zeros(self.scene.ranks.shape[1], dtype=np.bool_)
        is_in[points] = True
        return np.packbits(is_in).tobytes()

    def tables(self, v: int, order: NDArray[np.int32], budget: int, threshold: float) -> Steps:
        """All tables of a subtree, exact for smaller budgets, and for the whole one below the threshold."""
        tables = self.start(v, order, budget)
        for a in range(2, budget + 1):
            least = min(threshold, float(tables.best[VALUE, v, a]))
            for u in tables.cuts(a):
                if self.stopped:
                    tables.record(u, a, Answer(float(tables.totals.unavoidable[u]), np.inf))
                    continue
                limit, elsewhere = float(tables.best[VALUE, u, a]), tables.elsewhere(u)
                if a == budget:
                    limit = min(limit, least - elsewhere)
                answer = yield self.change(u, self.points_at(tables, u), a, constant(limit))
                tables.record(u, a, answer)
                if answer.value < np.inf and tables.holds_elsewhere(u):
                    least = min(least, elsewhere + answer.value)
            tables.combine()
        return tables

    def start(self, v: int, order: NDArray[np.int32], budget: int) -> Tables:
        """The tables of a subtree in which at most one cut of each path is changed."""
        self.n_states += int(self.scene.n_changeable[v])
        return Tables.start(v, order, budget, self.scene, self.work)

    def points_at(self, tables: Tables, u: int) -> NDArray[np.int32]:
        """The points of ``tables`` that reach ``u``, by each feature that its subtree may use; int32 ``[d, m]``."""
        scene, shape = self.scene, self.scene.shape
        row, start, stop = scene.leaf_of[tables.node], int(shape.leaf_start[u]), int(shape.leaf_stop[u])
        return self._take(tables.order, row, start, stop, scene.allowed_below[u])

    def points_beside(self, order: NDArray[np.int32], choice: Choice, child: int, on_left: bool) -> NDArray[np.int32]:
        """The points that a test sends to one child, by each feature that its subtree may use; int32 ``[d, m]``."""
        ranks = self.scene.ranks[choice.feature]
        goes_left = np.where(ranks == MISSING, choice.missing_left, ranks <= choice.rank)
        return self._take(order, goes_left.astype(np.int32), on_left, on_left + 1, self.scene.allowed_below[child])

    def _take(
        self, order: NDArray[np.int32], row: NDArray[np.int32], start: int, stop: int, features: NDArray[np.bool_]
    ) -> NDArray[np.int32]:
        copied = take_range(order, order.shape[1], row, start, stop, features, self.work.order)
        return self.work.order[:, :copied].copy()

    def change(
        self,
        u: int,
        order: NDArray[np.int32],
        a: int,
        limit: Callable[[], float],
        features: NDArray[np.intp] | None = None,
    ) -> Steps:
        """Fewest errors under cut ``u`` if it is changed and ``a - 1`` of the cuts below it.

        Args:
            u: Cut; it may be changed.
            order: Its points by each feature that its subtree may use; int32 ``[d, m]``.
            a: Changes, at least 2.
            limit: Gives the threshold, which may fall while the search goes on.
            features: Those to try at ``u``; all that are allowed by default.

        Returns:
            An `Answer` with the `Choice` at ``u`` if some errors are below the limit.
        """
        scene = self.scene
        unavoidable = float(scene.data.unavoidable[order[scene.allowed_below[u].argmax()]].sum())
        if unavoidable >= limit() - scene.data.tolerance or order.shape[1] == 0:
            return Answer(unavoidable, np.inf)
        if features is None:
            features = np.flatnonzero(scene.allowed[u])
        if self.is_one_kernel(u, a):
            found = self._change_in_kernel(u, order, a, limit, features)
        else:
            found = yield self._try_thresholds(u, order, a, limit, features)
        return found._replace(lower=max(found.lower, unavoidable))

    def is_one_kernel(self, u: int, a: int) -> bool:
        """Whether `change` is answered by a kernel: always in the same way, whatever was asked before."""
        below = self._children(u)
        return a == 2 or (
            a == 3 and all(self.scene.n_changeable[child] == 1 and self.scene.changeable[child] for child in below)
        )

    def _children(self, u: int) -> tuple[int, int]:
        return int(self.scene.shape.left[u]), int(self.scene.shape.right[u])

    def _change_in_kernel(
        self, u: int, order: NDArray[np.int32], a: int, limit: Callable[[], float], features: NDArray[np.intp]
    ) -> Answer:
        scene, work, m = self.scene, self.work, order.shape[1]
        tried = np.zeros(len(order), dtype=np.bool_)
        tried[features] = True
        self.n_states += 1
        if a == 3:
            lower, value, feature, rank, missing_left = change_with_one_below_each(
                u, tried, order, m, limit(), scene, work
            )
            return Answer(lower, value, Choice(feature, rank, missing_left, 1) if value < np.inf else None)
        found = Answer(np.inf, np.inf)
        for on_left in (True, False):
            threshold = min(limit(), found.value)
            lower, value, feature, rank, missing_left = change_with_one_below(
                u, on_left, tried, order, m, threshold, scene, work
            )
            found = found._replace(lower=min(found.lower, lower))
            if value < np.inf:
                found = Answer(found.lower, value, Choice(feature, rank, missing_left, int(on_left)))
        return found

    def _try_thresholds(
        self, u: int, order: NDArray[np.int32], a: int, limit: Callable[[], float], features: NDArray[np.intp]
    ) -> Steps:
        scene, tolerance = self.scene, self.scene.data.tolerance
        left, right = (int(scene.n_changeable[child]) for child in self._children(u))
        splits = [(b, a - 1 - b) for b in range(a) if b <= left and a - 1 - b <= right]
        found = Answer(np.inf, np.inf)
        sweeps = all_thresholds(u, order, features, a - 1, scene, self.work)
        for positions in sorted(sweeps, key=lambda at: at.least_errors):  # the most promising first
            while True:
                bound = positions.bounds(splits)
                threshold = min(limit(), found.value)
                low = float(bound.min())
                if low >= threshold - tolerance or self.stopped:
                    found = found._replace(lower=min(found.lower, low))
                    break
                ties = np.flatnonzero(bound == low)
                i = int(ties[len(ties) // 2])
                room = positions.room(i, bound, threshold)
                here = yield self._resolve(u, order, positions, i, splits, threshold, room)
                found = found._replace(lower=min(found.lower, here.lower))
                if here.value < threshold - tolerance:
                    found = Answer(found.lower, here.value, here.choice)
        return found

    def _resolve(
        self,
        u: int,
        order: NDArray[np.int32],
        positions: Thresholds,
        i: int,
        splits: list[tuple[int, int]],
        threshold: float,
        room: float,
    ) -> Steps:
        """Close position ``i``: find its fewest errors over all splits of the budget, if below the threshold."""
        scene, tolerance = self.scene, self.scene.data.tolerance
        children = self._children(u)
        border, m = int(positions.n_left[i]), order.shape[1]
        points: list[NDArray[np.int32] | None] = [None, None]
        values: dict[tuple[int, int], float] = {(side, 0): positions.value(side, i) for side in (LEFT, RIGHT)}
        found = Answer(np.inf, np.inf)
        for split in splits:
            for side in (LEFT, RIGHT):
                budget, other = split[side], split[1 - side]
                beside = float(positions.lower[1 - side, other, i])
                if (side, budget) in values or float(
                    positions.lower[side, budget, i]
                ) + beside >= threshold - tolerance:
                    continue
                here = points[side]
                if here is None:
                    start, stop = (0, border) if side == LEFT else (border, m)
                    here = self._take(order, positions.place, start, stop, scene.allowed_below[children[side]])
                    points[side] = here
                asked = threshold - beside + ROOM * room
                answer = yield self.fewest(children[side], here, budget, asked)
                positions.raise_bounds(side, budget, i, answer.lower)
                values[side, budget] = answer.value if answer.value < asked else np.inf
            lower = float(positions.lower[LEFT, split[0], i] + positions.lower[RIGHT, split[1], i])
            value = values.get((LEFT, split[0]), np.inf) + values.get((RIGHT, split[1]), np.inf)
            found = found._replace(lower=min(found.lower, lower))
            if value < min(threshold, found.value) - tolerance:
                choice = Choice(positions.feature, int(positions.rank[i]), positions.missing_left, split[0])
                found = Answer(found.lower, value, choice)
        positions.is_open[i] = False
        return found
