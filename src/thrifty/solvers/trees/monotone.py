"""Single changes that keep a tree monotone: raising a feature never lowers the class that it predicts.

``monotonic_cst`` holds 1 (raising the feature must not lower the class), -1 (must not raise it) or 0 (free) for each
column of the user's table, as in ``DecisionTreeClassifier``. Classes are in the order of the tree's ``classes``, of
which there may be more than two. A tree is monotone if no leaf predicts a higher class than one that is reached from
its region by raising features of 1 and lowering features of -1 alone.

That is meant of the tree handed over, and of all numbers: regions are those of the thresholds, classes the majority
classes, that `Problem.to_tree` writes. (scikit-learn may keep the constraint by giving a leaf other shares than its
rows have, so that a tree fitted with ``monotonic_cst`` need not be monotone here.) A missing value is neither above nor
below another; rows that lack the *same* features are compared in the others, if the training table lacks values there
too.

Whether a tree is monotone does not split over the sides of a cut as its errors do. So the sweeps put all single changes
in the order of their errors, and the first of them that leaves the tree monotone is the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thrifty.solvers.trees.instance.problem import Cuts, Problem
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING
from thrifty.solvers.trees.instance.solution import Solution
from thrifty.solvers.trees.model.labels import leaf_errors, majority_shares
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.small.brute import solve_brute
from thrifty.solvers.trees.sweeps.moves import Place, Positions, Secondary, fill_both
from thrifty.solvers.trees.sweeps.sweep import Points, empty_leaves

_CHANGE = np.dtype("i4, i4, i4, ?, f8, f8, f8, f8, ?")
_CHANGE.names = ("cut", "feature", "rank", "missing_left", "errors", "gini", "gap", "distance", "odd")
"""A change, and what it is ranked by as `moves.Move` is; the odd come last, which differ in nothing but regions."""


def check_monotonic_cst(tree: Tree, cst: ArrayLike) -> NDArray[np.int8]:
    """The constraint of each column, int8 ``[n_features]``.

    Raises:
        ValueError: Not one entry a column, or another entry than 1, 0 and -1.
    """
    signs = np.asarray(cst)
    if signs.shape != (tree.n_features,):
        raise ValueError(f"monotonic_cst: expected one for each of {tree.n_features} features, got shape {signs.shape}")
    if not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(f"monotonic_cst: expected 1, 0 and -1, got {np.unique(signs).tolist()[:5]}")
    return signs.astype(np.int8)


def is_monotone(problem: Problem, cuts: Cuts, cst: ArrayLike) -> bool:
    """Whether the tree with these cuts and its majority classes is monotone. Raises as `check_monotonic_cst`."""
    return not _falls(problem, cuts, check_monotonic_cst(problem.tree, cst)).any()


def solve_monotone(problem: Problem, k: int, cst: ArrayLike, *, secondary: Secondary = "gini") -> Solution:
    """The fewest errors of a monotone tree within ``k`` changes, for k = 0 or 1; ties as in `solve_single`.

    ``errors_by_budget`` starts with infinity where the tree as given is not monotone with its majority classes.

    Raises:
        ValueError: ``k`` is above 1, ``cst`` does not fit, or no tree within ``k`` changes is monotone.
    """
    if k > 1:
        raise ValueError(f"k: expected 0 or 1 with monotonic_cst (or mode='hillclimb', or solver='brute'), got {k}")
    cuts, errors, n_compared = _climb(problem, check_monotonic_cst(problem.tree, cst), secondary, max_steps=k)
    return Solution(cuts, tuple(errors[:1] + errors[-1:] * k), "optimal", errors[-1], n_states=n_compared)


def climb_monotone(problem: Problem, cst: ArrayLike, *, secondary: Secondary = "gini") -> Solution:
    """Make the best single change that leaves the tree monotone, again and again until none makes fewer errors.

    A tree that is not monotone as given is first changed to the best one that is, if one change suffices.

    Raises:
        ValueError: ``cst`` does not fit, or no tree within one change is monotone.
    """
    cuts, errors, n_compared = _climb(problem, check_monotonic_cst(problem.tree, cst), secondary, max_steps=np.inf)
    proved = (errors[0], errors[:2][-1])
    return Solution(cuts, proved, "local optimum", problem.table.unavoidable_errors, n_states=n_compared)


def solve_monotone_brute(problem: Problem, k: int, cst: ArrayLike) -> Solution:
    """The fewest errors of a monotone tree within ``k`` changes, by trying everything; see `solve_brute`.

    Raises:
        ValueError: ``cst`` does not fit, that would be more than `MAX_TREES` trees, or none of them is monotone.
    """
    signs = check_monotonic_cst(problem.tree, cst)
    found = solve_brute(problem, k, lambda cuts: is_monotone(problem, cuts, signs))
    if found.lower_bound == np.inf:
        raise _none_found(signs, k)
    return found


def _none_found(signs: NDArray[np.int8], k: int) -> ValueError:
    return ValueError(
        f"monotonic_cst: no tree within k={k} changes of the one given keeps {signs.tolist()} monotone with the "
        "majority classes of its leaves: start from another or a smaller tree, or constrain fewer features"
    )


def _falls(problem: Problem, cuts: Cuts, signs: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Pairs of leaves that are not monotone: ``b`` is reached from ``a`` and predicts less; ``[a, b]``."""
    topology, table, leaf, inner = problem.topology, problem.table, problem.leaf_of(cuts), problem.topology.cuts
    threshold, counts = problem.thresholds(cuts, leaf), topology.sum_up(problem.leaf_counts(leaf))
    label = majority_shares(topology, counts, old=problem.tree.labels).argmax(axis=1)[topology.leaves]
    falls: NDArray[np.bool_] = label[:, None] > label
    for j in np.unique(cuts.feature[inner]):
        low, high = np.full(topology.n_leaves, -np.inf), np.full(topology.n_leaves, np.inf)  # values in (low, high]
        takes_missing = np.full(topology.n_leaves, table.ranks[j, table.order[j, -1]] == MISSING)  # those come last
        for v in inner[cuts.feature[inner] == j]:
            middle = topology.leaf_stop[topology.left[v]]
            on_left, on_right = slice(topology.leaf_start[v], middle), slice(middle, topology.leaf_stop[v])
            high[on_left] = np.minimum(high[on_left], threshold[v])
            low[on_right] = np.maximum(low[on_right], threshold[v])
            takes_missing[on_right if cuts.missing_left[v] else on_left] = False
        takes_values, sign = low < high, signs[table.columns[j]]
        is_reached = ((low[:, None] < high) | (sign < 0)) & ((low < high[:, None]) | (sign > 0))
        is_reached &= takes_values[:, None] & takes_values
        falls &= is_reached | (takes_missing[:, None] & takes_missing)
    return falls


