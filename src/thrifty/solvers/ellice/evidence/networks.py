"""Experiment C for networks: the paper's MLP16, retrained from other seeds by the same recipe.

As in ``retrains.py``, except that for a network the margin is found by the gradient solver too (ε = 0, a threshold
above the model's), ROAR sees a linear fit around each person, and PROPLACE, there a mixed-integer programme, is left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from scipy.special import expit

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.ellice import ElliCE, EpsilonTooLargeError
from thrifty.solvers.ellice.evidence import contenders, mlps, tables
from thrifty.solvers.ellice.evidence import frontiers as f
from thrifty.solvers.ellice.evidence.settings import NETWORK, Settings
from thrifty.solvers.ellice.evidence.tables import L2, Case
from thrifty.solvers.ellice.rivals import local_weights, roar, robust_neighbours, trex

TABLES = ("pima", "german")
EPSILONS = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04)
OPERATING = tuple(EPSILONS.index(epsilon) for epsilon in (0.005, 0.01))
MARGINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0)
STABILITIES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
DELTAS = (0.005, 0.01, 0.02, 0.04, 0.07, 0.1)
LIBRARY_EPSILONS = (0.0005, 0.001, 0.002, 0.005, 0.01)

Answers = np.ndarray


def show(ctx: Context, evidence: Evidence) -> None:
    """Three seeds on two tables."""
    names = TABLES if ctx.data is None else tables.names(ctx)
    leads = f.contest(ctx, evidence, "MLP16", names, ctx.seeds(quick=3, full=3), partial(measure, ctx), OPERATING)
    least, where = leads.chosen
    rest = (
        f"accepted by all models: {leads.by_all[0]:+.3f} ({leads.by_all[1]}); over the whole frontier: "
        f"{leads.anywhere[0]:+.3f} ({leads.anywhere[1]})"
    )
    evidence.measured("network-over-retrains", Measurement.of(least, "share"), reason=f"nearest: {where}; {rest}")


def measure(ctx: Context, name: str, seed: int) -> dict[str, f.Frontier]:
    """Train the deployed network and thirty others, and return every contender's frontier."""
    case = tables.case(ctx, name, seed, 10_000)
    return frontiers(case, 30, 25, seed, NETWORK, ctx.device)


def frontiers(
    case: Case, models: int, persons: int, seed: int, settings: Settings, device: str = "cpu", only: str | None = None
) -> dict[str, f.Frontier]:
    """Judge every contender (or one) over its grid by networks from other seeds."""
    module, others = mlps.train(case.X, case.y, models + 1, seed, L2).split()
    with torch.no_grad():
        rows = case.held[module(torch.as_tensor(case.held)).numpy()[:, 0] < 0][:persons]
    found: dict[str, f.Frontier] = {}
    for who, answers in _answers(case, module, rows, seed, settings, device):
        if only in (None, who):
            points = [f.point(answer(), rows, lambda x: others.judge(x) >= 0) for answer in answers]
            found[who] = [one for one in points if one is not None]
    return found


def _answers(
    case: Case, module: torch.nn.Sequential, rows: np.ndarray, seed: int, settings: Settings, device: str
) -> Iterator[tuple[str, list[Callable[[], Answers]]]]:
    X, y = case.X, case.y
    base = ElliCE(module, epsilon=0.0, l2=settings.l2, bounds=None, device=device).fit(X, y)

    def explain(explainer: ElliCE) -> Answers:
        return np.asarray(explainer.explain(rows).counterfactuals.to_numpy(float))

    def ours(epsilon: float) -> Answers:
        try:
            return explain(base.with_epsilon(epsilon))
        except EpsilonTooLargeError:
            return np.full_like(rows, np.nan)

    def margin(tau: float) -> Answers:
        return explain(ElliCE(module, epsilon=0.0, bounds=None, threshold=float(expit(tau)), device=device).fit(X, y))

    def logit(x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = module(x)
        return out[:, 0]

    def library(epsilon: float) -> Answers:
        answer = contenders.library(module, X, y, epsilon, settings.library_l2, backend="pytorch")
        return np.asarray(answer(rows))

    for parameter in module.parameters():
        parameter.requires_grad_(False)
    parts = [parameter.numpy() for parameter in module.parameters()]
    layers = [(parts[0], parts[1]), (parts[2], parts[3])]
    variance, rate = settings.trex
    price, pace = settings.roar
    weights = local_weights(rows, logit, seed=seed)
    yield f.OURS, [partial(ours, epsilon) for epsilon in EPSILONS]
    yield "margin", [partial(margin, tau) for tau in MARGINS]
    yield (
        "T:Rex",
        [partial(trex, rows, logit, tau, k=100, variance=variance, lr=rate, seed=seed) for tau in STABILITIES],
    )
    yield "ROAR", [partial(roar, rows, weights, delta, price=price, lr=pace) for delta in DELTAS]
    yield (
        "Δ-robust neighbours",
        [partial(robust_neighbours, rows, X, layers, delta, halvings=settings.neighbours_walk) for delta in DELTAS],
    )
    if contenders.library_is_installed():
        yield "ellice 0.1.4", [partial(library, epsilon) for epsilon in LIBRARY_EPSILONS]
