"""What an improvement did, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

from thrifty.solvers.trees.instance.solution import Status
from thrifty.solvers.trees.model.edits import Edit
from thrifty.solvers.trees.model.wording import Difference


@dataclass(frozen=True)
class Report:
    """What `improve_tree` found. Errors are sums of training weight: whole numbers for whole-numbered weights.

    Attributes:
        n_errors_before: Errors of the tree as given.
        n_errors_relabelled: The same once every leaf takes its majority class; no cut has changed yet.
        n_errors: Errors of the tree returned.
        difference: The changes in words, each with the training errors that come back if it alone is undone.
        errors_by_budget: Fewest errors with at most 0, 1, ... changes of the tree given, as far as proved.
        status: ``"optimal"``, ``"local optimum"`` or ``"time limit"``; see `solution.Solution`.
        lower_bound: No tree within the budget makes fewer errors (for a local search: no tree of this shape does).
        is_reasonable: Whether the tree as given had no empty leaf and majority labels on this table.
        solver: The solver that ran.
        n_states: What it evaluated: tests swept, states, or trees.
        seconds: Wall-clock time, including checks.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)

        >>> from thrifty.solvers.trees import improve_tree
        >>> report = improve_tree(tree, X, y, k=1)[1]
        >>> report.status, report.n_errors_before, report.n_errors == report.errors_by_budget[1]
        ('optimal', 6, True)
    """

    n_errors_before: float
    n_errors_relabelled: float
    n_errors: float
    difference: Difference
    errors_by_budget: tuple[float, ...]
    status: Status
    lower_bound: float
    is_reasonable: bool
    solver: str
    n_states: int
    seconds: float

    @property
    def operations(self) -> tuple[Edit, ...]:
        """The changes, in preorder of the tree as given."""
        return self.difference.edits

    def summary(self) -> str:
        """One line: errors before and after, and what is proved."""
        n = len(self.operations)
        return (
            f"{self.n_errors_before:g} training errors as given, {self.n_errors_relabelled:g} relabelled, "
            f"{self.n_errors:g} after {n} change{'' if n == 1 else 's'} ({self.status})"
        )

    def __str__(self) -> str:
        """The summary, then a line a change."""
        return "\n".join([self.summary(), *(f"  {line}" for line in str(self.difference).splitlines())])