def _climb(problem: Problem, signs: NDArray, secondary: Secondary, max_steps: float) -> tuple[Cuts, list[float], int]:
    """The last tree of the way, the errors of each (the first infinite if not monotone), how many were compared."""
    cuts, falls, n_compared = problem.cuts, _falls(problem, problem.cuts, signs), 1
    errors = [float("inf") if falls.any() else problem.n_errors(cuts)]
    while len(errors) <= max_steps:
        for change in _changes(problem, cuts, falls, errors[-1] - problem.table.tolerance, secondary):
            changed = cuts.with_cut(*change.tolist()[:4])
            n_compared += 1
            if not _falls(problem, changed, signs).any():
                cuts, falls = changed, np.zeros_like(falls)
                errors.append(problem.n_errors(cuts))
                break
        else:
            break
    if errors[-1] == np.inf:
        raise _none_found(signs, 1 if max_steps > 0 else 0)
    return cuts, errors, n_compared


def _changes(problem: Problem, cuts: Cuts, falls: NDArray[np.bool_], below: float, secondary: Secondary) -> NDArray:
    """Every change of one cut that keeps the floors and makes fewer than ``below`` errors, best first (`_CHANGE`)."""
    topology, table, leaf = problem.topology, problem.table, problem.leaf_of(cuts)
    threshold, counts, found = problem.thresholds(cuts, leaf), problem.leaf_counts(leaf), [np.empty(0, dtype=_CHANGE)]
    errors, weight = leaf_errors(counts), counts.sum(axis=1)
    gini = weight - np.square(counts).sum(axis=1) / np.where(weight > 0, weight, 1.0)
    for v in topology.cuts:
        rest = np.ones(topology.n_leaves, dtype=bool)  # the leaves that a change at v leaves alone
        rest[topology.leaf_start[v] : topology.leaf_stop[v]] = False
        if errors[rest].sum() < below and not falls[np.ix_(rest, rest)].any():
            kept = (float(errors[rest].sum()), float(gini[rest].sum()))
            found += _changes_at(problem, cuts, int(v), ~rest[leaf], float(threshold[v]), kept, below)
    changes = np.concatenate(found)
    keys = [_levels(changes["gini"], 1e-9 * float(table.weight.sum())), _levels(-changes["gap"], 1e-12)]
    ties = keys if secondary == "margin" else keys[::-1]  # the last key counts most
    keys = [changes["odd"], changes["distance"], *ties, _levels(changes["errors"], table.tolerance)]
    return changes[np.lexsort(keys)]


