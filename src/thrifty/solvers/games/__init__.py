"""Learning in games whose actions are 0/1 vectors with structure: far too many to be listed."""

from thrifty.solvers.games.actions import (
    ActionSet,
    BlottoSet,
    DagPathSet,
    ExplicitSet,
    Law,
    MSet,
    SpanningTreeSet,
    oriented_to,
)
from thrifty.solvers.games.certificate import cce_gap, cce_gaps
from thrifty.solvers.games.congestion import NetworkCongestion, SpanningTreeCongestion, bpr_cost, linear_cost
from thrifty.solvers.games.contests import ColonelBlotto
from thrifty.solvers.games.conversion import (
    from_gambit,
    from_nashpy,
    from_pyspiel,
    to_gambit,
    to_nashpy,
    to_pyspiel,
)
from thrifty.solvers.games.learners import KernelizedExp3IX, KernelizedGeometricHedge, KernelizedOMWU
from thrifty.solvers.games.nash import exploitability, nash_gaps, solve_nash
from thrifty.solvers.games.normal_form import NormalFormGame
from thrifty.solvers.games.play import solve_cce, solve_cce_seeds
from thrifty.solvers.games.result import CCEResult, Trace

__all__ = [
    "ActionSet",
    "BlottoSet",
    "CCEResult",
    "ColonelBlotto",
    "DagPathSet",
    "ExplicitSet",
    "KernelizedExp3IX",
    "KernelizedGeometricHedge",
    "KernelizedOMWU",
    "Law",
    "MSet",
    "NetworkCongestion",
    "NormalFormGame",
    "SpanningTreeCongestion",
    "SpanningTreeSet",
    "Trace",
    "bpr_cost",
    "cce_gap",
    "cce_gaps",
    "exploitability",
    "from_gambit",
    "from_nashpy",
    "from_pyspiel",
    "linear_cost",
    "nash_gaps",
    "oriented_to",
    "solve_cce",
    "solve_cce_seeds",
    "solve_nash",
    "to_gambit",
    "to_nashpy",
    "to_pyspiel",
]
