"""Answers that are rows of a table: the nearest certified one (the paper's data-supported generator).

All candidates are certified once. After that a query costs one scan over the certified ones, or a look-up in a k-d
tree where the distance is a norm, nothing is constrained and the columns are few.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from thrifty.solvers.ellice.distances import distances
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.geometry import Ellipsoid
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.problem import Answer, Problem, describe
from thrifty.solvers.ellice.region import Region

#: Up to this many columns a k-d tree looks at a small part of its points only.
TREE_COLUMNS = 10


#: What an answer of this solver is nearest among.
KNOWN = "nearest among the known rows"


@dataclass(eq=False)
class Candidates:
    """Known rows, with what their certificates are made of.

    Args:
        rows: Encoded, ``[n, d]``.
        features: h of them; ``[n, p]``.
    """

    rows: Encoded
    features: Float[np.ndarray, "n p"]
    _spread: NDArray[np.float64] | None = field(default=None, init=False)
    _certified: dict[tuple[float, ...], NDArray[np.intp]] = field(default_factory=dict, init=False)
    _trees: dict[tuple[float, ...], KDTree] = field(default_factory=dict, init=False)

    def spread(self, ellipsoid: Ellipsoid) -> NDArray[np.float64]:
        """Return √(x̃ᵀH⁻¹x̃), computed once."""
        if self._spread is None:
            self._spread = ellipsoid.spread(with_constant(self.features))
        return self._spread

    def certified(self, problem: Problem) -> NDArray[np.intp]:
        """Return the positions of rows that are certified (and valid under the deployed model), found once."""
        key = self._key(problem)
        if key not in self._certified:
            rows, ellipsoid, sign = with_constant(self.features), problem.ellipsoid, problem.sign
            worst = sign * (rows @ ellipsoid.theta - problem.threshold)
            worst = worst - np.sqrt(2 * ellipsoid.epsilon) * self.spread(ellipsoid)
            if problem.deployed is not None:
                worst = np.minimum(worst, sign * (rows @ problem.deployed - problem.threshold))
            self._certified[key] = np.flatnonzero(worst >= 0)
        return self._certified[key]

    def tree(self, problem: Problem) -> KDTree:
        """Return a k-d tree of the certified rows, columns scaled for the distance; built once."""
        key = (*self._key(problem), float(problem.distance == "l1"))
        if key not in self._trees:
            self._trees[key] = KDTree(self.rows[self.certified(problem)] * _scale(problem))
        return self._trees[key]

    def best_radius(self, problem: Problem) -> float:
        """Return the largest ε at which any candidate is certified."""
        return float(
            problem.ellipsoid.radius(with_constant(self.features), problem.sign, problem.threshold).max(initial=0)
        )

    def _key(self, problem: Problem) -> tuple[float, ...]:
        return (problem.ellipsoid.epsilon, float(problem.sign), problem.threshold)


def solve_nearest(problem: Problem, rows: Encoded, candidates: Candidates, k: int = 1) -> list[list[Answer]]:
    """Return for every person the ``k`` nearest certified candidates within the limits.

    Args:
        problem: The problem.
        rows: Encoded persons, ``[n, d]``.
        candidates: Known rows.
        k: How many.

    Returns:
        For each person up to ``k`` answers, nearest first; one ``"no_candidate"`` answer where there is none.
    """
    certified = candidates.certified(problem)
    if not len(certified):
        radius = describe(candidates.best_radius(problem))
        message = f"no candidate row is certified; the largest epsilon for which one is: {radius}"
        return [[Answer(None, "no_candidate", message)] for _ in rows]
    known = candidates.rows[certified]
    if _is_open(problem.region):
        return [
            [Answer(known[at], "optimal", KNOWN) for at in near]
            for near in _nearest(problem, rows, known, candidates, k)
        ]
    answers: list[list[Answer]] = []
    for row in rows:
        fine = np.flatnonzero(problem.region.satisfied(known, row))
        far = distances(known[fine], row, problem.region, problem.distance)
        near = fine[np.argsort(far, kind="stable")[:k]]
        nothing = Answer(
            None, "no_candidate", f"none of the {len(certified)} certified candidates is within the limits"
        )
        answers.append([Answer(known[at], "optimal", KNOWN) for at in near] or [nothing])
    return answers


def nearest_known(problem: Problem, rows: Encoded, candidates: Candidates, k: int) -> Float[np.ndarray, "n k d"]:
    """Return for every person ``k`` certified candidates: the nearest within the limits, then the nearest at all.

    NaN where there are fewer.
    """
    found = np.full((len(rows), k, rows.shape[1]), np.nan)
    known = candidates.rows[candidates.certified(problem)]
    for i, row in enumerate(rows):
        far = distances(known, row, problem.region, problem.distance)
        if not _is_open(problem.region):
            far[~problem.region.satisfied(known, row)] += 1e9  # last, but not left out
        near = known[np.argsort(far, kind="stable")[:k]]
        found[i, : len(near)] = near
    return found


def _nearest(problem: Problem, rows: Encoded, known: Encoded, candidates: Candidates, k: int) -> list[NDArray[np.intp]]:
    """Return the positions of the nearest candidates of every row, nothing being constrained."""
    k = min(k, len(known))
    if problem.distance in ("l2", "l1"):
        order = 1 if problem.distance == "l1" else 2
        if known.shape[1] <= TREE_COLUMNS:
            near = candidates.tree(problem).query(rows * _scale(problem), k=k, p=order)[1]
            return list(np.reshape(near, (len(rows), k)))
        scale = _scale(problem)
        metric = "cityblock" if order == 1 else "sqeuclidean"
        chunk = max(1, 10_000_000 // len(known))
        return [
            near
            for at in range(0, len(rows), chunk)
            for near in _smallest(cdist(rows[at : at + chunk] * scale, known * scale, metric), k)
        ]
    return [_smallest(distances(known, row, problem.region, problem.distance)[None], k)[0] for row in rows]


def _smallest(far: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    if k == 1:
        return np.asarray(far.argmin(axis=1)[:, None])
    return np.argsort(far, axis=1, kind="stable")[:, :k]


def _scale(problem: Problem) -> NDArray[np.float64]:
    weights = problem.region.weights
    return weights if problem.distance == "l1" else np.sqrt(weights)


def _is_open(region: Region) -> bool:
    """Tell whether every row of the training table is within everybody's limits."""
    return not (
        region.frozen.any()
        or region.direction.any()
        or region.lattices
        or len(region.b)
        or np.isfinite(region.lower).any()
        or np.isfinite(region.upper).any()
        or any(len(c.permitted) < len(c.columns) + c.has_baseline for c in region.choices)
    )
