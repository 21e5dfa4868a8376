"""How operation budgets split at a cut: what of them is spent there, what goes to the left, what to the right.

The dynamic programme keeps for each cut and box a table with one entry for each
combination of budgets: changes of each kind ("at most"), then cuts removed by subtree replacement and by subtree
raising ("exactly"). What happens at the cut itself is one of a few *cases*: it is kept, replaced by a leaf, one of
its children is raised into its place, or its test is changed. A case is nothing but a list of triples (entry of this
table, entry of the left child's, entry of the right child's): the entry is the least sum over its triples. So the
engine is one loop whatever the operations are, and the recurrences of the paper stand here, in index arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.model.topology import Topology

KEEP, REPLACE, RAISE_LEFT, RAISE_RIGHT, CHANGE = range(5)
"""Cases. Changes of the second kind are case ``CHANGE + 1``, and so on."""

NOT_NEEDED = -1


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of change.

    Attributes:
        name: As it is reported.
        budget: Changes of this kind, at most.
        allowed: Features (of the rank table) that each cut may be changed to; bool ``[n_nodes, d]``.
        turns_missing: Whether a change may turn a cut's missing direction.
    """

    name: Literal["adjust", "exchange"]
    budget: int
    allowed: NDArray[np.bool_]
    turns_missing: bool


@dataclass(frozen=True, eq=False)
class Splits:
    """The table of one node and the cases that fill it.

    An entry is numbered in C order of ``shape``; its budgets for changes come first, so entry ``i`` has the change
    budgets number ``i // n_prunings``.

    Attributes:
        shape: Entries along each budget; no more of a budget than the subtree can use.
        n_changes: Combinations of change budgets.
        n_prunings: Combinations of pruning budgets.
        shape_only: The table if there were no errors: 0, or inf where the subtree cannot lose exactly so many cuts;
            float64 ``[n_changes * n_prunings]``.
        triples: Entries (here, left, right); those of case ``c`` are ``triples[start[c]:start[c + 1]]``; int32.
        start: See ``triples``; int64 ``[CHANGE + n_kinds + 1]``.
        needs_left: Change budgets here whose entries need those of the left child, for a kept cut (row 0) and for
            each kind of change (rows 1, ...), `NOT_NEEDED` where there are none; int32 ``[1 + n_kinds, n_changes of
            the left child]``.
        needs_right: Likewise of the right child.
        unit: Change budgets with one change of a kind and nothing else, `NOT_NEEDED` where this cut may not be
            changed so; int64 ``[n_kinds]``.
        fewer: Entry with one change of a kind less, -1 where there is none; int32 ``[n_kinds, size]``.
    """

    shape: tuple[int, ...]
    n_changes: int
    n_prunings: int
    shape_only: NDArray[np.float64]
    triples: NDArray[np.int32]
    start: NDArray[np.int64]
    needs_left: NDArray[np.int32]
    needs_right: NDArray[np.int32]
    unit: NDArray[np.int64]
    fewer: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Entries of the table."""
        return self.n_changes * self.n_prunings

    def up_to(self, change: int) -> NDArray[np.bool_]:
        """The change budgets that are no larger than number ``change`` in any kind; bool ``[n_changes]``."""
        kinds = _entries(self.shape[:-2])
        smaller: NDArray[np.bool_] = (kinds <= kinds[change]).all(axis=1)
        return smaller


def all_splits(topology: Topology, kinds: tuple[Kind, ...], n_replace: int, n_raise: int) -> list[Splits]:
    """The tables of all nodes, children first.

    Args:
        topology: The tree's shape.
        kinds: Kinds of change.
        n_replace: Cuts to remove by subtree replacement, at most.
        n_raise: Cuts to remove by subtree raising, at most.
    """
    changeable = [_sum_up_cuts(topology, kind.allowed) for kind in kinds]
    n_cuts = topology.subtree_cuts
    found: dict[int, Splits] = {}
    alike: dict[tuple[object, ...], Splits] = {}  # a chain has hundreds of cuts, and few different tables
    for v in topology.preorder[::-1]:
        caps = [min(kind.budget, int(total[v])) for kind, total in zip(kinds, changeable, strict=True)]
        caps += [min(n_replace, int(n_cuts[v])), min(n_raise, int(n_cuts[v]))]
        shape = tuple(cap + 1 for cap in caps)
        if n_cuts[v] == 0:
            found[v] = alike.setdefault((), _leaf(shape))
        else:
            left, right = int(topology.left[v]), int(topology.right[v])
            may = [bool(kind.allowed[v].any()) for kind in kinds]
            sizes = (int(n_cuts[left]), int(n_cuts[right])) if n_replace or n_raise else (0, 0)
            key = (shape, id(found[left]), id(found[right]), sizes, tuple(may))
            if key not in alike:
                alike[key] = _cut(shape, found[left], found[right], *sizes, may)
            found[v] = alike[key]
    return [found[v] for v in range(topology.n_nodes)]


def _sum_up_cuts(topology: Topology, allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many cuts in the subtree of each node may be changed; ``[n_nodes]``."""
    totals = np.asarray(allowed.any(axis=1), dtype=np.int64)
    for v in topology.cuts.tolist()[::-1]:
        totals[v] += totals[topology.left[v]] + totals[topology.right[v]]
    return totals


