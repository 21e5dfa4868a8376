"""The difference between two trees in words: ``cut 4: petal width ≤ 0.8 → petal length ≤ 2.45, −3 errors``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.tree import DecisionTreeClassifier

from thrifty.solvers.trees.model.edits import Edit, apply_edits, edits_between, majority_errors
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.validation import check_table

CLOSENESS = 0.01
"""A printed number is off by at most this share of the way to the nearest number that it must be told apart from."""


CheckedTable = tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]
"""Values as they are compared, class codes, weights."""


@dataclass(frozen=True)
class Difference:
    """What changed between two trees. Errors are sums of training weight, every leaf taking its majority class.

    Attributes:
        edits: The operations, in preorder of the tree before.
        sentences: Each in words, without its errors.
        errors_saved: For each operation, the training errors that come back if it alone is undone and the others
            stay; ``None`` without a table. They add up to the whole where the operations touch different rows.
        n_errors_before: Training errors of the tree before; ``None`` without a table.
        n_errors: Training errors of the tree after; likewise.

    Example:
        >>> from thrifty.solvers.trees.model.edits import Edit
        >>> moved = Edit(0, "adjust", feature=2, threshold=1.9)
        >>> print(Difference((moved,), ("cut 0: x2 ≤ 2.45 → x2 ≤ 1.9",), (3.0,), n_errors_before=4.0, n_errors=1.0))
        cut 0: x2 ≤ 2.45 → x2 ≤ 1.9, −3 errors
    """

    edits: tuple[Edit, ...]
    sentences: tuple[str, ...]
    errors_saved: tuple[float, ...] | None = None
    n_errors_before: float | None = None
    n_errors: float | None = None

    def lines(self) -> list[str]:
        """One line an operation."""
        if self.errors_saved is None:
            return list(self.sentences)
        return [
            f"{words}, {errors_in_words(-saved)}"
            for words, saved in zip(self.sentences, self.errors_saved, strict=True)
        ]  # fmt: skip

    def __str__(self) -> str:
        """The lines; below them the whole, where the single shares do not add up to it."""
        lines = self.lines() or ["no cut differs"]
        if self.errors_saved and self.n_errors is not None and self.n_errors_before is not None:
            whole = self.n_errors_before - self.n_errors
            if not np.isclose(sum(self.errors_saved), whole):
                lines.append(f"together {errors_in_words(-whole)} (each line: what undoing that change alone costs)")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers, ready for JSON."""
        saved = self.errors_saved or (None,) * len(self.edits)
        return {
            "n_errors_before": self.n_errors_before,
            "n_errors": self.n_errors,
            "changes": [
                {**asdict(edit), "errors_saved": errors, "in_words": words}
                for edit, errors, words in zip(self.edits, saved, self.lines(), strict=True)
            ],
        }


