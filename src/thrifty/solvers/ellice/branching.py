"""Branch and bound over categories, whole numbers and allowed values; each relaxation is a cone programme."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty.solvers.ellice.cone import (
    ConeProblem,
    InconclusiveError,
    Solver,
    contradict,
    largest_radius,
    nearest,
)
from thrifty.solvers.ellice.problem import MARGIN, Answer, Problem, describe
from thrifty.solvers.ellice.region import Box, nearest_index

#: A relaxed category or integer counts as whole from here on.
WHOLE = 1e-6
#: Below it the largest tolerance of a region is a rounded 0.
SMALLEST_RADIUS = 1e-9
Row = Float[np.ndarray, " d"]


@dataclass(frozen=True)
class Effort:
    """How exact solves are made.

    Attributes:
        solver: Of cone programmes.
        max_combinations: Relaxations that branch and bound may solve for one person; past it an answer is called
            ``feasible``, never optimal.
    """

    solver: Solver = "auto"
    max_combinations: int = 512


def branch_and_bound(problem: Problem, row: Row, effort: Effort, *, explain: bool = True) -> Answer:
    """Return the nearest certified row for one person, within all limits.

    Args:
        problem: Of a linear model.
        row: One encoded person.
        effort: Which solver, and how much of it.
        explain: Where there is no answer, work out by how much it is missed.
    """
    return _Search(problem, row, effort, explain).run()


@dataclass(order=True)
class _Node:
    """A part of one person's region: bounds, and for every category the levels left."""

    bound: float
    order: int
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    levels: tuple[tuple[int, ...], ...]
    relaxed: NDArray[np.float64] | None = None


