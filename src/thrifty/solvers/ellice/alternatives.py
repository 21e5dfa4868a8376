"""Several answers a person, which change different sets of features; for any solver."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from jaxtyping import Float

from thrifty.solvers.ellice.distances import changed_units
from thrifty.solvers.ellice.problem import Answer, Problem, SolveAll

Row = Float[np.ndarray, " d"]


def alternatives(solve: SolveAll, problem: Problem, row: Row, first: Answer, k: int) -> list[Answer]:
    """Return up to ``k`` answers that change different sets of features, nearest first.

    Each answer is solved again without one of the features that it changes; the nearest of all results comes next.

    Args:
        solve: The solver.
        problem: The problem.
        row: One encoded person.
        first: The answer without further limits.
        k: How many.
    """
    if first.row is None or k == 1:
        return [first]
    units = [np.array(unit) for unit in problem.region.units]
    found: list[Answer] = []
    seen_supports: set[tuple[int, ...]] = set()
    tried: set[frozenset[int]] = {frozenset()}
    order = itertools.count()

    def far(answer: Answer) -> float:
        assert answer.row is not None
        return float(problem.distance_of(answer.row[None], row)[0])

    heap = [(far(first), next(order), first, frozenset[int]())]
    while heap and len(found) < k:
        _, _, answer, banned = heapq.heappop(heap)
        assert answer.row is not None
        support = tuple(np.flatnonzero(changed_units(answer.row[None], row, problem.region)[0]).tolist())
        if support not in seen_supports:
            seen_supports.add(support)
            found.append(answer)
        if len(found) == k:
            break
        moved = np.abs(answer.row - row)
        largest = sorted(support, key=lambda u, moved=moved: -float(moved[units[u]].max()))[:4]  # type: ignore[misc]
        for unit in largest:
            without = banned | {unit}
            if without in tried:
                continue
            tried.add(without)
            child = solve(problem.without(np.concatenate([units[u] for u in without])), row[None])[0]
            if child.row is not None:
                heapq.heappush(heap, (far(child), next(order), child, without))
    return found
