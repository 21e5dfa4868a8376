"""From an explainer's settings to the solver that answers, and from persons to answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty.solvers.ellice.alternatives import alternatives
from thrifty.solvers.ellice.branching import Effort
from thrifty.solvers.ellice.encoding import Encoded
from thrifty.solvers.ellice.exact import solve_exact, solve_on_true_set
from thrifty.solvers.ellice.nearest import nearest_known, solve_nearest
from thrifty.solvers.ellice.problem import Answer, Problem, SolveAll, already_valid
from thrifty.solvers.ellice.supports import solve_sparse
from thrifty.solvers.ellice.true_rashomon import worst_true_model

if TYPE_CHECKING:
    from thrifty.solvers.ellice.explainer import ElliCE

Row = NDArray[np.float64]


def solve(explainer: ElliCE, problem: Problem, rows: Encoded, k: int) -> list[list[Answer]]:
    """Return up to ``k`` answers for every person; those whom the models accept already keep their row."""
    valid = already_valid(problem, rows)
    if explainer.certify == "rashomon":
        worst = _worst_model(explainer, problem.sign)
        for i in np.flatnonzero(valid):
            valid[i] = problem.sign * (np.append(rows[i], 1.0) @ worst(rows[i]) - problem.threshold) >= 0
    answers: list[list[Answer]] = [
        [Answer(row, "already_valid")] if ok else [] for row, ok in zip(rows, valid, strict=True)
    ]
    open_ = np.flatnonzero(~valid)
    if not len(open_):
        return answers
    if explainer.method_ == "data":
        for i, found in zip(open_, solve_nearest(problem, rows[open_], explainer.candidates_, k), strict=True):
            answers[i] = found
        return answers
    solver = _exact(explainer) if explainer.method_ == "exact" else _gradient(explainer)
    for i, first in zip(open_, solver(problem, rows[open_]), strict=True):
        answers[i] = alternatives(solver, problem, rows[i], first, k)
    return answers


def _exact(explainer: ElliCE) -> SolveAll:
    effort = Effort(explainer.solver, explainer.max_combinations)
    if explainer.certify == "rashomon":
        return lambda problem, rows: [
            solve_on_true_set(problem, row, effort, _worst_model(explainer, problem.sign)) for row in rows
        ]
    if explainer.sparsity is None:
        return partial(solve_exact, effort=effort)
    return lambda problem, rows: [solve_sparse(problem, row, explainer.sparsity, effort) for row in rows]


def _gradient(explainer: ElliCE) -> SolveAll:
    require("torch", extra="torch")
    from thrifty.solvers.ellice import gradient

    descent = gradient.Descent(preset=explainer.preset, n_restarts=explainer.n_restarts)
    seed = 0 if explainer.random_state is None else explainer.random_state
    if explainer.sparsity is not None:
        most = None if explainer.sparsity == "min" else int(explainer.sparsity)
        return lambda problem, rows: gradient.solve_sparse_gradient(problem, rows, most, descent, seed)

    def solve_all(problem: Problem, rows: Encoded) -> list[Answer]:
        known = None
        if explainer.preset == "closest":
            known = nearest_known(problem, rows, explainer.candidates_, gradient.KNOWN_STARTS)
        return gradient.solve_gradient(problem, rows, descent, seed, known=known)

    return solve_all


def _worst_model(explainer: ElliCE, sign: int) -> Callable[[Row], Row]:
    """Return what gives, for an encoded row, the model of the true Rashomon set that is worst for it."""
    rashomon = explainer.rashomon_
    training, y = rashomon._rows, rashomon._y
    if training is None:
        raise ValueError(
            "certify='rashomon' needs the whole training table; a saved or sharded explainer lacks it: fit again"
        )
    bound, theta = rashomon.objective_ + rashomon.ellipsoid_.epsilon, rashomon.ellipsoid_.theta
    return lambda row: worst_true_model(np.append(row, 1.0), sign, training, y, explainer.l2, bound, theta)
