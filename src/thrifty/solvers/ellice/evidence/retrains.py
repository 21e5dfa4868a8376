"""Experiment C for linear models: robustness over bootstrap retrainings against distance, every contender's frontier.

Every contender is run over a grid of its own robustness parameter. Ours is judged at ε = 0.005 and 0.01, against what
each rival reaches at the same mean L2 on its frontier; and, more strictly, over our whole frontier against every point
of every rival's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.ellice import ElliCE, EpsilonTooLargeError
from thrifty.solvers.ellice.evidence import contenders, tables
from thrifty.solvers.ellice.evidence import frontiers as f
from thrifty.solvers.ellice.evidence.settings import LINEAR, Settings
from thrifty.solvers.ellice.evidence.tables import L2, Case
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.rivals import margin, proplace, roar, robust_neighbours, trex

#: Fixed before the first run: the paper's Diabetes table, and one with more columns.
TABLES = ("pima", "german")
#: Fine near 0, where distance grows with the root of ε, so that interpolation does not cut the corner.
EPSILONS = (
    0.0, 1e-5, 5e-5, 1e-4, 2e-4, 4e-4, 7e-4, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.005, 0.008, 0.01, 0.015, 0.03, 0.05,
    0.08,
)  # fmt: skip
#: Where ours is judged.
OPERATING = tuple(EPSILONS.index(epsilon) for epsilon in (0.005, 0.01))
MARGINS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
STABILITIES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
DELTAS = (0.005, 0.01, 0.02, 0.04, 0.07, 0.1)
LIBRARY_EPSILONS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.015)

Answers = np.ndarray


def show(ctx: Context, evidence: Evidence) -> None:
    """Three seeds (full: five) on two tables."""
    names = TABLES if ctx.data is None else tables.names(ctx)
    if not contenders.library_is_installed():
        evidence.row("ellice 0.1.4", {}, workload="retraining", error="not installed: pip install ellice==0.1.4")
    leads = f.contest(ctx, evidence, "bootstrap", names, ctx.seeds(quick=3, full=5), partial(measure, ctx), OPERATING)
    for claim, (least, where) in (
        ("stable-over-retrains", leads.chosen),
        ("accepted-by-all-retrains", leads.by_all),
        ("ahead-on-the-whole-frontier", leads.anywhere),
    ):
        evidence.measured(claim, Measurement.of(least, "share"), reason=f"nearest: {where}")


def measure(ctx: Context, name: str, seed: int) -> dict[str, f.Frontier]:
    """Return every contender's frontier for one split."""
    persons, models = (40, 50) if ctx.full else (15, 20)
    case = tables.case(ctx, name, seed, persons)
    return frontiers(case, bootstrap(case, models, seed), seed, LINEAR, full=ctx.full)


def bootstrap(case: Case, k: int, seed: int) -> np.ndarray:
    """Return the parameters of ``k`` models fitted to other samples of the training table, ``[k, m]``."""
    rng = np.random.default_rng([seed, 1])
    thetas = []
    for _ in range(k):
        at = rng.integers(0, len(case.y), len(case.y))
        again = LogisticRegression(C=1 / (L2 * len(at)), max_iter=2000).fit(case.X[at], case.y[at])
        thetas.append(np.append(again.coef_[0], again.intercept_))
    return np.array(thetas)


def frontiers(
    case: Case, stack: np.ndarray, seed: int, settings: Settings, *, full: bool, only: str | None = None
) -> dict[str, f.Frontier]:
    """Judge every contender (or one) over its grid by a stack of models."""
    rows = case.rejected

    def accepts(answers: Answers) -> np.ndarray:
        return np.asarray(stack @ with_constant(answers).T >= 0)

    found: dict[str, f.Frontier] = {}
    for who, answers in _answers(case, seed, settings, full):
        if only in (None, who):
            points = [f.point(answer(), rows, accepts) for answer in answers]
            found[who] = [one for one in points if one is not None]
    return found


def _answers(
    case: Case, seed: int, settings: Settings, full: bool
) -> Iterator[tuple[str, list[Callable[[], Answers]]]]:
    """Yield contenders, with what gives their answers for every value of their parameter."""
    rows, theta = case.rejected, case.theta
    weights = torch.as_tensor(theta[:-1])
    layers = [(theta[None, :-1], theta[-1:])]
    base = ElliCE(case.model, epsilon=0.0, l2=settings.l2, bounds=None).fit(case.X, case.y)

    def logit(x: torch.Tensor) -> torch.Tensor:
        return x @ weights + float(theta[-1])

    def ours(epsilon: float) -> Answers:
        try:
            return np.asarray(base.with_epsilon(epsilon).explain(rows).counterfactuals.to_numpy(float))
        except EpsilonTooLargeError:
            return np.full_like(rows, np.nan)

    def library(epsilon: float) -> Answers:
        answer = contenders.library(case.model, case.X, case.y, epsilon, settings.library_l2)
        return np.asarray(answer(rows))

    variance, rate = settings.trex
    price, pace = settings.roar
    near = 300 if full else 50

    def some(grid: tuple[float, ...]) -> tuple[float, ...]:
        return grid if full else grid[::2]

    yield f.OURS, [partial(ours, epsilon) for epsilon in EPSILONS]
    yield "margin", [partial(margin, rows, theta, tau) for tau in MARGINS]
    yield (
        "T:Rex",
        [partial(trex, rows, logit, tau, k=near, variance=variance, lr=rate, seed=seed) for tau in some(STABILITIES)],
    )
    yield "ROAR", [partial(roar, rows, theta, delta, price=price, lr=pace) for delta in some(DELTAS)]
    yield "PROPLACE", [partial(proplace, rows, case.X, theta, delta, k=settings.proplace_k) for delta in some(DELTAS)]
    yield (
        "Δ-robust neighbours",
        [
            partial(robust_neighbours, rows, case.X, layers, delta, halvings=settings.neighbours_walk)
            for delta in DELTAS
        ],
    )
    if contenders.library_is_installed():
        yield "ellice 0.1.4", [partial(library, epsilon) for epsilon in some(LIBRARY_EPSILONS)]
