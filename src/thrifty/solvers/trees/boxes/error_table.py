"""Four budgets at once: fewest errors for every number of changes and of cuts removed (DT-PLS)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, NDArray
from sklearn.tree import DecisionTreeClassifier

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty.solvers.trees.boxes.dynamic import DynamicProgramme, Lot, Progress
from thrifty.solvers.trees.boxes.placement import place, to_tree
from thrifty.solvers.trees.boxes.splits import Kind
from thrifty.solvers.trees.instance.problem import Features, build_problem
from thrifty.solvers.trees.model.edits import Edit
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.validation import check_limits

if TYPE_CHECKING:
    import pandas as pd

TreeLike = TypeVar("TreeLike", Tree, DecisionTreeClassifier)

BUDGETS = ("k_adjust", "k_exchange", "n_prune", "n_raise")

MOST_ENTRIES = 10_000_000
"""Entries of the largest table that is made: 80 MB."""


@dataclass(frozen=True)
class TableTree(Generic[TreeLike]):
    """The tree behind one entry.

    Attributes:
        tree: The tree, of the type that was given, its statistics taken from the training table.
        edits: What was done to the tree given, in preorder of it. A change is named after the budget it is charged
            to, so an exchange may keep its column.
        n_errors: Training errors of ``tree``.
    """

    tree: TreeLike
    edits: tuple[Edit, ...]
    n_errors: float


class ErrorTable(NDArrayOperatorsMixin, Generic[TreeLike]):
    """Fewest training errors for each combination of budgets; behaves as a NumPy array.

    ``table[a, e, r, q]``: at most ``a`` cuts adjusted and ``e`` exchanged, exactly ``r`` cuts removed by replacing
    subtrees with leaves and ``q`` by raising a child's subtree; inf where the tree has no such pruning.

    Attributes:
        errors: The array, float64 ``[k_adjust + 1, k_exchange + 1, n_prune + 1, n_raise + 1]``.
        status: ``"optimal"``, or ``"time limit"``: the entries are lower bounds.
        n_states: Boxes worked on.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)

        >>> from thrifty.solvers.trees import error_table
        >>> table = error_table(tree, X, y, k_adjust=1, n_prune=1)
        >>> table.status, table[0, 0, :, 0].tolist()  # with both cuts, and with one removed
        ('optimal', [6.0, 50.0])

    Source:
        Theorem 4.3 of the paper (DT-PLS).
    """

    def __init__(
        self, given: TreeLike, programme: DynamicProgramme, lots: list[Lot], errors: NDArray[np.float64]
    ) -> None:
        self.errors = errors
        self.status: Literal["optimal", "time limit"] = "time limit" if programme.is_cut_short else "optimal"
        self.n_states = programme.n_states
        self._given: TreeLike = given
        self._programme = programme
        self._lots = lots

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return np.array(self.errors, dtype=dtype) if copy or dtype is not None else self.errors

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [part.errors if isinstance(part, ErrorTable) else part for part in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self.errors[index]

    def __len__(self) -> int:
        return len(self.errors)

    def __repr__(self) -> str:
        return f"ErrorTable({', '.join(BUDGETS)}; {self.status})\n{self.errors!r}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Entries along each budget."""
        return self.errors.shape

    @property
    def ndim(self) -> int:
        """Always 4."""
        return self.errors.ndim

    def tree(self, index: tuple[int, int, int, int]) -> TableTree[TreeLike]:
        """The tree that makes ``table[index]`` errors. Of equally good ones, one with few changes.

        Raises:
            IndexError: There is no such entry.
            ValueError: The entry is inf, or the time ran out before the table was finished.
        """
        if self.status != "optimal":
            raise ValueError(
                "time_limit: the time ran out, so the table holds lower bounds, and no trees; expected more"
            )
        if not (isinstance(index, tuple) and len(index) == self.ndim and all(isinstance(i, Integral) for i in index)):
            raise IndexError(f"index: expected four whole numbers, {', '.join(BUDGETS)}, got {index!r}")
        if not all(-n <= i < n for i, n in zip(index, self.shape, strict=True)):
            raise IndexError(f"index: expected an entry of a table of shape {self.shape}, got {index!r}")
        if not np.isfinite(self.errors[index]):
            raise ValueError(
                f"n_prune, n_raise: expected fewer than {index[2]} and {index[3]}: no pruning of this tree removes so "
                f"many cuts, and table[{', '.join(map(str, index))}] is inf"
            )
        at = tuple(int(i) % n for i, n in zip(index, self.shape, strict=True))
        shape = self._programme.splits[0].shape
        entry = int(np.ravel_multi_index([min(i, n - 1) for i, n in zip(at, shape, strict=True)], shape))
        placed = place(self._programme, self._lots, entry)
        tree, edits = to_tree(self._programme, placed)
        if isinstance(self._given, Tree):
            return TableTree(tree, edits, float(self.errors[at]))
        return TableTree(cast(TreeLike, tree.to_sklearn(like=self._given)), edits, float(self.errors[at]))

    def pareto(self) -> pd.DataFrame:
        """For each number of changes, the sizes worth having: removing more cuts makes more errors.

        Returns:
            Columns ``k_adjust``, ``k_exchange``, ``removed`` (cuts), ``n_prune`` and ``n_raise`` (how they are
            removed), ``errors``; a row for each size such that no smaller tree makes as few errors.

        Raises:
            ImportError: pandas is not installed.
        """
        pandas = require("pandas", extra="tabular")
        rows = []
        for a, e in np.ndindex(self.shape[:2]):
            fewest = np.inf
            front = []
            for removed in range(sum(self.shape[2:]) - 2, -1, -1):
                splits = [(r, removed - r) for r in range(self.shape[2]) if 0 <= removed - r < self.shape[3]]
                errors, r, q = min((float(self.errors[a, e, r, q]), -r, q) for r, q in splits)
                if errors < fewest:
                    fewest = errors
                    front.append((a, e, removed, -r, q, errors))
            rows += front[::-1]
        return pandas.DataFrame(rows, columns=["k_adjust", "k_exchange", "removed", "n_prune", "n_raise", "errors"])

    def free_pruning(self) -> NDArray[np.int64]:
        """How many more cuts can go at no error, after each number of changes.

        Returns:
            int64 ``[k_adjust + 1, k_exchange + 1]``: the most cuts removed, within ``n_prune`` and ``n_raise``,
            without more errors than the same numbers of changes make with none removed.
        """
        tolerance = self._programme.problem.table.tolerance
        free = self.errors <= self.errors[:, :, :1, :1] + tolerance
        removed = np.add.outer(np.arange(self.shape[2]), np.arange(self.shape[3]))
        most: NDArray[np.int64] = np.where(free, removed, 0).max(axis=(2, 3))
        return most


