"""The exact solver for linear models, where {g₁ ≥ t} is one second-order cone, hence convex.

A projection where nothing binds, a cone programme where something does, and branch and bound (``branching.py``) over
categories, integers and allowed values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from thrifty.solvers.ellice.branching import Effort, Row, branch_and_bound
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.problem import MARGIN, Answer, Problem
from thrifty.solvers.ellice.projection import Projector
from thrifty.solvers.ellice.region import Box


def solve_exact(problem: Problem, rows: Encoded, effort: Effort) -> list[Answer]:
    """Return the nearest certified row for every person.

    Args:
        problem: Of a linear model.
        rows: Encoded persons, ``[n, d]``; none of them already valid.
        effort: Which solver, and how much of it.

    Returns:
        One answer a person: ``"optimal"``, ``"feasible"`` (certified; branching was cut short) or ``"infeasible"``.
    """
    if problem.distance == "sparse":
        raise ValueError(
            "distance: expected another than 'sparse', which is for method='data' (here sparsity= keeps changes few)"
        )
    quick = _project(problem, rows)
    return [
        Answer(quick[i], "optimal") if not np.isnan(quick[i]).any() else branch_and_bound(problem, row, effort)
        for i, row in enumerate(rows)
    ]


def solve_on_true_set(
    problem: Problem, row: Row, effort: Effort, worst: Callable[[Row], Float[np.ndarray, " m"]], *, rounds: int = 60
) -> Answer:
    """Return the nearest row that the whole true Rashomon set accepts (and the ellipsoid too), by cutting planes.

    The worst true model of an answer that fails is a linear limit that every answer must keep to; solved again with
    it, the next answer is the nearest under all limits found so far, so the first that does not fail is the nearest.

    Args:
        problem: Of a linear model.
        row: One encoded person.
        effort: Of each solve.
        worst: From an encoded row to the parameters of the model in the true set that is worst for it.
        rounds: Cuts at most; past them the last answer is not handed out.
    """
    sign = problem.sign
    for _ in range(rounds):
        answer = solve_exact(problem, row[None], effort)[0]
        if answer.row is None:
            return answer
        theta = worst(answer.row)
        if sign * (float(theta[:-1] @ answer.row + theta[-1]) - problem.threshold) >= 0:
            return answer
        right = sign * (float(theta[-1]) - problem.threshold) - MARGIN
        A, b = np.vstack([problem.region.A, -sign * theta[None, :-1]]), np.append(problem.region.b, right)
        problem = replace(problem, region=replace(problem.region, A=A, b=b))
    return Answer(None, "not_found", f"the true Rashomon set was not satisfied after {rounds} cuts")


def _project(problem: Problem, rows: Encoded) -> Encoded:
    """Project all at once; NaN where that is not the answer: something binds, or parts are discrete."""
    region = problem.region
    if problem.distance == "l1" or problem.deployed is not None:
        return np.full_like(rows, np.nan)
    if region.is_discrete and not all(region.frozen[c.columns].all() for c in region.choices):
        return np.full_like(rows, np.nan)
    if any(not region.frozen[j] for j in region.lattices) or region.frozen.all():
        return np.full_like(rows, np.nan)
    projector = Projector.build(problem.ellipsoid, problem.sign, region.weights, region.frozen)
    found, feasible = projector.project(rows, problem.sign, problem.threshold, MARGIN)
    for i in np.flatnonzero(feasible):
        box = region.box(rows[i])
        inside = box.obstacle is None and bool(((found[i] >= box.lower) & (found[i] <= box.upper)).all())
        if not inside or (len(region.b) and bool((region.A @ found[i] > region.b).any())):
            found[i] = np.nan
    return found


def nearest_single_change(
    problem: Problem, row: Row, columns: NDArray[np.intp], box: Box
) -> tuple[Float[np.ndarray, " k"], Bool[np.ndarray, " k"]]:
    """Return for each column alone the smallest certified change, all at once: each is a root of a quadratic.

    Along column j by δ the logit is l + pδ and the squared spread qδ² + 2rδ + s, so a certified δ solves
    (l + pδ)² = qδ² + 2rδ + s with l + pδ ≥ 0.

    Returns:
        The changed value of every column, and whether there is one within its bounds.
    """
    matrix = problem.ellipsoid.shape()
    x = np.append(row, 1.0)
    theta = problem.sign * problem.ellipsoid.theta
    level = float(theta @ x) - problem.sign * problem.threshold - MARGIN
    p = theta[columns]
    across = matrix[:, columns]
    tail = matrix @ x
    q, r, s = np.einsum("ij,ij->j", across, across), across.T @ tail, float(tail @ tail)
    a, b, c = p**2 - q, level * p - r, level**2 - s
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(b**2 - a * c)
        deltas = np.stack([(-b - root) / a, (-b + root) / a, np.where(np.abs(a) < 1e-14, -c / (2 * b), np.nan)])
    values = row[columns] + deltas
    fine = np.isfinite(values) & (level + p * deltas >= -1e-9)
    fine &= (values >= box.lower[columns]) & (values <= box.upper[columns])
    size = np.where(fine, np.abs(deltas), np.inf)
    pick = size.argmin(axis=0)
    at = np.arange(len(columns))
    return np.where(np.isfinite(size[pick, at]), values[pick, at], np.nan), np.isfinite(size[pick, at])
