"""Few changes: searches over which features may change.

For linear models, in place of the paper's Algorithm 3 (which orders features by summed gradients): g₁ is concave, so a
tangent at any point bounds it from above by a sum over features. That proves how many features are needed at least,
and rules out most sets. What is left is solved exactly, or, if that is too much, a greedy set is made smaller and then
extended.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from thrifty._common.checks import whole
from thrifty.solvers.ellice.branching import Effort, Row, branch_and_bound
from thrifty.solvers.ellice.exact import nearest_single_change, solve_exact
from thrifty.solvers.ellice.problem import MARGIN, Answer, Problem

Sparsity = int | Literal["min"] | None
Support = tuple[int, ...]


def check_sparsity(sparsity: Sparsity) -> None:
    """Refuse what is not a number of features.

    Raises:
        ValueError: It is neither ``None``, ``"min"`` nor a whole number from 1 on.
    """
    if sparsity is None or sparsity == "min":
        return
    try:
        whole("sparsity", sparsity)
    except ValueError:
        raise ValueError(
            f"sparsity: expected None, 'min', or the most features that may change (1, 2, ...), got {sparsity!r}"
        ) from None


def solve_sparse(problem: Problem, row: Row, sparsity: Sparsity, effort: Effort) -> Answer:
    """Return the nearest certified row with few changed features.

    Args:
        problem: Of a linear model.
        row: One encoded person.
        sparsity: The most features that may change; ``"min"``: as few as possible.
        effort: ``max_combinations`` bounds the sets of features that are solved; if more are left, the answer is
            called ``"feasible"``.
    """
    search = _Supports(problem, row, effort)
    answer = _search(search, problem, row, sparsity, effort)
    if search.doubt and answer.status in ("optimal", "infeasible"):
        return Answer(answer.row, "not_found" if answer.row is None else "feasible", search.doubt)
    return answer


def _search(search: _Supports, problem: Problem, row: Row, sparsity: Sparsity, effort: Effort) -> Answer:
    if search.box.obstacle:
        return Answer(None, "infeasible", search.box.obstacle)
    n = len(search.units)
    most = n if sparsity == "min" else min(int(sparsity or 0), n)
    least = search.least()
    if least > most:
        if most == n:
            return solve_exact(problem, row[None], effort)[0]
        return Answer(None, "infeasible", f"at least {least} features would have to change")
    reached = search.greedy()
    if sparsity == "min":
        for k in range(least, len(reached) if reached else most + 1):
            best = search.all_of_size(k)
            if best is None:
                break  # too many to prove anything
            if best.row is not None:
                return best
        most = len(reached) if reached else most
    best = search.all_of_size(most)
    if best is None:
        if reached is None or len(reached) > most:
            return Answer(None, "not_found", f"no change of {most} features was found; at least {least} are needed")
        return Answer(search.solve(search.extend(reached, most)).row, "feasible", "not all sets of features were tried")
    if best.row is not None:
        proven = sparsity != "min" or least == most or search.proven_below >= most
        return best if proven else Answer(best.row, "feasible", "fewer features may do")
    if most == n:
        return solve_exact(problem, row[None], effort)[0]
    return Answer(None, "infeasible", f"no change of at most {most} features is certified")


@dataclass(frozen=True, eq=False)
class _Tangent:
    """An upper bound on how certified a row can be when the features of a set change: base + Σ gains."""

    base: float
    gains: Float[np.ndarray, " units"]


class _Supports:
    """Sets of features of one person, by their positions in ``units``."""

    def __init__(self, problem: Problem, row: Row, effort: Effort) -> None:
        self.problem, self.row, self.effort = problem, row, effort
        self.units = problem.mutable_units()
        self.box = problem.region.box(row)
        self.shape = problem.ellipsoid.shape()
        self.theta = problem.sign * problem.ellipsoid.theta
        self.level = problem.sign * problem.threshold + MARGIN
        self.tangents = [self._tangent(row)]
        self.proven_below = 1  # no smaller set will do
        self.doubt = ""  # why a set that was tried is not settled, if so

    def _slack(self, x: Row) -> tuple[float, Float[np.ndarray, " d"]]:
        """Return g₁ less the threshold, and its gradient."""
        full = np.append(x, 1.0)
        inner = self.shape @ full
        norm = float(np.linalg.norm(inner))
        return float(self.theta @ full) - norm - self.level, (self.theta - self.shape.T @ inner / max(norm, 1e-300))[
            :-1
        ]

    def _tangent(self, at: Row) -> _Tangent:
        """Bound g₁(x) ≤ g₁(y) + ∇g₁(y)(x − y), split by feature: what is not in a set stays as the person has it."""
        value, slope = self._slack(at)
        with np.errstate(invalid="ignore"):
            highest = np.where(
                slope == 0, 0.0, np.maximum(slope * (self.box.lower - at), slope * (self.box.upper - at))
            )
        stays = slope * (self.row - at)
        return _Tangent(
            value + float(stays.sum()), np.array([float((highest - stays)[unit].sum()) for unit in self.units])
        )

    def least(self) -> int:
        """Return a number of features below which no set can do."""
        needed = self.proven_below
        for tangent in self.tangents:
            reach = tangent.base + np.cumsum(np.sort(np.maximum(tangent.gains, 0.0))[::-1])
            enough = np.flatnonzero(reach >= -1e-9)
            needed = max(needed, int(enough[0]) + 1 if len(enough) else len(self.units) + 1)
        self.proven_below = needed
        return needed

    def promising(self, k: int) -> Iterator[Support]:
        """Yield the sets of ``k`` features that no tangent rules out."""
        gains = np.array([tangent.gains for tangent in self.tangents])
        bases = np.array([tangent.base for tangent in self.tangents])
        for support in itertools.combinations(range(len(self.units)), k):
            if (bases + gains[:, support].sum(axis=1) >= -1e-9).all():
                yield support

    def all_of_size(self, k: int) -> Answer | None:
        """Solve every promising set of ``k`` features; return the nearest answer, or ``None`` if there are too many."""
        if k == 1:
            return self._single()
        n, budget = len(self.units), self.effort.max_combinations
        # Looking at sets is cheap beside solving them, but not free.
        if _count(n, k) > 200 * budget:
            return None
        supports = list(itertools.islice(self.promising(k), budget + 1))
        if len(supports) > budget:
            return None
        return self._nearest_of(supports)

    def _nearest_of(self, supports: list[Support]) -> Answer:
        best = Answer(None, "infeasible")
        for support in supports:
            answer = self.solve(support)
            if answer.status not in ("optimal", "infeasible"):
                self.doubt = answer.message
            if answer.row is not None and (best.row is None or self.far(answer.row) < self.far(best.row)):
                best = answer
        return best

    def solve(self, support: Support) -> Answer:
        """Solve exactly when only these features may change."""
        columns = np.concatenate([self.units[u] for u in support])
        return branch_and_bound(self.problem.frozen_but(columns), self.row, self.effort, explain=False)

    def far(self, row: Row) -> float:
        """Return the distance of an answer."""
        return float(self.problem.distance_of(row[None], self.row)[0])

    def _single(self) -> Answer:
        """Try every feature alone: numbers all at once in closed form, the rest by the exact solver."""
        inside = bool(((self.row >= self.box.lower - 1e-12) & (self.row <= self.box.upper + 1e-12)).all())
        plain = inside and not len(self.problem.region.b) and self.problem.deployed is None
        lattices = self.problem.region.lattices
        lone = [u for u, unit in enumerate(self.units) if plain and len(unit) == 1 and int(unit[0]) not in lattices]
        best = Answer(None, "infeasible")
        if lone:
            columns = np.array([self.units[u][0] for u in lone])
            values, fine = nearest_single_change(self.problem, self.row, columns, self.box)
            answers = np.repeat(self.row[None], len(lone), axis=0)
            answers[np.arange(len(lone)), columns] = np.where(fine, values, self.row[columns])
            far = np.where(fine, self.problem.distance_of(answers, self.row), np.inf)
            if np.isfinite(far).any():
                best = Answer(answers[int(far.argmin())], "optimal")
        rest = [(u,) for u in range(len(self.units)) if u not in lone]
        other = self._nearest_of([support for support in rest if support in set(self.promising(1))])
        if other.row is not None and (best.row is None or self.far(other.row) < self.far(best.row)):
            best = other
        return best

    def greedy(self) -> Support | None:
        """Return a set that will do, from which no feature can be left out; ``None`` if none was found.

        Features are taken in the order in which moving one as far as it helps lifts g₁ most.
        """
        x = np.clip(self.row, self.box.lower, self.box.upper)
        chosen: list[int] = []
        left = list(range(len(self.units)))
        while left:
            value, _ = self._slack(x)
            moved = [self._lift(x, self.units[u]) for u in left]
            pick = int(np.argmax([gain for gain, _ in moved]))
            if moved[pick][0] <= value + 1e-12:
                break
            x = moved[pick][1]
            chosen.append(left.pop(pick))
            if moved[pick][0] >= 0 and self.solve(tuple(chosen)).row is not None:
                self.tangents.append(self._tangent(x))
                return self._thin(chosen)
        everything = tuple(range(len(self.units)))
        return self._thin(list(everything)) if self.solve(everything).row is not None else None

    def _thin(self, chosen: list[int]) -> Support:
        """Leave out what is not needed, the last taken first."""
        for unit in chosen[::-1]:
            fewer = [u for u in chosen if u != unit]
            if fewer and self._could(tuple(fewer)) and self.solve(tuple(fewer)).row is not None:
                chosen = fewer
        return tuple(chosen)

    def _could(self, support: Support) -> bool:
        return all(t.base + float(t.gains[list(support)].sum()) >= -1e-9 for t in self.tangents)

    def _lift(self, x: Row, unit: NDArray[np.intp]) -> tuple[float, Row]:
        """Return the highest g₁ that moving one feature reaches, and where (a category: over its levels)."""
        options: list[Row] = []
        choice = next((c for c in self.problem.region.choices if int(unit[0]) in c.columns), None)
        if choice is not None:
            for level in choice.permitted:
                other = x.copy()
                choice.write(other, level)
                options.append(other)
        else:
            j = int(unit[0])
            for value in (self.box.lower[j], self.box.upper[j], self._summit(x, j)):
                other = x.copy()
                other[j] = np.clip(value, max(self.box.lower[j], -1e6), min(self.box.upper[j], 1e6))
                options.append(other)
        values = [self._slack(option)[0] for option in options]
        best = int(np.argmax(values))
        return values[best], options[best]

    def _summit(self, x: Row, j: int) -> float:
        """Return where g₁ is highest along one column: pδ − √(qδ² + 2rδ + s) has its top at a closed form, if any."""
        across, tail = self.shape[:, j], self.shape @ np.append(x, 1.0)
        p, q, r, s = self.theta[j], float(across @ across), float(across @ tail), float(tail @ tail)
        gap = q - p * p
        if gap <= 0 or q <= 0:
            return float(np.copysign(np.inf, p))
        return float(x[j] - r / q + p / q * np.sqrt(max(0.0, (q * s - r * r)) / gap))

    def extend(self, support: Support, k: int) -> Support:
        """Add features up to ``k``, each time the one along which leaving its value would gain most."""
        chosen = list(support)
        while len(chosen) < k:
            at = self.solve(tuple(chosen)).row
            left = [u for u in range(len(self.units)) if u not in chosen]
            if at is None or not left:
                break
            _, slope = self._slack(at)
            room = np.where(slope > 0, self.box.upper - at, at - self.box.lower) > 1e-9
            pull = np.abs(slope) * room / np.sqrt(self.problem.region.weights)
            chosen.append(max(left, key=lambda u: float(pull[self.units[u]].max())))
        return tuple(chosen)


def _count(n: int, k: int) -> int:
    count = 1
    for i in range(k):
        count = count * (n - i) // (i + 1)
    return count
