"""What a command of `cli` reads: a tree and a table that fit each other; and how it says what it does meanwhile."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from thrifty._common.tables import Columns, one_hot, read_table, split_target
from thrifty.solvers.trees.model.tree import Tree
from thrifty.solvers.trees.model.weka import tree_from_weka
from thrifty.solvers.trees.shell.columns import columns_for, labels_for, matrix_for


@dataclass(frozen=True, eq=False)
class Inputs:
    """A tree, and a table as it reads it."""

    tree: Tree
    X: NDArray[np.float64]
    y: NDArray
    weight: NDArray[np.float64] | None


def read_inputs(tree: Path | None, weka: Path | None, data: Path, target: str, weight: str | None) -> Inputs:
    """Read a tree (from its JSON, or from what WEKA printed) and a table, and match their columns.

    Raises:
        ValueError: Not exactly one of ``tree`` and ``weka`` is given; a file does not hold what it should; or they do
            not fit each other.
        OSError: A file cannot be read.
    """
    columns, y, weights = read_training_table(data, target, weight)
    if tree is not None and weka is None:
        given = Tree.load(tree)
        return Inputs(given, matrix_for(given, columns), labels_for(given.classes, y), weights)
    if weka is not None and tree is None:
        return Inputs(*_weka_inputs(read_weka(weka), columns, y), y, weights)
    raise ValueError(
        "--tree, --weka: expected one of them: a tree as JSON (`thrifty trees fit` makes one), or J48's output"
    )


def read_weka(path: Path) -> str:
    """What WEKA printed.

    Raises:
        ValueError: The file is no text.
        OSError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected what WEKA's J48 printed, as UTF-8, got other bytes: {error}") from None


def read_training_table(
    data: Path, target: str, weight: str | None
) -> tuple[Columns, NDArray, NDArray[np.float64] | None]:
    """The features, classes and row weights of a table.

    Raises:
        ValueError: The table lacks a column, or the weights are text or negative.
        OSError: The file cannot be read.
    """
    columns = read_table(data)
    weights = None
    if weight is not None:
        if weight not in columns or columns[weight].dtype == object:
            raise ValueError(f"--weight: expected a column of numbers in {data}, got {weight!r}")
        weights = columns.pop(weight)
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError(
                f"--weight: expected finite numbers of at least 0, and a positive one, got in {weight!r} a negative, "
                "infinite or missing one, or zeros alone"
            )
    features, y = split_target(columns, target)
    remark(f"{data}: {len(y)} rows, {len(features)} columns, {len(np.unique(y))} classes")
    return features, y, weights


def monotonic_cst(tree: Tree, words: Sequence[str]) -> list[int] | None:
    """The constraint of each column of a tree, from words such as ``income=+1``; ``None`` for no words.

    Raises:
        ValueError: A word names no column of the tree, or no direction.
    """
    if not words:
        return None
    names = tree.feature_names or tuple(str(j) for j in range(tree.n_features))
    signs = dict.fromkeys(names, 0)
    for word in words:
        name, _, sign = word.rpartition("=")  # a column of a table of text has a = in its own name
        if name not in signs or sign not in {"+1", "1", "-1"}:
            listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise ValueError(f"--monotonic: expected COLUMN=+1 or COLUMN=-1 with one of {listed}, got {word!r}")
        signs[name] = int(sign)
    return list(signs.values())


def _weka_inputs(text: str, columns: Columns, y: NDArray) -> tuple[Tree, NDArray[np.float64]]:
    """A tree of WEKA's over all columns of the table, those of its own nominal tests included."""
    own = tree_from_weka(text, classes=np.unique(y))
    tested = own.feature_names if own.n_cuts and own.feature_names else ()
    names = tuple(dict.fromkeys((*one_hot(columns)[1], *tested)))
    X = columns_for(names, columns)
    tree = tree_from_weka(text, feature_names=names, classes=np.unique(y))
    leaves = tree.topology.leaves
    off = int((np.bincount(tree.apply(X), minlength=tree.n_nodes) != tree.n_samples)[leaves].sum())
    if off:
        remark(
            f"{off} of {len(leaves)} leaves hold other rows of this table than WEKA counted: it prints thresholds with "
            "6 decimals (unless -B), splits rows with missing values, or was trained on another table"
        )
    return tree, X


def remark(text: str) -> None:
    """Say something that is no result, on standard error."""
    sys.stderr.write(f"{text}\n")


@contextmanager
def at_work(what: str) -> Iterator[None]:
    """Show on standard error that work goes on, and print warnings as single lines there."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            with Console(stderr=True).status(what):
                yield
        finally:
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    remark(f"note: {warning.message}")
