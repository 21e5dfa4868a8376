"""The answer of the dynamic programme, node by node: the way back from an entry of its table to a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.trees.boxes.cases import SETTLED
from thrifty.solvers.trees.boxes.dynamic import DynamicProgramme, Lot
from thrifty.solvers.trees.boxes.splits import CHANGE, RAISE_LEFT, RAISE_RIGHT, REPLACE
from thrifty.solvers.trees.instance.ranks import BELOW_ALL, MISSING
from thrifty.solvers.trees.model.edits import Edit, apply_edits
from thrifty.solvers.trees.model.topology import NO_NODE
from thrifty.solvers.trees.model.tree import Tree

Case = Literal["keep", "change", "replace", "raise"]


@dataclass(frozen=True)
class Placed:
    """What becomes of one node.

    Attributes:
        old: The node, by its number in the tree as given.
        points: The points that reach it; int32.
        case: What happens to it; a leaf is kept.
        kind: Number of the kind of change.
        feature: Feature of the rank table that it tests after a change.
        rank: Largest rank that goes left after a change.
        missing_left: Missing direction after a change.
        child: The child that is raised.
    """

    old: int
    points: NDArray[np.int32]
    case: Case = "keep"
    kind: int = 0
    feature: int = 0
    rank: int = 0
    missing_left: bool = False
    child: int = NO_NODE


def place(programme: DynamicProgramme, lots: list[Lot], entry: int) -> list[Placed]:
    """Every node that is still there, and every one that makes way, in preorder.

    Args:
        programme: A finished dynamic programme.
        lots: What it remembers of the root's one box.
        entry: An entry of the root's table that is not inf.
    """
    programme.ignore_time()
    problem, topology = programme.problem, programme.problem.topology
    placed: list[Placed] = []
    everything = np.arange(problem.table.n_points, dtype=np.int32)
    waiting: list[tuple[int, NDArray[np.int32], list[Lot] | None, int, int]] = [(0, everything, lots, 0, entry)]
    while waiting:
        v, points, known, number, entry = waiting.pop()
        left, right = int(topology.left[v]), int(topology.right[v])
        if left == NO_NODE:
            placed.append(Placed(v, points))
            continue
        splits = programme.splits[v]
        if number == SETTLED:
            entry %= splits.n_prunings  # no change improves a settled box
            if entry == 0:
                placed.append(Placed(v, points))
                cuts = problem.cuts
                own = (int(cuts.feature[v]), int(cuts.rank[v]), bool(cuts.missing_left[v]))
                halves = problem.table.halves(points, *own)
                waiting += [(right, halves[1], None, SETTLED, 0), (left, halves[0], None, SETTLED, 0)]
                continue
        if number == SETTLED or known is None:
            _, known = programme.solve_box(v, points, splits.up_to(entry // splits.n_prunings))
            number = 0
        lot = next(lot for lot in reversed(known) if lot.first <= number)
        move = int(lot.choices.move[number - lot.first, entry])
        _, here, there = splits.triples[lot.choices.triple[number - lot.first, entry]]
        case = int(lot.moves.case[move])
        below = [
            (left, lot.below[0], int(lot.moves.child[move, 0]), int(here)),
            (right, lot.below[1], int(lot.moves.child[move, 1]), int(there)),
        ]
        if case == REPLACE:
            placed.append(Placed(v, points, "replace"))
        elif case in (RAISE_LEFT, RAISE_RIGHT):
            child, lots_below, number, entry = below[case - RAISE_LEFT]
            placed.append(Placed(v, points, "raise", child=child))
            waiting.append((child, points, lots_below, number, entry))
        else:
            test = (int(lot.moves.feature[move]), int(lot.moves.rank[move]), bool(lot.moves.missing_left[move]))
            if case >= CHANGE:
                placed.append(Placed(v, points, "change", case - CHANGE, *test))
            else:
                placed.append(Placed(v, points))
            halves = problem.table.halves(points, *test)
            for (child, lots_below, number, entry), half in zip(reversed(below), reversed(halves), strict=True):
                waiting.append((child, half, lots_below, number, entry))
    return placed


def to_tree(programme: DynamicProgramme, placed: list[Placed]) -> tuple[Tree, tuple[Edit, ...]]:
    """The tree that `place` describes, and what was done to the tree as given, in preorder of that.

    A changed cut's threshold lies midway between the two values nearest to it among the points that reach it (among
    all points, where those are on one side), which moves no training row.
    """
    problem, table = programme.problem, programme.problem.table
    edits = [_edit(programme, node) for node in placed if node.case != "keep"]
    kept = [node for node in placed if node.case != "raise"]
    counts = np.array([
        np.bincount(table.y[node.points], weights=table.weight[node.points], minlength=table.n_classes)
        for node in kept
    ])  # fmt: skip
    rows = np.array([table.n_rows[node.points].sum() for node in kept], dtype=np.int64)
    tree = apply_edits(problem.tree, edits).relabel(counts, rows)
    labels = {node.old: int(label) for node, label in zip(kept, tree.labels, strict=True)}
    return tree, tuple(
        replace(edit, label=labels[edit.node]) if edit.kind == "replace" else edit for edit in edits
    )  # fmt: skip


def _edit(programme: DynamicProgramme, node: Placed) -> Edit:
    problem, table, n_cuts = programme.problem, programme.problem.table, programme.problem.topology.subtree_cuts
    if node.case == "replace":
        return Edit(node.old, "replace", removed=int(n_cuts[node.old]))
    if node.case == "raise":
        return Edit(node.old, "raise", removed=int(n_cuts[node.old] - n_cuts[node.child]), child=node.child)
    here = table.ranks[node.feature, node.points]
    low = int(here[here <= node.rank].max(initial=BELOW_ALL))
    high = int(here[(here > node.rank) & (here != MISSING)].min(initial=MISSING))
    if low == BELOW_ALL or high == MISSING:
        threshold = table.threshold_at(node.feature, node.rank)
    else:
        threshold = table.threshold_between(node.feature, low, high)
    return Edit(
        node.old,
        programme.kinds[node.kind].name,
        feature=int(table.columns[node.feature]),
        threshold=threshold,
        missing_left=None if problem.tree.missing_left is None else node.missing_left,
    )
