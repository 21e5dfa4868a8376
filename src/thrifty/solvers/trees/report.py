"""What an improvement did, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thrifty.solvers.trees.problem import Cuts, Problem
from thrifty.solvers.trees.solution import Solution, Status
from thrifty.solvers.trees.tree import Tree


@dataclass(frozen=True)
class CutChange:
    """One cut before and after.

    Attributes:
        cut: Node number of the cut, in the tree given and in the tree returned.
        kind: ``"adjust"`` if the cut kept its feature, else ``"exchange"``.
        old_feature: Column tested before.
        old_threshold: Threshold before.
        new_feature: Column tested now.
        new_threshold: Threshold now.
        old_missing_left: Whether missing values went left before; ``None`` if the tree does not accept them.
        new_missing_left: Likewise, now.
        errors_saved: Training errors that come back if this cut alone is put back as it was.
        old_name: Name of the column tested before.
        new_name: Name of the column tested now.
    """

    cut: int
    kind: Literal["adjust", "exchange"]
    old_feature: int
    old_threshold: float
    new_feature: int
    new_threshold: float
    old_missing_left: bool | None
    new_missing_left: bool | None
    errors_saved: float
    old_name: str
    new_name: str

    def __str__(self) -> str:
        """``cut 4: petal width <= 0.8 -> petal length <= 2.45, -3 errors``."""
        old = f"{self.old_name} <= {self.old_threshold:.6g}"
        new = f"{self.new_name} <= {self.new_threshold:.6g}"
        if self.old_missing_left != self.new_missing_left:
            new += f" (missing values go {'left' if self.new_missing_left else 'right'})"
        return f"cut {self.cut}: {old} -> {new}, {-self.errors_saved:+g} errors"


@dataclass(frozen=True)
class Report:
    """What `improve_tree` found. Errors are sums of training weight: whole numbers for whole-numbered weights.

    Attributes:
        n_errors_before: Errors of the tree as given.
        n_errors_relabelled: The same once every leaf takes its majority class; no cut has changed yet.
        n_errors: Errors of the tree returned.
        operations: The changed cuts, in preorder.
        errors_by_budget: Fewest errors with at most 0, 1, ... changes of the tree given, as far as proved.
        status: ``"optimal"``, ``"local optimum"`` or ``"time limit"``; see `solution.Solution`.
        lower_bound: No tree within the budget makes fewer errors (for a local search: no tree of this shape does).
        is_reasonable: Whether the tree as given had no empty leaf and majority labels on this table.
        solver: The solver that ran.
        n_states: What it evaluated: tests swept, states, or trees.
        seconds: Wall-clock time, including checks.
    """

    n_errors_before: float
    n_errors_relabelled: float
    n_errors: float
    operations: tuple[CutChange, ...]
    errors_by_budget: tuple[float, ...]
    status: Status
    lower_bound: float
    is_reasonable: bool
    solver: str
    n_states: int
    seconds: float

    def __str__(self) -> str:
        """A line of errors, then a line a changed cut."""
        head = (
            f"{self.n_errors_before:g} training errors as given, {self.n_errors_relabelled:g} relabelled, "
            f"{self.n_errors:g} after {len(self.operations)} changed cuts ({self.status})"
        )
        return "\n".join([head, *(f"  {change}" for change in self.operations)])


def make_report(problem: Problem, solution: Solution, tree: Tree, *, solver: str, seconds: float) -> Report:
    """Describe ``tree``, which ``problem.to_tree(solution.cuts)`` gave."""
    tidy = _whole if problem.table.has_integer_weights else float
    n_errors = problem.n_errors(solution.cuts)
    return Report(
        n_errors_before=tidy(problem.given_errors),
        n_errors_relabelled=tidy(problem.n_errors(problem.cuts)),
        n_errors=tidy(n_errors),
        operations=tuple(
            _change(problem, tree, v, tidy(problem.n_errors(_put_back(problem, solution.cuts, v)) - n_errors))
            for v in problem.changed(solution.cuts)
        ),
        errors_by_budget=tuple(tidy(errors) for errors in solution.errors_by_budget),
        status=solution.status,
        lower_bound=tidy(solution.lower_bound),
        is_reasonable=problem.is_reasonable,
        solver=solver,
        n_states=solution.n_states,
        seconds=seconds,
    )


def _put_back(problem: Problem, cuts: Cuts, v: int) -> Cuts:
    return cuts.with_cut_of(v, problem.cuts)


def _whole(errors: float) -> int:
    return round(errors)


def _change(problem: Problem, tree: Tree, v: int, errors_saved: float) -> CutChange:
    old, old_j, new_j = problem.tree, int(problem.tree.feature[v]), int(tree.feature[v])
    return CutChange(
        cut=v,
        kind="adjust" if old_j == new_j else "exchange",
        old_feature=old_j,
        old_threshold=float(old.threshold[v]),
        new_feature=new_j,
        new_threshold=float(tree.threshold[v]),
        old_missing_left=None if old.missing_left is None else bool(old.missing_left[v]),
        new_missing_left=None if tree.missing_left is None else bool(tree.missing_left[v]),
        errors_saved=errors_saved,
        old_name=old.feature_name(old_j),
        new_name=tree.feature_name(new_j),
    )
