"""What `thrifty bench games` measures: play by kernels beside play over lists and over edges, and how gaps fall.

The paper has no experiments, so that nothing here is compared with numbers of its authors.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.solvers.games.evidence import edges, laws, rates, roads, speed

CLAIMS = (
    Claim(
        id="law-equals-enumeration",
        text="After 500 rounds of the same play every law is that of the same learner over a list of all actions.",
        about="exactness",
        unit="difference",
        contenders=("kernels", "list"),
        target=Target("<=", 1e-8),
    ),
    Claim(
        id="per-round-cost",
        text="With 10^5 actions and more, a round takes at most a hundredth of a round of EXP2 over a list.",
        about="time",
        unit="ratio",
        contenders=("kernels", "list"),
        target=Target(">=", 100.0),
        gate=Gate("difference of laws", margin=1e-8),
        published="bounds only: O(n² k) a round where a list has C(n + k - 1, k - 1) entries",
    ),
    Claim(
        id="time-to-gap",
        text="The same gap is reached at least 10 times as soon as by EXP2 over a list, in each class of games.",
        about="time",
        unit="ratio",
        contenders=("kernels", "list"),
        target=Target(">=", 10.0),
        gate=Gate("gap reached", margin=0.0, than="the gap asked for"),
    ),
    Claim(
        id="time-to-gap-edgecb",
        text="How many times as long EdgeCB takes to the same gap from bandit feedback (5 soldiers, 3 battlefields).",
        about="time",
        unit="ratio",
        contenders=("kernels", "EdgeCB"),
        budget="full",
    ),
    Claim(
        id="vs-edgecb",
        text="On EdgeCB's own instance a round takes at most a third of EdgeCB's, at no more regret.",
        about="time",
        unit="ratio",
        contenders=("kernels", "EdgeCB"),
        target=Target(">=", 3.0),
        gate=Gate("regret", margin=0.0, by="interval"),
        published="the published script: about 10 ms a round at k = 6, n = 3, on its authors' machine",
    ),
    Claim(
        id="gap-order",
        text="Gaps after 20 000 rounds are in the order optimistic < full < semi-bandit < bandit, for every seed.",
        about="quality",
        unit="share of seeds",
        contenders=("optimistic", "full", "semi-bandit", "bandit"),
        target=Target(">=", 1.0),
    ),
    Claim(
        id="omwu-rate",
        text="Optimistic play on expected losses has a gap that falls like 1 / T: slope at most -0.9, up to T = 10^5.",
        about="scaling",
        unit="exponent",
        contenders=("optimistic",),
        target=Target("<=", -0.9),
        published="ε-equilibria after Õ(P m² / ε) rounds",
    ),
    Claim(
        id="huge",
        text="With 1.26 · 10^10 allocations a player the gap at the horizon is below that after 5 % of it.",
        about="scaling",
        unit="ratio",
        contenders=("semi-bandit",),
        target=Target("<", 1.0),
    ),
    Claim(
        id="real-networks",
        text="On Sioux Falls and on the karate club the gap at the horizon is at most half of that after 5 % of it.",
        about="quality",
        unit="ratio",
        contenders=("semi-bandit",),
        target=Target("<=", 0.5),
    ),
    Claim(
        id="travel-time",
        text="Total travel time of learned play over that of everybody on the shortest free route (Sioux Falls).",
        about="quality",
        unit="ratio",
        contenders=("semi-bandit", "all on shortest routes"),
    ),
)


def prepare() -> None:
    """Compile the kernels, which numba keeps for the next run."""
    speed.compile_kernels()


def run(ctx: Context) -> Evidence:
    """Measure exactness, cost, gaps, and games on real networks."""
    evidence = ctx.evidence(
        "Blotto games, routes and spanning trees; Sioux Falls as OpenSpiel ships it, the karate club as networkx does"
    )
    for part in (laws, speed, rates, roads, edges):
        part.show(ctx, evidence)
    return evidence