def error_table(
    tree: TreeLike,
    X: ArrayLike,
    y: ArrayLike,
    k_adjust: int = 1,
    k_exchange: int = 0,
    n_prune: int = 0,
    n_raise: int = 0,
    *,
    sample_weight: ArrayLike | None = None,
    min_samples_leaf: int = 1,
    min_weight_fraction_leaf: float = 0.0,
    features: Features = None,
    frozen: Collection[int] = (),
    time_limit: float | None = None,
    memory_limit_mb: float = 2048,
    progress: Progress | None = None,
) -> ErrorTable[TreeLike]:
    """Fewest training errors of a tree for every number of changed and of removed cuts.

    Changes count "at most" (a change may be none), removed cuts "exactly", so that the table shows what each size
    costs. Replacing the subtree of a cut by a leaf removes all its cuts; raising a child into its parent's place
    removes the parent and the other child's cuts. The node replaced or made way for counts under that operation, the
    cuts that go with it under either, so the same tree can stand in several entries.

    Args:
        tree: A `Tree`, or a fitted ``DecisionTreeClassifier``.
        X: Training table, ``[n, n_features]``.
        y: Classes, ``[n]``.
        k_adjust: Cuts whose threshold may move, at most.
        k_exchange: Cuts that may get another test (also one on their own column), at most.
        n_prune: Cuts removed by subtree replacement, up to this many.
        n_raise: Cuts removed by subtree raising, up to this many.
        sample_weight: As in `improve_tree`, as all that follow.
        min_samples_leaf: Rows in each leaf; a leaf in place of a subtree with fewer needs no more than that has.
        min_weight_fraction_leaf: Likewise a share of the weight.
        features: Columns that cuts may be exchanged to.
        frozen: Cuts that are not changed; they may be removed.
        time_limit: Seconds; after that the table holds lower bounds.
        memory_limit_mb: Memory for boxes and choices; with less, more is worked out twice.
        progress: Called with the number of states so far, now and then.

    Returns:
        The table.

    Raises:
        ValueError: An argument does not fit; the message names it.
        TypeError: ``tree`` is neither a `Tree` nor a decision-tree classifier.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from thrifty.solvers.trees.boxes.error_table import error_table
        >>> X, y = load_iris(return_X_y=True)
        >>> tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
        >>> table = error_table(tree, X, y, k_adjust=1, n_prune=2)
        >>> table.shape
        (2, 1, 3, 1)
        >>> bool((table[1] <= table[0]).all())
        True

    Source:
        Theorem 4.3 of the paper.
    """
    budgets = [
        whole("k_adjust", k_adjust, least=0),
        whole("k_exchange", k_exchange, least=0),
        whole("n_prune", n_prune, least=0),
        whole("n_raise", n_raise, least=0),
    ]
    if (entries := math.prod(n + 1 for n in budgets)) > MOST_ENTRIES:
        raise ValueError(f"{', '.join(BUDGETS)}: expected a table of at most {MOST_ENTRIES:,} entries, got {entries:,}")
    check_limits(time_limit, memory_limit_mb)
    if features is not None and k_exchange == 0:
        raise ValueError("features: expected None with k_exchange=0, which changes no feature, got a list")
    ours = tree if isinstance(tree, Tree) else Tree.from_sklearn(tree)
    problem = build_problem(
        ours,
        X,
        y,
        operation="both" if k_exchange > 0 else "adjust",
        sample_weight=sample_weight,
        min_samples_leaf=min_samples_leaf,
        min_weight_fraction_leaf=min_weight_fraction_leaf,
        features=features,
        frozen=frozen,
    )
    own = problem.allowed & (np.arange(problem.table.n_features) == problem.cuts.feature[:, None])
    programme = DynamicProgramme(
        problem,
        (Kind("adjust", k_adjust, own, False), Kind("exchange", k_exchange, problem.allowed, True)),
        n_prune,
        n_raise,
        leaf_floor=(
            min_samples_leaf,
            min_weight_fraction_leaf * float(problem.table.weight.sum()) - problem.table.tolerance,
        ),
        time_limit=time_limit,
        memory_limit_mb=memory_limit_mb,
        progress=progress,
    )
    tables, lots = programme.solve()
    errors = tables[0].reshape(programme.splits[0].shape)
    short = [n + 1 - have for n, have in zip(budgets, errors.shape, strict=True)]
    errors = np.pad(errors, [(0, n) for n in short[:2]] + [(0, 0), (0, 0)], mode="edge")
    errors = np.pad(errors, [(0, 0), (0, 0)] + [(0, n) for n in short[2:]], constant_values=np.inf)
    return ErrorTable(tree, programme, lots, errors)
