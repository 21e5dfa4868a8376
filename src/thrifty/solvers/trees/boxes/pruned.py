"""Changing k cuts and removing others at once, as one answer: an entry of the four-budget table, with its tree."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from thrifty.solvers.trees.boxes.error_table import error_table
from thrifty.solvers.trees.instance.solution import Status
from thrifty.solvers.trees.model.edits import Edit
from thrifty.solvers.trees.model.tree import Tree


class Found(NamedTuple):
    """A tree, what makes it of the tree given, and what is proved of it; fields as in `report.Report`."""

    tree: Tree
    edits: tuple[Edit, ...]
    n_errors: float
    errors_by_budget: tuple[float, ...]
    status: Status
    lower_bound: float
    solver: str
    n_states: int


def search_pruned(
    tree: Tree,
    X: ArrayLike,
    y: ArrayLike,
    *,
    k_adjust: int,
    k_exchange: int,
    n_prune: int,
    n_raise: int,
    **settings: Any,
) -> Found:
    """The fewest errors with exactly so many cuts removed and at most so many changed.

    If the time runs out, the tree is that of pruning alone, which is quick to find.

    Args:
        tree: The tree.
        X: Training table.
        y: Classes.
        k_adjust: As in `error_table`, as all that follow; one of the first two is 0.
        k_exchange: See ``k_adjust``.
        n_prune: Cuts removed by replacement.
        n_raise: Cuts removed by raising.
        settings: The other arguments of `error_table`.

    Raises:
        ValueError: No pruning removes so many cuts, or a setting does not fit.
    """
    table = error_table(tree, X, y, k_adjust, k_exchange, n_prune, n_raise, **settings)
    bounds = table.errors[:, 0, n_prune, n_raise] if k_adjust else table.errors[0, :, n_prune, n_raise]
    errors_by_budget = tuple(float(errors) for errors in bounds)
    if table.status == "optimal":
        best = table.tree((k_adjust, k_exchange, n_prune, n_raise))
        return Found(
            best.tree, best.edits, best.n_errors, errors_by_budget, "optimal", best.n_errors, "dp", table.n_states
        )
    unlimited = {name: value for name, value in settings.items() if name not in ("time_limit", "features")}
    best = error_table(tree, X, y, 0, 0, n_prune, n_raise, **unlimited).tree((0, 0, n_prune, n_raise))
    lower_bound = min(errors_by_budget[-1], best.n_errors)
    found = (best.n_errors,) * len(errors_by_budget)
    return Found(best.tree, best.edits, best.n_errors, found, "time limit", lower_bound, "dp", table.n_states)
