"""Learners on kernels beside the same learners on a list of all actions, fed the same play."""

from __future__ import annotations

import networkx as nx
import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.games import (
    ActionSet,
    BlottoSet,
    DagPathSet,
    ExplicitSet,
    KernelizedExp3IX,
    KernelizedGeometricHedge,
    KernelizedOMWU,
    MSet,
    SpanningTreeSet,
)

ROUNDS = 500
#: Share of the practical step size. A learner divides by the probabilities that it comes from, so that at full steps it
#: enlarges any rounding, of kernels and lists alike, from round to round (on routes a millionfold within 500).
STEP = 0.1
LEARNERS = {"full": KernelizedOMWU, "semi-bandit": KernelizedExp3IX, "bandit": KernelizedGeometricHedge}


def sets() -> dict[str, ActionSet]:
    """One small set of each class, some of whose spans are not the whole space."""
    bow_tie = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4)]
    grid = nx.DiGraph(edge for edge in nx.grid_2d_graph(3, 3).to_directed().edges() if edge[0] < edge[1])
    return {
        "allocations": BlottoSet(4, 3),
        "spanning trees": SpanningTreeSet(bow_tie),
        "routes": DagPathSet(grid, (0, 0), (2, 2)),
        "subsets": MSet(6, 3),
    }


def show(ctx: Context, evidence: Evidence) -> None:
    """Play every learner on every set, and compare marginals in the end."""
    apart: list[float] = []
    for name, actions in sets().items():
        for feedback in LEARNERS:
            ctx.progress(len(apart), 12, f"laws, {name}, {feedback}")
            apart.append(difference(actions, feedback, ctx.seed))
            evidence.row(
                "kernels",
                {"difference of laws": Measurement.of(apart[-1], "difference")},
                workload=f"{name}, {feedback}, after {ROUNDS} rounds",
            )
    evidence.measured("law-equals-enumeration", Measurement.of(max(apart), "difference"))


def difference(actions: ActionSet, feedback: str, seed: int) -> float:
    """Return the largest difference of marginals between kernels and list after the same rounds of play."""
    listed = ExplicitSet(actions.enumerate_compact(), actions.d)
    options = {"exploration": actions.spanner()} if feedback == "bandit" else {}
    ours, theirs = (LEARNERS[feedback](which, ROUNDS, eta_scale=STEP, **options) for which in (actions, listed))
    rng = np.random.default_rng(seed)
    for _ in range(ROUNDS):
        taken = ours.act(rng)
        theirs.act(np.random.default_rng(0))
        theirs._played = taken
        losses = rng.uniform(size=actions.d)
        seen = {"full": losses, "semi-bandit": losses[taken], "bandit": float(losses[taken].sum())}[feedback]
        ours.observe(seen)
        theirs.observe(seen)
    return float(np.abs(ours.law().marginals - theirs.law().marginals).max())