def _leaf(shape: tuple[int, ...]) -> Splits:
    n_kinds = len(shape) - 2
    none = np.full((1 + n_kinds, 1), NOT_NEEDED, dtype=np.int32)
    return Splits(
        shape=shape,
        n_changes=1,
        n_prunings=1,
        shape_only=np.zeros(1),
        triples=np.zeros((0, 3), dtype=np.int32),
        start=np.zeros(CHANGE + n_kinds + 1, dtype=np.int64),
        needs_left=none,
        needs_right=none,
        unit=np.full(n_kinds, NOT_NEEDED, dtype=np.int64),
        fewer=np.full((n_kinds, 1), -1, dtype=np.int32),
    )


def _cut(shape: tuple[int, ...], left: Splits, right: Splits, s_left: int, s_right: int, may: list[bool]) -> Splits:
    n_kinds, n_cuts = len(shape) - 2, s_left + s_right + 1
    nothing = np.zeros(len(shape), dtype=np.int64)
    units = np.eye(len(shape), dtype=np.int64)
    cases = [
        _both(shape, left, right, nothing),
        _replaced(shape, n_cuts),
        _raised(shape, left, s_right + 1),
        _raised(shape, right, s_left + 1)[:, [0, 2, 1]],
        *(_both(shape, left, right, units[q]) if may[q] else _no_triples() for q in range(n_kinds)),
    ]
    triples = np.concatenate(cases).astype(np.int32)
    shape_only = np.full(shape, np.inf)
    shape_only.reshape(-1)[triples[:, 0]] = 0.0
    for q in range(n_kinds):
        np.minimum.accumulate(shape_only, axis=q, out=shape_only)
    changes = shape[:-2]
    return Splits(
        shape=shape,
        n_changes=int(np.prod(changes)),
        n_prunings=int(np.prod(shape[-2:])),
        shape_only=shape_only.reshape(-1),
        triples=triples,
        start=np.concatenate([[0], np.cumsum([len(case) for case in cases])]).astype(np.int64),
        needs_left=_needs(changes, left.shape[:-2]),
        needs_right=_needs(changes, right.shape[:-2]),
        unit=np.array(
            [np.ravel_multi_index(tuple(units[q, :-2]), changes) if may[q] and shape[q] > 1 else NOT_NEEDED
             for q in range(n_kinds)],
            dtype=np.int64,
        ),
        fewer=_fewer(shape),
    )  # fmt: skip


def _entries(shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Budgets of each entry, in order; ``[size, len(shape)]``."""
    return np.indices(shape).reshape(len(shape), -1).T.astype(np.int64)


def _no_triples() -> NDArray[np.int64]:
    return np.zeros((0, 3), dtype=np.int64)


def _both(shape: tuple[int, ...], left: Splits, right: Splits, spent: NDArray[np.int64]) -> NDArray[np.int64]:
    """The cut stays a cut: every split of what is left of the budgets after ``spent``."""
    lefts, rights = np.flatnonzero(np.isfinite(left.shape_only)), np.flatnonzero(np.isfinite(right.shape_only))
    a, b = np.repeat(lefts, len(rights)), np.tile(rights, len(lefts))
    budgets = _entries(left.shape)[a] + _entries(right.shape)[b] + spent
    fits = (budgets < shape).all(axis=1)
    here = np.ravel_multi_index(tuple(budgets[fits].T), shape)
    return np.column_stack([here, a[fits], b[fits]])


def _replaced(shape: tuple[int, ...], n_cuts: int) -> NDArray[np.int64]:
    """All cuts go, the cut itself by replacement, those below by either operation."""
    here = [
        np.ravel_multi_index((0,) * (len(shape) - 2) + (n, n_cuts - n), shape)
        for n in range(1, shape[-2])
        if 0 <= n_cuts - n < shape[-1]
    ]
    return np.array([(i, 0, 0) for i in here], dtype=np.int64).reshape(-1, 3)


def _raised(shape: tuple[int, ...], child: Splits, n_removed: int) -> NDArray[np.int64]:
    """The child takes the cut's place: ``n_removed`` cuts go, the cut itself by raising, the others by either."""
    triples = [_no_triples()]
    below = _entries(child.shape)
    for n in range(n_removed):
        budgets = below + np.array([0] * (len(shape) - 2) + [n, n_removed - n])
        fits = np.flatnonzero((budgets < shape).all(axis=1) & np.isfinite(child.shape_only))
        here = np.ravel_multi_index(tuple(budgets[fits].T), shape)
        triples.append(np.column_stack([here, fits, np.zeros_like(fits)]))
    return np.concatenate(triples)


def _needs(here: tuple[int, ...], child: tuple[int, ...]) -> NDArray[np.int32]:
    """See `Splits.needs_left`. Needs are closed downwards, so the entry with nothing for the sibling decides."""
    needs = np.full((1 + len(here), int(np.prod(child))), NOT_NEEDED, dtype=np.int32)
    spent = np.vstack([np.zeros(len(here), dtype=np.int64), np.eye(len(here), dtype=np.int64)])
    for row in range(len(needs)):
        budgets = _entries(child) + spent[row]
        fits = (budgets < here).all(axis=1)
        needs[row, fits] = np.ravel_multi_index(tuple(budgets[fits].T), here)
    return needs


def _fewer(shape: tuple[int, ...]) -> NDArray[np.int32]:
    entries = _entries(shape)
    fewer = np.full((len(shape) - 2, len(entries)), -1, dtype=np.int32)
    for q in range(len(shape) - 2):
        some = entries[:, q] > 0
        fewer[q, some] = np.flatnonzero(some) - int(np.prod(shape[q + 1 :]))
    return fewer
