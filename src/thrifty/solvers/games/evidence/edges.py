"""Beside EdgeCB, which estimates a loss for every edge of a layered graph, on its authors' own instance."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.solvers.games import BlottoSet, ColonelBlotto, KernelizedGeometricHedge, solve_cce
from thrifty.solvers.games.rivals import EdgeCB, comband_tuning

OURS, EDGES = "kernels", "EdgeCB"
#: Values of the battlefields; the enemy drops as many soldiers on them, each with chances in proportion to the values.
VALUES = np.array([0.19111493, 0.11137238, 0.1715812, 0.25752549, 0.19212109, 0.07628491])
SOLDIERS = 3
#: Step size and exploration: those of ComBand's theorem, and those that do well in so short a time.
SETTINGS = {"ComBand's tuning": None, "eta 0.03, gamma 0.05": (0.03, 0.05)}


def learner(who: str, horizon: int, setting: str) -> Any:
    """Return a contender, with the same numbers and uniform exploration for both."""
    actions = BlottoSet(SOLDIERS, len(VALUES))
    fixed = SETTINGS[setting]
    eta, gamma = fixed or comband_tuning(EdgeCB(SOLDIERS, len(VALUES), 0.1, 0.1), horizon, actions.log_size)
    if who == EDGES:
        return EdgeCB(SOLDIERS, len(VALUES), eta, gamma)
    return KernelizedGeometricHedge(actions, horizon, eta=eta, gamma=gamma, exploration="uniform")


def regret(horizon: int, setting: str, who: str, seed: int) -> dict[str, float]:
    """Return what was lost beyond the best fixed allocation, and the seconds that learning took on one thread.

    Matrices of so few rows are slower on more.
    """
    with threads(1):
        return _regret(horizon, setting, who, seed)


def _regret(horizon: int, setting: str, who: str, seed: int) -> dict[str, float]:
    contender = learner(who, horizon, setting)
    enemy, rng = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    drops = enemy.multinomial(SOLDIERS, VALUES / VALUES.sum(), size=horizon)
    units = np.arange(SOLDIERS + 1)
    total, paid, seconds = np.zeros(len(VALUES) * len(units)), 0.0, 0.0
    for sent in drops:
        won = (units > sent[:, None]) + 0.5 * (units == sent[:, None])
        losses = (VALUES[:, None] * (1 - won)).ravel()
        began = time.perf_counter()
        taken = contender.act(rng)
        loss = float(losses[taken].sum())
        contender.observe(loss)
        seconds += time.perf_counter() - began
        total += losses
        paid += loss
    return {"regret": paid - BlottoSet(SOLDIERS, len(VALUES)).argmin(total)[1], "seconds": seconds}


def show(ctx: Context, evidence: Evidence) -> None:
    """Regret and time of both, and in full mode the race of two players to a gap."""
    horizon = 20_000 if ctx.full else 1500
    settings = list(SETTINGS) if ctx.full else list(SETTINGS)[1:]
    ratios: list[float] = []
    regrets: dict[str, list[float]] = {OURS: [], EDGES: []}
    for setting in settings:
        seeds = ctx.seeds(quick=2, full=5 if setting == settings[-1] else 1)
        workload = f"3 soldiers, 6 battlefields, {horizon} rounds, {setting}"
        found = ctx.runs(evidence, regrets, seeds, partial(regret, horizon, setting), workload=workload)
        for who, runs in found.items():
            per = [1e6 * run["seconds"] / horizon for run in runs]
            evidence.row(
                who,
                {
                    "regret": Measurement.of([run["regret"] for run in runs], "loss"),
                    "a round": Measurement.of(per, "µs", timed=True),
                },
                workload=workload,
            )
        if set(found) != set(regrets):
            return
        if setting == settings[-1]:
            for who, runs in found.items():
                regrets[who] = [run["regret"] for run in runs]
            ratios = [b["seconds"] / a["seconds"] for a, b in zip(found[OURS], found[EDGES], strict=True)]
    evidence.measured("vs-edgecb", Measurement.of(ratios, "ratio", timed=True), gate=(regrets[OURS], regrets[EDGES]))
    if ctx.full:
        _race(ctx, evidence)


def _race(ctx: Context, evidence: Evidence) -> None:
    """Two players of each kind, bandit feedback, the same step sizes, to the same gap."""
    game, horizon, target = ColonelBlotto([5, 5], [1, 2, 3]), 6000, 0.15
    eta, gamma = 0.01, 0.1

    def seconds(who: str, seed: int) -> dict[str, float]:
        players = [
            EdgeCB(5, 3, eta, gamma)
            if who == EDGES
            else KernelizedGeometricHedge(actions, horizon, eta=eta, gamma=gamma, exploration="uniform")
            for actions in game.sets
        ]
        result = solve_cce(game, horizon=horizon, eps=target, eval_every=50, seed=seed, learners=players, history=False)
        return {"seconds": result.seconds, "rounds": result.rounds, "gap": result.gap}

    workload = f"5 soldiers, 3 battlefields, bandit, to a gap of {target:g} within {horizon} rounds"
    found = ctx.runs(evidence, (OURS, EDGES), ctx.seeds(quick=1, full=3), seconds, workload=workload)
    for who, runs in found.items():
        evidence.row(
            who,
            {
                "time to the gap": Measurement.of([run["seconds"] for run in runs], "s", timed=True),
                "rounds": Measurement.of([run["rounds"] for run in runs], "rounds"),
                "gap": Measurement.of([run["gap"] for run in runs], "loss"),
            },
            workload=workload,
        )
    if len(found) == 2:
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(found[OURS], found[EDGES], strict=True)]
        evidence.measured("time-to-gap-edgecb", Measurement.of(ratios, "ratio", timed=True))
