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
from thrifty.solvers.games.congestion import NetworkCongestion, SpanningTreeCongestion
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
from thrifty.solvers.games.normal_form import NormalFormGame

__all__ = [
    "ActionSet",
    "BlottoSet",
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
    "cce_gap",
    "cce_gaps",
    "from_gambit",
    "from_nashpy",
    "from_pyspiel",
    "oriented_to",
    "to_gambit",
    "to_nashpy",
    "to_pyspiel",
]
