"""Limits on encoded rows, as solvers read them: bounds, directions, lattices and categories of encoded columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray

from thrifty.solvers.ellice.encoding import Encoded

#: How far a stated value may be from one that is kept to, relative to 1.
SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class Choice:
    """Encoded columns that together hold one category.

    Attributes:
        columns: Their positions.
        on: Encoded value of each where its level is there.
        off: Where it is not.
        permitted: Levels (positions in ``columns``) that an answer may have; −1 is the baseline.
        has_baseline: Whether none of them may be there.
        weight: Price of changing the category under the mixed distance.
    """

    columns: NDArray[np.intp]
    on: Float[np.ndarray, " k"]
    off: Float[np.ndarray, " k"]
    permitted: tuple[int, ...]
    has_baseline: bool
    weight: float

    def level_of(self, row: Float[np.ndarray, " d"]) -> int:
        """Return which level a row has; −1: none of them."""
        shares = self.shares(row)
        return int(shares.argmax()) if shares.max() > 0.5 else -1

    def shares(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how much of each level rows have: 0 or 1, or between in a relaxation."""
        found: NDArray[np.float64] = (rows[..., self.columns] - self.off) / (self.on - self.off)
        return found

    def write(self, row: Float[np.ndarray, " d"], level: int) -> None:
        """Give a row a level, in place."""
        row[self.columns] = self.off
        if level >= 0:
            row[self.columns[level]] = self.on[level]


@dataclass(frozen=True, eq=False)
class Box:
    """What one person's answer may be: bounds on encoded columns, and what is fixed.

    Attributes:
        lower: ``[d]``.
        upper: ``[d]``; equal to ``lower`` where nothing may change.
        obstacle: Why there is no answer at all, if so.
    """

    lower: Float[np.ndarray, " d"]
    upper: Float[np.ndarray, " d"]
    obstacle: str | None = None


