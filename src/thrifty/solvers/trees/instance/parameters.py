"""The parameters of an instance, and what they say about solving it exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees.improve import check_budget
from thrifty.solvers.trees.instance.diversity import delta_max as largest_difference
from thrifty.solvers.trees.instance.effort import max_boxes, max_sweeps, paper_bound
from thrifty.solvers.trees.instance.problem import Operation, Problem, build_problem
from thrifty.solvers.trees.instance.ranks import rank_table
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.validation import check_table
from thrifty.solvers.trees.search import fitting_solver


@dataclass(frozen=True)
class InstanceParameters:
    """A tree, a table and a budget in the paper's parameters. Errors are sums of training weight.

    Attributes:
        operation: ``"adjust"``, ``"exchange"`` or ``"both"``.
        n_rows: Rows of positive weight (n).
        n_points: The same, counting rows that agree in all features and in class once.
        n_classes: Classes of the tree.
        n_features: Columns of the table (d).
        n_features_used: Columns that the tree tests (d for threshold adjustment).
        domain_sizes: Distinct values of each column.
        n_thresholds: Distinct thresholds of the tree on one feature, at most: what the paper's Table 3 calls D, so
            that its D is 1 for binary features, where this page's is 2.
        n_cuts: Cuts (s).
        depth: Cuts on the longest way from the root to a leaf.
        k: Cuts that may change.
        n_unchanged: Cuts that stay (l = s - k).
        n_errors_given: Training errors with the labels as given.
        n_errors: Training errors once every leaf takes its majority class (t, before any change).
        unavoidable_errors: Errors of every tree: equal rows of different classes.
        is_reasonable: Whether as given no leaf is empty and each predicts one of its most frequent classes.
        delta_max: Features in which two rows of different classes differ at most; ``None``: not asked for.
        max_boxes: States of the dynamic programme, at most.
        paper_bound: Decimal logarithm of the paper's bound on boxes, (D + 1)^{2d}.
        max_sweeps: Sweeps of branch and bound, if nothing is pruned.
        solver: The exact solver that ``solver="auto"`` takes.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)

        >>> from thrifty.solvers.trees import instance_parameters
        >>> found = instance_parameters(tree, X, y, k=1)
        >>> found.n_rows, found.n_features, found.n_cuts, found.depth, found.n_errors
        (150, 4, 2, 2, 6)

    Source:
        Table 3 of the paper.
    """

    operation: Operation
    n_rows: int
    n_points: int
    n_classes: int
    n_features: int
    n_features_used: int
    domain_sizes: tuple[int, ...]
    n_thresholds: int
    n_cuts: int
    depth: int
    k: int
    n_unchanged: int
    n_errors_given: float
    n_errors: float
    unavoidable_errors: float
    is_reasonable: bool
    delta_max: int | None
    max_boxes: float
    paper_bound: float
    max_sweeps: float
    solver: str

    @property
    def domain_size(self) -> int:
        """D, the distinct values of one column, at most."""
        return max(self.domain_sizes)

    @property
    def why(self) -> str:
        """One or two sentences on which solver fits, and what the theory promises here."""
        if self.n_errors <= self.unavoidable_errors:
            return "Nothing to search for: the only errors left are those that every tree makes."
        s = "" if self.k == 1 else "s"
        boxes, sweeps = _count(self.max_boxes), _count(self.max_sweeps)
        if self.k <= 1:
            text = f"{self.k} change{s}: solved exactly by {sweeps} sweeps, each linear in the rows."
            return text + " From 2 changes on the problem is a search."
        if self.solver == "dp":
            text = f"{self.k} change{s}: dynamic programming over boxes; at most {boxes} can be reached, which is few."
        else:
            text = (
                f"{self.k} change{s}: branch and bound; up to {sweeps} sweeps if nothing could be pruned "
                f"(mostly all but a few can), against {boxes} boxes of the dynamic programme. Give it a time limit."
            )
        d = self.n_features_used if self.operation == "adjust" else self.n_features
        promise = "a promise that holds" if self.paper_bound < 9 else "no promise at all"
        return (
            f"{text} In theory: NP-complete, and hard in most single parameters; tractable in d and D together, by "
            f"(D + 1)^(2d) boxes, which for d = {d} is 10^{self.paper_bound:.0f} here: {promise}."
        )

    def describe(self) -> str:
        """The parameters as lines of text."""
        rows: list[tuple[str, str]] = [
            ("rows (n)", f"{self.n_rows}, {self.n_points} distinct; {self.n_classes} classes"),
            ("features (d)", f"{self.n_features}, {self.n_features_used} of them tested"),
            ("values of a feature (D)", f"at most {self.domain_size}, median {np.median(self.domain_sizes):g}"),
            ("thresholds on a feature", f"at most {self.n_thresholds} in the tree (D of the paper's Table 3)"),
            ("cuts (s)", f"{self.n_cuts}, depth {self.depth}"),
            ("may change (k)", f"{self.k} by {self.operation}; {self.n_unchanged} stay (l)"),
            ("training errors", f"{self.n_errors_given:g} as given, {self.n_errors:g} relabelled (t)"),
            ("unavoidable errors", f"{self.unavoidable_errors:g} (equal rows of different classes)"),
            ("reasonable", "yes" if self.is_reasonable else "no: a leaf is empty here, or not of its majority class"),
        ]
        if self.delta_max is not None:
            rows.append(("delta_max", f"{self.delta_max} features differ at most between classes"))
        rows.append(("solver", self.solver))
        width = max(len(name) for name, _ in rows)
        return "\n".join([*(f"{name:<{width}}  {text}" for name, text in rows), self.why])

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON; a count past all floats is ``None``."""
        document = asdict(self) | {"domain_size": self.domain_size, "why": self.why}
        document["domain_sizes"] = list(self.domain_sizes)
        for name in ("max_boxes", "max_sweeps"):
            if not np.isfinite(document[name]):
                document[name] = None
        return document