def describe_difference(
    before: Tree | DecisionTreeClassifier,
    after: Tree | DecisionTreeClassifier,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> Difference:
    r"""Say what turns one tree into another.

    Args:
        before: The tree as it was: a `Tree`, or a fitted ``DecisionTreeClassifier``.
        after: The tree as it is: the same shape with other tests, or pruned as well.
        X: Training table, ``[n, n_features]``; ``None``: nothing is said of errors.
        y: Classes, ``[n]``.
        sample_weight: ``[n]``. ``None``: 1 each.

    Returns:
        The `Difference`; cuts go by their node numbers in ``before``.

    Raises:
        ValueError: The trees read different columns, or one cannot be made of the other; or the table does not fit.

    Example:
        >>> from dataclasses import replace
        >>> from thrifty.solvers.trees.model.weka import tree_from_weka
        >>> from thrifty.solvers.trees.model.wording import describe_difference
        >>> before = tree_from_weka("width <= 0.6: a (50.0)\nwidth > 0.6: b (50.0)")
        >>> print(describe_difference(before, replace(before, threshold=[0.8, 0, 0])))
        cut 0: width ≤ 0.6 → width ≤ 0.8
    """
    before = before if isinstance(before, Tree) else Tree.from_sklearn(before)
    after = after if isinstance(after, Tree) else Tree.from_sklearn(after)
    table = None if X is None or y is None else check_table(before, X, y, sample_weight)
    return describe_edits(before, after, edits_between(before, after), table)


def describe_edits(before: Tree, after: Tree, edits: tuple[Edit, ...], table: CheckedTable | None) -> Difference:
    """Say what ``edits``, which turn one tree into the other, do; ``table`` is what `check_table` returned."""
    columns = _Columns(before, after, None if table is None else table[0])
    sentences = tuple(_sentence(before, edit, columns) for edit in edits)
    if table is None:
        return Difference(edits, sentences)
    n_errors = majority_errors(apply_edits(before, edits), *table)
    return Difference(
        edits=edits,
        sentences=sentences,
        errors_saved=tuple(
            majority_errors(apply_edits(before, [other for other in edits if other is not edit]), *table) - n_errors
            for edit in edits
        ),
        n_errors_before=majority_errors(before, *table),
        n_errors=n_errors,
    )


def errors_in_words(change: float) -> str:
    """``−3 errors``, ``+1 error``, ``±0 errors``."""
    size = f"{abs(change):.6g}"
    sign = "±" if size == "0" else "−" if change < 0 else "+"
    return f"{sign}{size} error{'' if size == '1' else 's'}"


def short_number(x: float, others: NDArray[np.float64], reads_back: type[np.floating] | None = None) -> str:
    """``x`` with as few digits as tell it apart from other numbers.

    Args:
        x: A finite number.
        others: Numbers that it must be told apart from: the printed one is off by at most 1 % of the way to the
            nearest of them. ``x`` itself does not count.
        reads_back: A precision in which the printed number must also be the very same as ``x``.
    """
    others = others[np.isfinite(others) & (others != x)]
    reach = CLOSENESS * float(np.abs(others - x).min()) if len(others) else np.inf
    printed = x
    for digits in range(1, 17):
        rounded = float(f"{x:.{digits}g}")
        if abs(rounded - x) <= reach and (reads_back is None or reads_back(rounded) == reads_back(x)):
            printed = rounded
            break
    if printed == 0 or 1e-4 <= abs(printed) < 1e9:
        return np.format_float_positional(printed, trim="-")
    return np.format_float_scientific(printed, trim="-", exp_digits=1)


class _Columns:
    """What is known of the columns: prints thresholds so that they are told apart from values and other thresholds.

    One that is itself a value of the column must read back as that value, lest the value change sides. Without a
    table, all are printed to float32 precision.
    """

    def __init__(self, before: Tree, after: Tree, X: NDArray[np.float64] | None) -> None:
        self._trees, self._X = (before, after), X
        self._compared = np.float32 if before.dtype == "float32" else np.float64

    def may_be_missing(self, feature: int) -> bool:
        """Whether the column has missing values, or nothing is known of it."""
        return self._X is None or bool(np.isnan(self._X[:, feature]).any())

    def __call__(self, feature: int, threshold: float) -> str:
        thresholds = np.concatenate([tree.threshold[tree.feature == feature] for tree in self._trees])
        if self._X is None:
            return short_number(threshold, thresholds, np.float32)
        values = self._X[:, feature]
        is_value = bool((values == threshold).any())
        return short_number(threshold, np.concatenate([thresholds, values]), self._compared if is_value else None)


def _sentence(before: Tree, edit: Edit, columns: _Columns) -> str:
    v = edit.node
    test = _test(before, int(before.feature[v]), float(before.threshold[v]), columns)
    if edit.kind == "replace":
        below = _cuts(edit.removed - 1)
        label = before.classes[edit.label]
        return f"cut {v}: {test}{f' and the {below} below it' if below else ''} → a leaf ({label})"
    if edit.kind == "raise":
        raised, other = ("left", "right") if edit.child == before.left[v] else ("right", "left")
        below = _cuts(edit.removed - 1)
        return f"cut {v}: {test}{f' and the {below} on its {other}' if below else ''} → its {raised} branch"
    words = f"cut {v}: {test} → {_test(before, edit.feature, edit.threshold, columns)}"
    turns = before.missing_left is not None and bool(before.missing_left[v]) != edit.missing_left
    is_all = (edit.feature, edit.threshold) == (before.feature[v], before.threshold[v])
    if turns and (is_all or columns.may_be_missing(edit.feature)):
        words += f" (missing values go {'left' if edit.missing_left else 'right'})"
    return words


def _test(tree: Tree, feature: int, threshold: float, columns: _Columns) -> str:
    return f"{tree.feature_name(feature)} ≤ {columns(feature, threshold)}"


def _cuts(n: int) -> str:
    return "" if n == 0 else "cut" if n == 1 else f"{n} cuts"