@dataclass(frozen=True, eq=False)
class Region:
    """Limits on encoded rows.

    Attributes:
        lower: Stated lower limits (permitted ranges), −∞ where none; ``[d]``.
        upper: Stated upper limits; ``[d]``.
        data_lower: Smallest value in the training table; −∞ where bounds are not taken from it.
        data_upper: Largest value there.
        direction: +1 where a column may only grow, −1 where only shrink, else 0.
        frozen: Columns that keep their value.
        weights: u in the distance.
        choices: Categories.
        lattices: Column to the sorted values that it may take.
        A: Linear limits A·z ≤ b on encoded rows; ``[c, d]``.
        b: ``[c]``.
        units: Encoded columns that change together (a number alone, a category's all), for sparsity.
        names: Name of each unit.
    """

    lower: Float[np.ndarray, " d"]
    upper: Float[np.ndarray, " d"]
    data_lower: Float[np.ndarray, " d"]
    data_upper: Float[np.ndarray, " d"]
    direction: NDArray[np.int8]
    frozen: Bool[np.ndarray, " d"]
    weights: Float[np.ndarray, " d"]
    choices: tuple[Choice, ...]
    lattices: Mapping[int, Float[np.ndarray, " v"]]
    A: Float[np.ndarray, "c d"]
    b: Float[np.ndarray, " c"]
    units: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    @property
    def is_discrete(self) -> bool:
        """Whether an answer has parts that are not continuous."""
        return bool(self.choices or self.lattices)

    def box(self, row: Float[np.ndarray, " d"], frozen: Bool[np.ndarray, " d"] | None = None) -> Box:
        """Return the limits for one person.

        A person whose value lies outside a *permitted* range is moved into it. The range of the training table binds
        only from the person's own value on: it shall keep answers from being made up beyond the data, and the
        person's value is a fact.

        Args:
            row: The person's encoded row.
            frozen: Columns that must also keep their value.
        """
        held = self.frozen if frozen is None else self.frozen | frozen
        tolerance = SLACK * (1 + np.abs(row))
        lower = np.maximum(self.lower, np.minimum(self.data_lower, row))
        upper = np.minimum(self.upper, np.maximum(self.data_upper, row))
        lower = np.where(self.direction > 0, np.maximum(lower, row), lower)
        upper = np.where(self.direction < 0, np.minimum(upper, row), upper)
        obstacle = None
        if (bad := np.flatnonzero(held & ((row < self.lower - tolerance) | (row > self.upper + tolerance)))).size:
            obstacle = f"{self._name(bad[0])} may not change and lies outside its permitted range"
        elif (bad := np.flatnonzero(~held & (lower > upper + tolerance))).size:
            obstacle = (
                f"{self._name(bad[0])} would have to change against its direction to come into its permitted range"
            )
        lower, upper = np.where(held, row, lower), np.where(held, row, np.maximum(upper, lower))
        for j, values in self.lattices.items():
            if held[j]:
                continue
            inside = values[(values >= lower[j] - tolerance[j]) & (values <= upper[j] + tolerance[j])]
            if not inside.size:
                obstacle = obstacle or f"{self._name(j)} has no allowed value within its limits"
                continue
            lower[j], upper[j] = inside[0], inside[-1]
        for choice in self.choices:
            if held[choice.columns[0]]:
                continue
            lower[choice.columns] = np.minimum(choice.on, choice.off)
            upper[choice.columns] = np.maximum(choice.on, choice.off)
        return Box(lower, upper, obstacle)

    def satisfied(self, rows: Encoded, row: Float[np.ndarray, " d"], box: Box | None = None) -> Bool[np.ndarray, " n"]:
        """Tell which rows are within one person's limits (to 1e-7)."""
        box = self.box(row) if box is None else box
        if box.obstacle is not None:
            return np.zeros(len(rows), bool)
        fine = ((rows >= box.lower - 1e-7) & (rows <= box.upper + 1e-7)).all(axis=1)
        if len(self.b):
            fine &= (rows @ self.A.T <= self.b + 1e-7 * (1 + np.abs(self.b))).all(axis=1)
        for j, values in self.lattices.items():
            if box.lower[j] < box.upper[j]:
                nearest = values[nearest_index(values, rows[:, j])]
                fine &= np.abs(nearest - rows[:, j]) <= 1e-7
        for choice in self.choices:
            shares = choice.shares(rows)
            whole = (np.abs(shares - np.rint(shares)) <= 1e-7).all(axis=1)
            total = np.rint(shares).sum(axis=1)
            level = np.where(total > 0.5, shares.argmax(axis=1), -1)
            fine &= whole & ((total == 1) | (choice.has_baseline & (total == 0)))
            fine &= np.isin(level, choice.permitted) | (level == choice.level_of(row)) & self._may_stay(choice, row)
        return np.asarray(fine)

    def _may_stay(self, choice: Choice, row: Float[np.ndarray, " d"]) -> bool:
        return choice.level_of(row) in choice.permitted or bool(self.frozen[choice.columns[0]])

    def snap(self, row: Float[np.ndarray, " d"], box: Box) -> Float[np.ndarray, " d"]:
        """Return the row with its discrete parts rounded: levels, allowed values, bounds."""
        rounded: Float[np.ndarray, " d"] = np.clip(row, box.lower, box.upper)
        for j, values in self.lattices.items():
            if box.lower[j] < box.upper[j]:
                inside = values[(values >= box.lower[j] - SLACK) & (values <= box.upper[j] + SLACK)]
                rounded[j] = inside[nearest_index(inside, rounded[j])]
        for choice in self.choices:
            if box.lower[choice.columns[0]] < box.upper[choice.columns[0]]:
                shares = choice.shares(rounded)
                options = [float(shares[level] if level >= 0 else 1 - shares.sum()) for level in choice.permitted]
                choice.write(rounded, choice.permitted[int(np.argmax(options))])
        return rounded

    def check_query(self, row: Float[np.ndarray, " d"], at: int) -> None:
        """Refuse a person whose row is not a table's row.

        Raises:
            ValueError: A one-hot group of the user's does not have exactly one 1.
        """
        for choice in self.choices:
            shares = choice.shares(row)
            total = float(shares.sum())
            if np.abs(shares - np.rint(shares)).max() > 1e-6 or not (
                abs(total - 1) < 1e-6 or (choice.has_baseline and abs(total) < 1e-6)
            ):
                group = self._name(choice.columns[0])
                raise ValueError(
                    f"query, row {at}: expected exactly one 1 in the one-hot group {group}, "
                    f"got {np.round(shares, 6).tolist()}"
                )

    def _name(self, column: int | np.intp) -> str:
        return next(name for name, unit in zip(self.names, self.units, strict=True) if int(column) in unit)


def nearest_index(values: Float[np.ndarray, " v"], at: ArrayLike) -> NDArray[np.intp]:
    """Return the position of the nearest of some sorted values."""
    at = np.asarray(at)
    right = np.clip(np.searchsorted(values, at), 1, max(1, len(values) - 1))
    if len(values) == 1:
        return np.zeros_like(right)
    return np.where(at - values[right - 1] <= values[right] - at, right - 1, right)
