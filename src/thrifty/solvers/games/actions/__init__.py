"""Sets of actions, each a list of 0/1 vectors too long to be written down."""

from thrifty.solvers.games.actions.allocations import BlottoSet, MSet
from thrifty.solvers.games.actions.base import ActionSet, Law
from thrifty.solvers.games.actions.explicit import ExplicitSet
from thrifty.solvers.games.actions.routes import DagPathSet, oriented_to
from thrifty.solvers.games.actions.trees import SpanningTreeSet

__all__ = ["ActionSet", "BlottoSet", "DagPathSet", "ExplicitSet", "Law", "MSet", "SpanningTreeSet", "oriented_to"]
