"""`improve_tree`: fewer training errors from a tree of the same shape, by changing at most k of its cuts."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.tree import DecisionTreeClassifier

from thrifty._common.checks import one_of, whole
from thrifty.solvers.trees.bnb.branch_and_bound import n_threads
from thrifty.solvers.trees.boxes.pruned import Found, search_pruned
from thrifty.solvers.trees.instance.problem import Cuts, Features, Operation, Problem, build_problem
from thrifty.solvers.trees.model.edits import Edit
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.validation import (
    check_limits,
    check_table,
    warn_where_rounding_moves_rows,
)
from thrifty.solvers.trees.model.wording import describe_edits
from thrifty.solvers.trees.report import Report
from thrifty.solvers.trees.search import MODES, SOLVERS, Limits, Mode, Solver, search
from thrifty.solvers.trees.sweeps.moves import Secondary

TreeLike = TypeVar("TreeLike", Tree, DecisionTreeClassifier)


def improve_tree(
    tree: TreeLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    operation: Operation = "exchange",
    k: int = 1,
    n_prune: int = 0,
    n_raise: int = 0,
    mode: Mode = "exact",
    solver: Solver = "auto",
    sample_weight: ArrayLike | None = None,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    features: Features = None,
    frozen: Collection[int] = (),
    monotonic_cst: ArrayLike | None = None,
    secondary: Secondary = "gini",
    time_limit: float | None = None,
    memory_limit_mb: float = 2048,
    n_jobs: int | None = None,
    max_rounds: int = 1,
    random_state: int | np.random.RandomState | None = 0,
    progress: Callable[[int, int], None] | None = None,
    on_incumbent: Callable[[float], None] | None = None,
) -> tuple[TreeLike, Report]:
    """Change at most ``k`` cuts of a decision tree so that it makes the fewest training errors, provably.

    The tree keeps its shape, its node numbers and every cut that is not changed (unless cuts are to be removed as
    well: ``n_prune``, ``n_raise``); leaves take their majority class.
    Training errors never rise. Test errors may: with few rows choose ``k`` (0 included) by cross-validation.

    Args:
        tree: A `Tree`, or a fitted ``DecisionTreeClassifier``. It is not modified.
        X: Training table, ``[n, n_features]``; an array or a data frame. NaN is a missing value, if the tree
            accepts those; each cut keeps its missing direction, and an exchange tries both.
        y: Classes, ``[n]``, all among the tree's.
        operation: ``"adjust"``: a change moves a cut's threshold. ``"exchange"``: it puts any test on one of
            ``features`` in the cut's place. ``"both"``: either (differs from ``"exchange"`` only with ``features``).
        k: Cuts that may change, at least 0. With ``mode="hillclimb"`` cuts that one step may change, 0 or 1; with
            ``mode="vns"`` cuts that one step may change at most.
        n_prune: Cuts to remove, exactly, by replacing subtrees with leaves.
        n_raise: Cuts to remove, exactly, by raising a child's subtree into its parent's place.
        mode: ``"exact"``: the optimum within ``k`` changes. ``"hillclimb"``: the best single change again and
            again until none helps, without a limit on how many cuts change in the end. ``"vns"``: variable
            neighbourhood search; where no single change helps, the best two are sought, then three, up to ``k``.
        solver: For ``mode="exact"``. ``"sweep"``: one linear sweep a cut and feature, for k of 0 or 1. ``"bnb"``:
            branch and bound, for small k. ``"dp"``: dynamic programming over boxes, for many changes on few features
            with few values. ``"budget"``: for at most 3 errors on at most 10 cuts. ``"brute"``: everything is tried.
            ``"auto"``: the one that fits (`search.fitting_solver`).
        sample_weight: Weight of each row, ``[n]``, at least 0. ``None``: 1 each.
        min_samples_leaf: Rows that a change must leave in each leaf; 0 allows empty leaves, as in the paper. A leaf
            with fewer rows as given may stay, but not shrink.
        min_weight_fraction_leaf: The same for the share of the total weight, 0 to 0.5.
        features: Columns, by number or name, that cuts may be exchanged to: one list, or a mapping from cut (node
            number) to list. ``None``: all.
        frozen: Cuts (node numbers) that stay as they are.
        monotonic_cst: One of 1, -1 and 0 a column, as in ``DecisionTreeClassifier``: raising the column must not lower,
            must not raise, or may change the class predicted. Kept by k of 0 or 1, by hill climbing and by
            ``solver="brute"``; see `monotone`.
        secondary: Among equally good changes: ``"gini"``: lowest Gini impurity, then widest gap around the
            threshold; ``"margin"``: the other way round; then the nearest to the old threshold.
        time_limit: Seconds after which the best tree found so far is returned, with a lower bound and the status
            ``"time limit"``. ``None``: no limit. The sweep, which is fast, takes no notice of it.
        memory_limit_mb: Megabytes for remembered answers; with less, more is worked out twice.
        n_jobs: Threads of branch and bound; ``None`` is 1, -1 one a core. The result is the same.
        max_rounds: For ``mode="vns"``: local optima to come to. Above 1 the search goes on from one through trees
            that make as many errors.
        random_state: For ``mode="vns"``: draws which equally good changes are looked at; ``None`` is 0.
        progress: Called with what is done and the total, which is 0 where it is not known.
        on_incumbent: Called with the errors of each better tree that branch and bound meets.

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

    Source:
        Harviainen, Sommer, Sorge, "Improving Decision Trees through the Lens of Parameterized Local Search", NeurIPS
        2025 (arXiv 2510.12726).
    """
    began = perf_counter()
    ours = tree if isinstance(tree, Tree) else Tree.from_sklearn(tree)
    one_of("mode", mode, MODES)
    one_of("solver", solver, SOLVERS)
    one_of("secondary", secondary, ("gini", "margin"))
    k = check_budget(k, ours.n_cuts)
    whole("n_prune", n_prune, least=0)
    whole("n_raise", n_raise, least=0)
    check_limits(time_limit, memory_limit_mb)
    n_threads(n_jobs)
    whole("max_rounds", max_rounds)
    limits = Limits(time_limit, memory_limit_mb, n_jobs, progress, on_incumbent)
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
    if n_prune or n_raise:
        if monotonic_cst is not None:
            raise ValueError("monotonic_cst: expected None with n_prune or n_raise, since cuts are removed")
        if mode != "exact" or solver not in ("auto", "dp"):
            raise ValueError(
                f"mode, solver: expected 'exact' and 'auto' with n_prune={n_prune} and n_raise={n_raise}, since cuts "
                f"are removed by the dynamic programme alone, got {mode!r} and {solver!r}"
            )
        found = search_pruned(
            ours,
            X,
            y,
            k_adjust=k if operation == "adjust" else 0,
            k_exchange=0 if operation == "adjust" else k,
            n_prune=n_prune,
            n_raise=n_raise,
            sample_weight=sample_weight,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            features=features,
            frozen=frozen,
            time_limit=time_limit,
            memory_limit_mb=memory_limit_mb,
        )
    else:
        solution, ran = search(
            problem,
            k,
            mode=mode,
            solver=solver,
            secondary=secondary,
            limits=limits,
            monotonic_cst=monotonic_cst,
            max_rounds=max_rounds,
            random_state=random_state,
        )
        better = problem.to_tree(solution.cuts)
        found = Found(
            tree=better,
            edits=_edits(problem, solution.cuts, better),
            n_errors=problem.n_errors(solution.cuts),
            errors_by_budget=solution.errors_by_budget,
            status=solution.status,
            lower_bound=solution.lower_bound,
            solver=ran,
            n_states=solution.n_states,
        )
    difference = describe_edits(ours, found.tree, found.edits, check_table(ours, X, y, sample_weight))

    def tidy(errors: float) -> float:
        return round(errors) if problem.table.has_integer_weights and np.isfinite(errors) else errors

    report = Report(
        n_errors_before=tidy(problem.given_errors),
        n_errors_relabelled=tidy(problem.n_errors(problem.cuts)),
        n_errors=tidy(found.n_errors),
        difference=difference,
        errors_by_budget=tuple(tidy(errors) for errors in found.errors_by_budget),
        status=found.status,
        lower_bound=tidy(found.lower_bound),
        is_reasonable=problem.is_reasonable,
        solver=found.solver,
        n_states=found.n_states,
        seconds=perf_counter() - began,
    )
    return (found.tree if isinstance(tree, Tree) else found.tree.to_sklearn(like=tree)), report


def _edits(problem: Problem, cuts: Cuts, better: Tree) -> tuple[Edit, ...]:
    """The changed cuts, in preorder."""
    return tuple(
        Edit(
            node=v,
            kind="adjust" if better.feature[v] == problem.tree.feature[v] else "exchange",
            feature=int(better.feature[v]),
            threshold=float(better.threshold[v]),
            missing_left=None if better.missing_left is None else bool(better.missing_left[v]),
        )
        for v in problem.changed(cuts)
    )


def check_budget(k: int, n_cuts: int) -> int:
    """``k`` as an int, at most ``n_cuts``.

    Raises:
        ValueError: ``k`` is negative or no whole number.
    """
    k = whole("k", k, least=0, what="a whole number of cuts")
    if k > n_cuts > 0:
        warnings.warn(f"k: expected at most {n_cuts}, the tree's cuts, got {k}; {n_cuts} is used", stacklevel=3)
    return min(k, n_cuts)