def instance_parameters(
    tree: Tree | DecisionTreeClassifier,
    X: ArrayLike,
    y: ArrayLike,
    *,
    operation: Operation = "exchange",
    k: int = 1,
    sample_weight: ArrayLike | None = None,
    delta_max: bool = False,
) -> InstanceParameters:
    r"""Measure an instance before it is solved.

    Args:
        tree: The tree to improve.
        X: Training table, ``[n, n_features]``.
        y: Classes, ``[n]``, all among the tree's.
        operation: ``"adjust"``, ``"exchange"`` or ``"both"``.
        k: Cuts that may change.
        sample_weight: ``[n]``, at least 0. ``None``: 1 each.
        delta_max: Also compute ``delta_max``, in O(n^2 d).

    Returns:
        The instance in the paper's parameters, and the solver that would be taken.

    Raises:
        ValueError: An argument does not fit; the message names it.

    Example:
        >>> from thrifty.solvers.trees.instance.parameters import instance_parameters
        >>> from thrifty.solvers.trees.model.weka import tree_from_weka
        >>> tree = tree_from_weka("width <= 1: a (2.0)\nwidth > 1: b (2.0)")
        >>> found = instance_parameters(tree, [[0], [1], [2], [3]], ["a", "a", "b", "a"], delta_max=True)
        >>> found.n_cuts, found.domain_size, found.n_errors, found.delta_max, found.solver
        (1, 4, 1, 1, 'sweep')

    Source:
        Table 3 of the paper.
    """
    tree = tree if isinstance(tree, Tree) else Tree.from_sklearn(tree)
    k = check_budget(k, tree.n_cuts)
    problem = build_problem(tree, X, y, operation=operation, sample_weight=sample_weight)
    table = rank_table(
        *check_table(tree, X, y, sample_weight), len(tree.classes), np.arange(tree.n_features, dtype=np.int32)
    )
    tested = tree.feature[tree.topology.cuts]
    thresholds = [len(np.unique(tree.threshold[tree.feature == j])) for j in np.unique(tested)]
    return InstanceParameters(
        operation=operation,
        n_rows=int(table.n_rows.sum()),
        n_points=table.n_points,
        n_classes=len(tree.classes),
        n_features=tree.n_features,
        n_features_used=len(np.unique(tested)),
        domain_sizes=tuple(table.domain_sizes.tolist()),
        n_thresholds=max(thresholds, default=0),
        n_cuts=tree.n_cuts,
        depth=tree.max_depth,
        k=k,
        n_unchanged=tree.n_cuts - k,
        n_errors_given=_tidy(problem, problem.given_errors),
        n_errors=_tidy(problem, problem.n_errors(problem.cuts)),
        unavoidable_errors=_tidy(problem, table.unavoidable_errors),
        is_reasonable=problem.is_reasonable,
        delta_max=largest_difference(table) if delta_max else None,
        max_boxes=max_boxes(problem, k),
        paper_bound=paper_bound(problem),
        max_sweeps=max_sweeps(problem, k),
        solver=fitting_solver(problem, k),
    )


def _tidy(problem: Problem, errors: float) -> float:
    return round(errors) if problem.table.has_integer_weights else errors


def _count(n: float) -> str:
    if not np.isfinite(n):
        return "more than 10^308"
    return f"{n:.0f}" if n < 1e5 else f"10^{np.log10(n):.1f}"
