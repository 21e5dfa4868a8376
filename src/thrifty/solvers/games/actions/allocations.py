"""Colonel Blotto's allocations, and subsets of a given size: units dealt to rows, as paths of a layered graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from thrifty._common.checks import whole
from thrifty.solvers.games.actions.base import Ints
from thrifty.solvers.games.actions.walks import Graph, WalkSet, graph_of


def _layers(letters: Ints, total: int) -> Graph | None:
    """Return the graph whose node (h, y) has y units left at row h."""
    rows = letters.shape[0]
    ends = rows * (total + 1)  # the node at which all rows are done and nothing is left
    edges = [
        (h * (total + 1) + total - y, ends if h == rows - 1 else (h + 1) * (total + 1) + total - y + s, letters[h, s],
         h * letters.shape[1] + s)
        for h in range(rows)
        for y in range(total + 1)
        for s in range(min(y + 1, letters.shape[1]))
        if letters[h, s] >= -1 and (h < rows - 1 or s == y) and (h > 0 or y == total)
    ]  # fmt: skip
    return graph_of(ends + 1, np.array(edges, np.int64).reshape(-1, 4), letters, total)


class BlottoSet(WalkSet):
    """Ways to deal soldiers to battlefields; coordinate ``h * (soldiers + 1) + s`` is s soldiers on battlefield h.

    Args:
        soldiers: How many there are.
        battlefields: How many there are.
        min_alloc: The fewest soldiers on each battlefield; one number for all, or one each.
        max_alloc: The most, likewise.
        at_most: Soldiers may stay at home.

    Raises:
        ValueError: A number is out of range, or no allocation obeys the limits.

    Example:
        >>> BlottoSet(3, 3).argmin([0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1])[1]
        0.0
        >>> round(2.718281828 ** BlottoSet(10, 4, max_alloc=4).log_size)
        68

    Source:
        the paper's section on Colonel Blotto; limits are ours.
    """

    def __init__(
        self,
        soldiers: int,
        battlefields: int,
        min_alloc: ArrayLike | None = None,
        max_alloc: ArrayLike | None = None,
        at_most: bool = False,
    ) -> None:
        n, k = whole("soldiers", soldiers), whole("battlefields", battlefields)
        self.soldiers, self.battlefields, self.at_most = n, k, bool(at_most)
        self.min_alloc = _limits("min_alloc", 0 if min_alloc is None else min_alloc, k)
        self.max_alloc = np.minimum(_limits("max_alloc", n if max_alloc is None else max_alloc, k), n)
        letters = np.arange(k * (n + 1)).reshape(k, n + 1)
        units = np.arange(n + 1)
        letters[(units < self.min_alloc[:, None]) | (units > self.max_alloc[:, None])] = -2
        if at_most:
            letters = np.vstack([letters, np.full((1, n + 1), -1)])  # soldiers at home
        graph = _layers(letters, n)
        if graph is None:
            raise ValueError(
                f"min_alloc, max_alloc: expected limits that {n} soldiers can obey, got at least "
                f"{self.min_alloc.sum()} and at most {self.max_alloc.sum()} in all"
            )
        self._free = not (self.min_alloc.any() or (self.max_alloc < n).any() or at_most)
        super().__init__(graph, k * (n + 1))

    def _spanning(self) -> Ints | None:
        n, k = self.soldiers, self.battlefields
        if not self._free:
            return None
        if k >= 3:
            return np.array([h * (n + 1) + s for h in range(k) for s in range(1, n + 1)])
        return np.arange(n + 1) if k == 2 else np.array([n])

    def allocation(self, taken: ArrayLike) -> Ints:
        """Return the soldiers on each battlefield, from coordinates."""
        return np.sort(np.asarray(taken, np.int64)) % (self.soldiers + 1)

    def describe(self, taken: ArrayLike) -> str:
        """Return an allocation in words."""
        return "-".join(map(str, self.allocation(taken)))

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""
        return {
            "soldiers": self.soldiers,
            "battlefields": self.battlefields,
            "min_alloc": self.min_alloc.tolist(),
            "max_alloc": self.max_alloc.tolist(),
            "at_most": self.at_most,
        }


class MSet(WalkSet):
    """Subsets of m of d items.

    Args:
        d: Items.
        m: How many are chosen.

    Raises:
        ValueError: m is below 1 or above d.

    Example:
        >>> MSet(5, 2).argmin([3, 1, 2, 0, 4])[0].tolist()
        [0, 1, 0, 1, 0]

    Source:
        the paper's appendix on m-sets: elementary symmetric polynomials.
    """

    def __init__(self, d: int, m: int) -> None:
        items, chosen = whole("d", d), whole("m", m)
        if chosen > items:
            raise ValueError(f"m: expected at most d = {items}, got {chosen}")
        letters = np.stack([np.full(items, -1), np.arange(items)], axis=1)
        graph = _layers(letters, chosen)
        assert graph is not None
        super().__init__(graph, items)

    def _spanning(self) -> Ints | None:
        return np.arange(self.d) if self.m < self.d else None

    def to_facts(self) -> dict[str, Any]:
        """Return what JSON keeps of the set."""
        return {"d": self.d, "m": self.m}


def _limits(name: str, value: ArrayLike, battlefields: int) -> Ints:
    given = np.asarray(value)
    if given.shape not in ((), (battlefields,)) or not np.issubdtype(given.dtype, np.integer) or (given < 0).any():
        raise ValueError(f"{name}: expected a whole number of at least 0, or {battlefields} of them, got {value!r}")
    return np.broadcast_to(given, (battlefields,)).astype(np.int64)
