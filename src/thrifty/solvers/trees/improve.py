"""`improve_tree`: fewer training errors from a tree of the same shape, by changing at most k of its cuts."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from time import perf_counter
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees.brute import solve_brute
from thrifty.solvers.trees.hillclimb import hill_climb, solve_single
from thrifty.solvers.trees.moves import Secondary
from thrifty.solvers.trees.problem import Features, Operation, Problem, build_problem
from thrifty.solvers.trees.report import Report, make_report
from thrifty.solvers.trees.solution import Solution
from thrifty.solvers.trees.tree import Tree
from thrifty.solvers.trees.validation import warn_where_rounding_moves_rows

Mode = Literal["exact", "hillclimb"]
Solver = Literal["auto", "sweep", "brute"]
TreeLike = TypeVar("TreeLike", Tree, DecisionTreeClassifier)


def improve_tree(
    tree: TreeLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    operation: Operation = "exchange",
    k: int = 1,
    mode: Mode = "exact",
    solver: Solver = "auto",
    sample_weight: ArrayLike | None = None,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    features: Features = None,
    frozen: Collection[int] = (),
    secondary: Secondary = "gini",
) -> tuple[TreeLike, Report]:
    """Change at most ``k`` cuts of a decision tree so that it makes the fewest training errors, provably.

    The tree keeps its shape, its node numbers and every cut that is not changed; leaves take their majority class.
    Training errors never rise. Test errors may: with few rows choose ``k`` (0 included) by cross-validation.

    Args:
        tree: A `Tree`, or a fitted ``DecisionTreeClassifier``. It is not modified.
        X: Training table, ``[n, n_features]``; an array or a data frame. NaN is a missing value, if the tree
            accepts those; each cut keeps its missing direction, and an exchange tries both.
        y: Classes, ``[n]``, all among the tree's.
        operation: ``"adjust"``: a change moves a cut's threshold. ``"exchange"``: it puts any test on one of
            ``features`` in the cut's place. ``"both"``: either (differs from ``"exchange"`` only with ``features``).
        k: Cuts that may change, at least 0; with ``mode="hillclimb"`` cuts that one step may change, 0 or 1.
        mode: ``"exact"``: the optimum within ``k`` changes. ``"hillclimb"``: the best single change again and
            again until none helps, without a limit on how many cuts change in the end.
        solver: ``"sweep"``: one linear sweep a cut and feature, for k of 0 or 1. ``"brute"``: everything is tried.
            ``"auto"``: the sweep where it can answer, else brute force.
        sample_weight: Weight of each row, ``[n]``, at least 0. ``None``: 1 each.
        min_samples_leaf: Rows that a change must leave in each leaf; 0 allows empty leaves, as in the paper. A leaf
            with fewer rows as given may stay, but not shrink.
        min_weight_fraction_leaf: The same for the share of the total weight, 0 to 0.5.
        features: Columns, by number or name, that cuts may be exchanged to: one list, or a mapping from cut (node
            number) to list. ``None``: all.
        frozen: Cuts (node numbers) that stay as they are.
        secondary: Among equally good changes: ``"gini"``: lowest Gini impurity, then widest gap around the
            threshold; ``"margin"``: the other way round; then the nearest to the old threshold.

    Returns:
        The new tree, of the type of ``tree``, and the `Report`.

    Raises:
        TypeError: ``tree`` is neither a `Tree` nor a decision-tree classifier.
        NotFittedError: The classifier is not fitted.
        ValueError: Another argument does not fit; the message names it.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from thrifty.solvers.trees import improve_tree
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
        >>> better, report = improve_tree(tree, X, y, k=1)
        >>> report.n_errors <= report.n_errors_before
        True

    Source: Harviainen, Sommer, Sorge, "Improving Decision Trees through the Lens of Parameterized Local Search",
    NeurIPS 2025 (arXiv 2510.12726).
    """
    began = perf_counter()
    ours = tree if isinstance(tree, Tree) else Tree.from_sklearn(tree)
    _check_choice("mode", mode, ("exact", "hillclimb"))
    _check_choice("solver", solver, ("auto", "sweep", "brute"))
    _check_choice("secondary", secondary, ("gini", "margin"))
    k = check_budget(k, ours.n_cuts)
    problem = build_problem(
        ours,
        X,
        y,
        operation=operation,
        sample_weight=sample_weight,
        min_samples_leaf=min_samples_leaf,
        min_weight_fraction_leaf=min_weight_fraction_leaf,
        features=features,
        frozen=frozen,
    )
    if isinstance(tree, Tree):  # scikit-learn's own users know that it rounds
        warn_where_rounding_moves_rows(ours, X)
    solution, ran = _solve(problem, k, mode=mode, solver=solver, secondary=secondary)
    better = problem.to_tree(solution.cuts)
    report = make_report(problem, solution, better, solver=ran, seconds=perf_counter() - began)
    return (better if isinstance(tree, Tree) else better.to_sklearn(like=tree)), report


def _solve(
    problem: Problem, k: int, *, mode: Mode, solver: Solver, secondary: Secondary
) -> tuple[Solution, Literal["sweep", "brute"]]:
    """Run the solver that was asked for, and say which one that was."""
    if k > 1 and mode == "hillclimb":
        raise ValueError(f"k is {k} with mode='hillclimb', which changes one cut a step: use k=1, or mode='exact'")
    if k > 1 and solver == "sweep":
        raise ValueError(f"k is {k} with solver='sweep', which answers k=0 and k=1: use solver='auto'")
    if mode == "hillclimb" and solver == "brute":
        raise ValueError("solver='brute' needs mode='exact'; mode='hillclimb' sweeps")
    if mode == "hillclimb" and k == 1:
        return hill_climb(problem, secondary=secondary), "sweep"
    if solver == "brute" or k > 1:
        return solve_brute(problem, k), "brute"
    return solve_single(problem, k, secondary=secondary), "sweep"


def check_budget(k: int, n_cuts: int) -> int:
    """``k`` as an int, at most ``n_cuts``.

    Raises:
        ValueError: ``k`` is negative or no whole number.
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 0:
        raise ValueError(f"k is {k!r}; it is a whole number of cuts, at least 0")
    if k > n_cuts > 0:
        warnings.warn(f"k is {k}, but the tree has {n_cuts} cuts; k={n_cuts} is used", UserWarning, stacklevel=3)
    return min(int(k), n_cuts)


def _check_choice(argument: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise ValueError(f"{argument} is {given!r}; it is one of {', '.join(map(repr, choices))}")
