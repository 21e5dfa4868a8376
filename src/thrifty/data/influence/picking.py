"""Choosing k examples from a score matrix: by rounds over the targets, by the mean, or by rounds over groups.

In a round every target, in a fresh random order, takes its best example that nobody has taken yet (arXiv 2505.19051;
RDS+ visits the targets in a fixed order).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import index

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor


def round_robin(
    scores: Float[Tensor, "n m"] | NDArray[np.floating], k: int, *, seed: int | None = 0
) -> Int[np.ndarray, " k"]:
    """Choose ``k`` different rows, the columns taking turns.

    Args:
        scores: One row an example, one column a target; −inf marks what may not be chosen.
        k: How many.
        seed: Of the order in which columns are visited, drawn anew every round; ``None`` keeps their own order.

    Returns:
        Rows, in the order in which they were taken.

    Raises:
        ValueError: Fewer than ``k`` rows may be chosen, or a score is NaN or inf.

    Example:
        >>> round_robin(np.array([[0.1, 0.9], [0.8, 0.7], [0.3, 0.2]]), 2, seed=None)
        array([1, 0])
    """
    table, k = _as_array(scores), index(k)
    n, m = table.shape
    if not m:
        raise ValueError("scores: expected at least one column, got none")
    if np.isnan(table).any() or np.isposinf(table).any():
        raise ValueError("scores: expected finite numbers, or -inf for what may not be chosen; got NaN or inf")
    usable = np.isfinite(table).any(axis=1)
    if not 1 <= k <= int(usable.sum()):
        raise ValueError(f"k: expected 1 to {int(usable.sum())} (examples that may be chosen), got {k}")
    depth = min(n, 2 * k // m + 64)  # how far down a column is sorted; a column that runs dry is sorted whole
    ranked = [_best(table[:, t], depth) for t in range(m)]
    place = [0] * m
    taken = ~usable
    chosen: list[int] = []
    order = np.random.default_rng(seed)
    while True:
        for t in order.permutation(m) if seed is not None else range(m):
            while True:
                if place[t] == len(ranked[t]):
                    ranked[t] = _best(table[:, t], n)
                row = ranked[t][place[t]]
                place[t] += 1
                if not taken[row]:
                    break
            taken[row] = True
            chosen.append(int(row))
            if len(chosen) == k:
                return np.array(chosen)


def top(scores: Float[Tensor, " n"] | NDArray[np.floating], k: int) -> Int[np.ndarray, " k"]:
    """Choose the ``k`` largest; among equals the lower index.

    Raises:
        ValueError: Fewer than ``k`` are finite.
    """
    return round_robin(_as_array(scores).reshape(-1, 1), k, seed=None)


def by_group(scores: Float[Tensor, "n m"], groups: Sequence[Hashable]) -> tuple[Float[Tensor, "n g"], list[Hashable]]:
    """Average the columns of each group (a task with several target examples).

    Args:
        scores: One column a target.
        groups: One id a target.

    Returns:
        One column a group, and the groups in the order in which they first appear.

    Raises:
        ValueError: There is not one id a target.
    """
    if len(groups) != scores.shape[1]:
        raise ValueError(f"groups: expected one id a target ({scores.shape[1]}), got {len(groups)}")
    names = list(dict.fromkeys(groups))
    member = torch.tensor([[float(group == name) for name in names] for group in groups])
    weights = member / member.sum(0)
    out = torch.where(torch.isneginf(scores), 0.0, scores.float()) @ weights.to(scores.device)
    return out.masked_fill(torch.isneginf(scores).any(1, keepdim=True), -torch.inf), names


def keep_first(keys: Sequence[Hashable]) -> NDArray[np.bool_]:
    """Tell which entries are not a repetition of an earlier one.

    Example:
        >>> keep_first(["a", "b", "a"])
        array([ True,  True, False])
    """
    seen: set[Hashable] = set()
    fresh = np.zeros(len(keys), dtype=bool)
    for i, key in enumerate(keys):
        fresh[i] = key not in seen
        seen.add(key)
    return fresh


def _best(column: NDArray[np.floating], depth: int) -> NDArray[np.intp]:
    """Return the rows of the largest entries, in order; among equals the lower row first."""
    if depth >= len(column):
        return np.argsort(-column, kind="stable")
    edge = np.partition(column, len(column) - depth)[len(column) - depth]
    rows = np.flatnonzero(column >= edge)  # with ties this is more than depth, and still a prefix of the whole order
    return rows[np.argsort(-column[rows], kind="stable")]


def _as_array(scores: Tensor | NDArray[np.floating]) -> NDArray[np.floating]:
    table = scores.detach().cpu() if isinstance(scores, Tensor) else np.asarray(scores)
    if isinstance(table, Tensor):
        return (table if table.dtype in (torch.float32, torch.float64) else table.double()).numpy()
    return table if table.dtype.kind == "f" else table.astype(np.float64)