class _Search:
    """Best-first branch and bound for one person; each bound is the optimum of a continuous relaxation."""

    def __init__(self, problem: Problem, row: Row, effort: Effort, explain: bool) -> None:
        self.problem, self.row, self.effort, self.explain = problem, row, effort, explain
        self.region = problem.region
        self.box: Box = problem.region.box(row)
        theta = problem.sign * problem.ellipsoid.theta
        self.slope = np.append(theta[:-1], theta[-1] - problem.sign * problem.threshold - MARGIN)
        self.shape = problem.ellipsoid.shape()
        self.A, self.b = self.region.A, self.region.b
        if problem.deployed is not None:  # ±(wᵀz + w_b − t) ≥ margin, as −±wᵀz ≤ ±(w_b − t) − margin
            own = problem.sign * problem.deployed
            self.A = np.vstack([self.A, -own[None, :-1]])
            self.b = np.append(self.b, own[-1] - problem.sign * problem.threshold - MARGIN)
        self.free_choices = [
            (choice, choice.level_of(row))
            for choice in self.region.choices
            if not self.region.frozen[choice.columns[0]]
        ]
        self.best: Row | None = None
        self.best_value = np.inf
        self.doubt = ""  # why a part of the region was given up, if one was
        self.count = itertools.count()

    def run(self) -> Answer:
        """Search."""
        if self.box.obstacle:
            return Answer(None, "infeasible", self.box.obstacle)
        root = _Node(
            -np.inf, next(self.count), self.box.lower, self.box.upper, tuple(c.permitted for c, _ in self.free_choices)
        )
        if (first := self._relax(root)) is None:
            return self._conclude()
        heap = [first]
        self._round(first)
        solved = 1
        while heap:
            node = heapq.heappop(heap)
            if node.bound >= self.best_value - 1e-9 * max(1.0, self.best_value):
                break
            assert node.relaxed is not None
            children = self._branch(node)
            if children is None:
                if not self._offer(node.relaxed):
                    self.doubt = "the cone solver's answer was not precise enough to be certified"
                continue
            for child in children:
                if solved >= self.effort.max_combinations:
                    self.doubt = f"branching stopped after max_combinations={solved} relaxations"
                    return self._conclude()
                solved += 1
                if (relaxed := self._relax(child)) is not None and relaxed.bound < self.best_value:
                    heapq.heappush(heap, relaxed)
        return self._conclude()

    def _conclude(self) -> Answer:
        """Return the answer, as proven as it is."""
        if self.doubt:
            return Answer(self.best, "not_found" if self.best is None else "feasible", self.doubt)
        return Answer(self.best, "optimal") if self.best is not None else Answer(None, "infeasible", self._why())

    def _cone(self, node: _Node) -> ConeProblem:
        """Return the relaxation on a node: levels are shares that add up to 1 (at most 1 where there is a baseline)."""
        weights = self.region.weights.copy()
        cost = np.zeros_like(weights)
        mixed = self.problem.distance == "mixed"
        lower, upper = node.lower.copy(), node.upper.copy()
        limits, rights = [self.A], [self.b]
        for choice in self.region.choices if mixed else ():
            weights[choice.columns] = 0.0
        for (choice, level), left in zip(self.free_choices, node.levels, strict=True):
            if len(left) == 1:
                held = self.row.copy()
                choice.write(held, left[0])
                lower[choice.columns] = upper[choice.columns] = held[choice.columns]
            else:
                for at in set(range(len(choice.columns))) - set(left):
                    lower[choice.columns[at]] = upper[choice.columns[at]] = choice.off[at]
                share, offset = np.zeros_like(self.row), float(np.sum(choice.off / (choice.on - choice.off)))
                share[choice.columns] = 1 / (choice.on - choice.off)
                limits.append(np.vstack([share, -share] if -1 not in left else [share]))
                rights.append(np.array([1 + offset, -1 - offset] if -1 not in left else [1 + offset]))
            if mixed:  # the price is paid by the share that has left the level that was: ū(1 − share)
                if level >= 0:
                    cost[choice.columns[level]] -= choice.weight / (choice.on[level] - choice.off[level])
                else:
                    cost[choice.columns] += choice.weight / (choice.on - choice.off)
        return ConeProblem(
            self.row, lower, upper, self.slope, self.shape, weights, cost, np.vstack(limits), np.concatenate(rights),
            absolute=self.problem.distance == "l1",
        )  # fmt: skip

    def _relax(self, node: _Node) -> _Node | None:
        problem = self._cone(node)
        try:
            found = nearest(problem, self.effort.solver)
        except InconclusiveError as error:
            self.doubt = str(error)
            return None
        return None if found is None else replace(node, bound=self._value(problem, found), relaxed=found)

    def _value(self, problem: ConeProblem, row: Row) -> float:
        """Return the squared distance (or L1 distance); constants make the mixed price of no change 0."""
        constant = 0.0
        if self.problem.distance == "mixed":
            for choice, level in self.free_choices:
                if level >= 0:
                    constant += choice.weight * choice.on[level] / (choice.on[level] - choice.off[level])
                else:
                    constant -= choice.weight * float(np.sum(choice.off / (choice.on - choice.off)))
        return problem.value(row) + constant

    def _offer(self, row: Row) -> bool:
        """Take a row whose discrete parts are whole, if it is nearer than the best; tell whether it is an answer."""
        whole = self.region.snap(row, self.box)
        if self.problem.slack(whole[None])[0] < 0 or not self.region.satisfied(whole[None], self.row, self.box)[0]:
            return False
        far = float(self.problem.distance_of(whole[None], self.row)[0])
        value = far if self.problem.distance == "l1" else far**2
        if value < self.best_value:
            self.best, self.best_value = whole, value
        return True

    def _round(self, node: _Node) -> None:
        """Find a first answer: discrete parts rounded, or as the person has them, and the rest solved."""
        assert node.relaxed is not None
        for guess in (self.row, node.relaxed) if self.region.is_discrete else (node.relaxed,):
            rounded = self.region.snap(guess, self.box)
            lower, upper = node.lower.copy(), node.upper.copy()
            for j in self.region.lattices:
                lower[j] = upper[j] = rounded[j]
            levels = tuple((choice.level_of(rounded),) for choice, _ in self.free_choices)
            fixed = self._relax(_Node(node.bound, next(self.count), lower, upper, levels))
            if fixed is not None and fixed.relaxed is not None:
                self._offer(fixed.relaxed)

    def _branch(self, node: _Node) -> list[_Node] | None:
        """Split a node at its least whole part; ``None`` if all are whole."""
        assert node.relaxed is not None
        worst, at = WHOLE, None
        for c, ((choice, _), left) in enumerate(zip(self.free_choices, node.levels, strict=True)):
            if len(left) > 1:
                shares = choice.shares(node.relaxed)
                gap = float(np.abs(shares - np.rint(shares)).max())
                if gap > worst:
                    worst, at = gap, c
        if at is not None:
            return [
                replace(
                    node,
                    order=next(self.count),
                    levels=(*node.levels[:at], (level,), *node.levels[at + 1 :]),
                    relaxed=None,
                )
                for level in node.levels[at]
            ]
        for j, values in self.region.lattices.items():
            inside = values[(values >= node.lower[j] - WHOLE) & (values <= node.upper[j] + WHOLE)]
            if len(inside) < 2:
                continue
            place = node.relaxed[j]
            if abs(inside[nearest_index(inside, place)] - place) <= WHOLE:
                continue
            above = int(np.searchsorted(inside, place))
            lower, upper = node.lower.copy(), node.upper.copy()
            upper[j], lower[j] = inside[above - 1], inside[above]
            return [
                replace(node, order=next(self.count), upper=upper, relaxed=None),
                replace(node, order=next(self.count), lower=lower, relaxed=None),
            ]
        return None

    def _why(self) -> str:
        """Say how far from certified the best row within the limits is."""
        if not self.explain:
            return ""
        root = _Node(0.0, 0, self.box.lower, self.box.upper, tuple(c.permitted for c, _ in self.free_choices))
        problem = self._cone(root)
        if contradict(problem):
            return "the limits contradict each other: no row keeps to all of them"
        slope = np.append(problem.slope[:-1], problem.slope[-1] + MARGIN)
        none = f"no row within the limits is certified at epsilon={describe(self.problem.ellipsoid.epsilon)}"
        try:
            radius = largest_radius(replace(problem, slope=slope), self.problem.ellipsoid.whitening)
        except InconclusiveError:
            return none
        if radius < SMALLEST_RADIUS:
            return f"{none}, nor at epsilon=0: the model itself accepts none"
        at_most = "at most " if self.region.is_discrete else ""
        return f"{none}: the largest epsilon for which one is: {at_most}{describe(radius)}"