def _levels(x: NDArray[np.float64], tolerance: float) -> NDArray[np.int64]:
    """Ranks of ``x``, in which numbers no farther apart than ``tolerance`` tie."""
    order, level = np.argsort(x), np.zeros(len(x), dtype=np.int64)
    level[order[1:]] = np.cumsum(np.diff(x[order]) > tolerance)
    return level


def _changes_at(
    problem: Problem, cuts: Cuts, v: int, is_here: NDArray[np.bool_], threshold: float, kept: tuple, below: float
) -> list[NDArray]:
    """As `_changes`, for cut ``v`` and the points there, by feature; ``kept``: errors and impurity of other leaves."""
    topology, table, own, own_side = problem.topology, problem.table, cuts.feature[v], bool(cuts.missing_left[v])
    ends = (int(topology.leaf_start[v]), int(topology.leaf_stop[topology.left[v]]), int(topology.leaf_stop[v]))
    workspace = (
        Place(int(own), threshold, own_side, problem.turns_missing, *ends, errors=0.0, gini=0.0),
        Points(table.ranks, table.y, table.weight, table.n_rows),
        *(problem.leaf_of(cuts, int(u)) for u in (topology.left[v], topology.right[v])),
        empty_leaves(topology.n_leaves, table.n_classes),
        problem.floors,
        work := Positions(*(np.empty(table.n_points + 1) for _ in range(4))),
    )
    found = []
    for j in np.flatnonzero(problem.allowed[v]):
        order, values = table.order[j], table.values[j]
        here, lacks = order[is_here[order]], table.ranks[j, order[-1]] == MISSING
        ranks = table.ranks[j, here]
        m = int(np.searchsorted(ranks, MISSING))
        tried = np.arange(BELOW_ALL, len(values))
        n_left = np.searchsorted(ranks[:m], tried, side="right")
        # `Problem.to_tree` puts the threshold midway between two values here, whichever rank between them is meant; it
        # tells apart the ranks beyond all values here, and the rank as given, which keeps its threshold.
        seen = np.unique(ranks[:m])
        middle = np.searchsorted(values, values[seen[:-1]] / 2 + values[seen[1:]] / 2, side="right") - 1
        usual = np.isin(tried, [BELOW_ALL, *np.clip(middle, seen[:-1], seen[1:] - 1), len(values) - 1])
        apart = usual | (n_left == 0) | (n_left == m)
        if j == problem.cuts.feature[v]:
            apart |= n_left == n_left[problem.cuts.rank[v] - BELOW_ALL]
        for side in (own_side, not own_side)[: 1 + (problem.turns_missing and lacks)]:
            first, last = fill_both(here, m, len(here) - m, side, False, *workspace)
            errors = kept[0] + work.error_left[n_left] + work.error_right[m - n_left]
            good = np.flatnonzero(apart & (errors < below) & (n_left >= first) & (n_left <= last))
            if len(good) == 0:
                continue
            fill_both(here, m, len(here) - m, side, True, *workspace)
            p = n_left[good]
            change = np.zeros(len(good), dtype=_CHANGE)
            change["cut"], change["feature"], change["rank"], change["missing_left"] = v, j, tried[good], side
            change["errors"], change["gini"] = errors[good], kept[1] + work.gini_left[p] + work.gini_right[m - p]
            change["distance"], change["odd"] = np.inf, ~usual[good]
            if m == len(here):  # as scikit-learn: missing values follow the larger side
                larger = np.full(len(good), own_side) if j == own else 2 * p > m
                change["missing_left"] = side if lacks else larger
                change["odd"] |= change["missing_left"] != larger
            inner = (p > 0) & (p < m)
            low, high = values[ranks[p[inner] - 1]], values[ranks[p[inner]]]
            span = values[-1] - values[0] if len(values) > 1 else 1.0
            change["gap"][inner] = (high - low) / span
            if j == own:
                change["distance"][inner] = np.abs(low / 2 + high / 2 - threshold) / span
            found.append(change)
    return found
