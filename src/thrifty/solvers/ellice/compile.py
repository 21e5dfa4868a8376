"""From the constraints that a user wrote to limits on encoded rows, with every contradiction found before solving."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty.solvers.ellice.constraints import Bounds, Constraints, Feature
from thrifty.solvers.ellice.encoding import Encoded, Encoding
from thrifty.solvers.ellice.region import Choice, Region

#: The paper's price of changing a category, under the mixed distance.
GROUP_WEIGHT = 0.5
#: Whole numbers between the bounds of one feature, at most.
LONGEST_LATTICE = 100_000


def compile_constraints(
    constraints: Constraints, encoding: Encoding, training: Encoded, *, bounds: Bounds = "data"
) -> Region:
    """Turn constraints in raw units into a :class:`Region`.

    Args:
        constraints: The user's.
        encoding: How raw columns become encoded ones.
        training: Encoded training rows, ``[n, d]``.
        bounds: ``"data"``: answers stay within the range of the training table.

    Raises:
        ValueError: A feature is unknown, a word or a range is wrong, or two constraints leave a feature no value.
    """
    return _Compiler(constraints, encoding, training, bounds).region()


class _Compiler:
    def __init__(self, constraints: Constraints, encoding: Encoding, training: Encoded, bounds: Bounds) -> None:
        if bounds not in ("data", None):
            raise ValueError(f"bounds: expected 'data' or None, got {bounds!r}")
        if not isinstance(constraints, Constraints):
            raise TypeError(
                f"constraints: expected Constraints(immutable=[...], ...), got a {type(constraints).__name__}"
            )
        self.given, self.encoding = constraints, encoding
        d = encoding.width
        self.lower, self.upper = np.full(d, -np.inf), np.full(d, np.inf)
        inside = bounds == "data" and len(training) > 0
        self.data_lower = training.min(axis=0) if inside else np.full(d, -np.inf)
        self.data_upper = training.max(axis=0) if inside else np.full(d, np.inf)
        self.direction = np.zeros(d, np.int8)
        self.frozen = np.zeros(d, bool)
        self.weights = np.ones(d)
        self.levels: dict[int, tuple[int, ...]] = {}  # raw category to permitted levels
        self.group_weights: dict[int, float] = {}
        self.lattices: dict[int, NDArray[np.float64]] = {}

    def region(self) -> Region:
        self._freeze()
        self._ranges()
        self._directions()
        self._values()
        self._weights()
        choices, grouped = self._choices()
        units, names = self._units(grouped)
        A, b = self._linear()
        return Region(
            self.lower, self.upper, self.data_lower, self.data_upper, self.direction, self.frozen, self.weights,
            choices, self.lattices, A, b, units, names,
        )  # fmt: skip

    def _number(self, feature: Feature, argument: str) -> int:
        """Return the encoded column of a numeric feature."""
        column, positions = _columns_of(self.encoding, feature, argument)
        if column in self.encoding.groups:
            raise ValueError(f"{argument}: expected features that are numbers, got {feature!r}, which is a category")
        if not positions:
            raise ValueError(f"{argument}: expected features that the model reads, got {feature!r}, which it ignores")
        if len(positions) > 1:
            raise ValueError(
                f"{argument}: expected features of one column, got {feature!r}, which the model sees in several"
            )
        return positions[0]

    def _freeze(self) -> None:
        given = self.given
        if isinstance(given.features_to_vary, str):
            if given.features_to_vary != "all":
                raise ValueError(
                    f"features_to_vary: expected a list of features or 'all', got {given.features_to_vary!r}"
                )
        else:
            vary = {_columns_of(self.encoding, f, "features_to_vary")[0] for f in given.features_to_vary}
            for column, positions in self.encoding.positions.items():
                self.frozen[list(positions)] = column not in vary
        for feature in given.immutable:
            self.frozen[list(_columns_of(self.encoding, feature, "immutable")[1])] = True
        for column, positions in self.encoding.positions.items():
            if len(positions) > 1 and column not in self.encoding.groups:
                # The same number in several columns: they would have to move together.
                self.frozen[list(positions)] = True

    def _ranges(self) -> None:
        for feature, permitted in self.given.permitted_range.items():
            column, _ = _columns_of(self.encoding, feature, "permitted_range")
            if isinstance(permitted, str) or not hasattr(permitted, "__len__"):
                raise ValueError(
                    f"permitted_range[{feature!r}]: expected (lowest, highest), or levels, got {permitted!r}"
                )
            if (group := self.encoding.groups.get(column)) is not None:
                known = {level: at for at, level in enumerate(group.levels)}
                if group.has_baseline:
                    known[group.baseline] = -1
                if strange := [level for level in permitted if level not in known]:
                    raise ValueError(
                        f"permitted_range[{feature!r}]: expected levels among {list(known)}, got {strange}"
                    )
                if not len(permitted):
                    raise ValueError(f"permitted_range[{feature!r}]: expected a level, got none")
                self.levels[column] = tuple(known[level] for level in permitted)
                continue
            j = self._number(feature, "permitted_range")
            if len(permitted) != 2 or not all(map(_is_number, permitted)) or permitted[0] > permitted[1]:
                raise ValueError(
                    f"permitted_range[{feature!r}]: expected (lowest, highest), lowest first, got {list(permitted)}"
                )
            ends = np.array(permitted, dtype=float) * self.encoding.slope[j] + self.encoding.offset[j]
            self.lower[j], self.upper[j] = ends.min(), ends.max()
            # A stated range counts more than the table's.
            self.data_lower[j], self.data_upper[j] = -np.inf, np.inf

    def _directions(self) -> None:
        for feature, word in self.given.one_way.items():
            j = self._number(feature, "one_way")
            if word not in ("increase", "decrease"):
                raise ValueError(f"one_way[{feature!r}]: expected 'increase' or 'decrease', got {word!r}")
            self.direction[j] = (1 if word == "increase" else -1) * int(np.sign(self.encoding.slope[j]))

    def _values(self) -> None:
        for feature, allowed in self.given.allowed_values.items():
            j = self._number(feature, "allowed_values")
            values = np.unique(allowed) if np.ndim(allowed) == 1 else np.empty(0)
            if not values.size or not all(map(_is_number, values.tolist())) or not np.isfinite(values).all():
                raise ValueError(
                    f"allowed_values[{feature!r}]: expected a list of at least one finite number, got {allowed!r}"
                )
            values = values.astype(float)
            self._lattice(feature, j, values)
            self.data_lower[j], self.data_upper[j] = -np.inf, np.inf
        for feature in self.given.integer:
            j = self._number(feature, "integer")
            if j in self.lattices:
                raw = (self.lattices[j] - self.encoding.offset[j]) / self.encoding.slope[j]
                self._lattice(feature, j, raw[np.abs(raw - np.rint(raw)) < 1e-9])
                continue
            ends = np.array([max(self.lower[j], self.data_lower[j]), min(self.upper[j], self.data_upper[j])])
            raw_low, raw_high = np.sort((ends - self.encoding.offset[j]) / self.encoding.slope[j])
            if not np.isfinite([raw_low, raw_high]).all():
                raise ValueError(
                    f"integer: expected features with bounds (give a permitted_range), got {feature!r}, which has none"
                )
            values = np.arange(math.ceil(raw_low - 1e-9), math.floor(raw_high + 1e-9) + 1, dtype=float)
            if len(values) > LONGEST_LATTICE:
                raise ValueError(
                    f"integer: expected at most {LONGEST_LATTICE} numbers (else treat it as continuous), "
                    f"got {len(values)} of {feature!r}"
                )
            self._lattice(feature, j, values)

    def _lattice(self, feature: Feature, j: int, raw: NDArray[np.float64]) -> None:
        values = np.sort(raw * self.encoding.slope[j] + self.encoding.offset[j])
        values = values[(values >= self.lower[j] - 1e-9) & (values <= self.upper[j] + 1e-9)]
        if not values.size:
            raise ValueError(f"allowed_values[{feature!r}]: expected one within the permitted range, got none")
        self.lattices[j] = values

    def _weights(self) -> None:
        for feature, weight in self.given.feature_weights.items():
            column, positions = _columns_of(self.encoding, feature, "feature_weights")
            if not _is_number(weight) or not 0 < weight < math.inf:
                raise ValueError(f"feature_weights[{feature!r}]: expected a positive number, got {weight!r}")
            self.weights[list(positions)] = weight
            self.group_weights[column] = float(weight)

    def _choices(self) -> tuple[tuple[Choice, ...], dict[int, tuple[int, ...]]]:
        """Return categories: those of the encoding, and those that the user names as groups of 0/1 columns."""
        slope, offset = self.encoding.slope, self.encoding.offset
        choices: list[Choice] = []
        grouped: dict[int, tuple[int, ...]] = {}

        def add(columns: list[int], permitted: tuple[int, ...], has_baseline: bool, weight: float) -> None:
            at = np.array(columns)
            choices.append(Choice(at, slope[at] + offset[at], offset[at], permitted, has_baseline, weight))
            for j in columns:
                grouped[j] = tuple(columns)

        for column, group in self.encoding.groups.items():
            levels = tuple(range(len(group.levels))) + ((-1,) if group.has_baseline else ())
            weight = self.group_weights.get(column, GROUP_WEIGHT)
            add(list(group.columns), self.levels.get(column, levels), group.has_baseline, weight)
        for features in self.given.one_hot_groups:
            columns = [self._number(feature, "one_hot_groups") for feature in features]
            names = list(features)
            if len(set(columns)) < max(2, len(columns)) or any(j in grouped for j in columns):
                raise ValueError(
                    f"one_hot_groups: expected groups of two or more columns, each in one group only, got {names}"
                )
            if len({bool(self.frozen[j]) for j in columns}) > 1:
                raise ValueError(
                    f"one_hot_groups: expected columns that all may change, or none, got {names}, of which some may"
                )
            if any(j in self.lattices or self.direction[j] for j in columns):
                raise ValueError(f"one_hot_groups: expected columns without values or a direction, got {names}")
            low, high = self.lower[columns], self.upper[columns]
            on, off = slope[columns] + offset[columns], offset[columns]
            inside = [at for at in range(len(columns)) if low[at] - 1e-9 <= on[at] <= high[at] + 1e-9]
            if not inside or ((off < low - 1e-9) | (off > high + 1e-9)).sum() > 1:
                raise ValueError(f"one_hot_groups: expected permitted ranges that leave a level, got none for {names}")
            weight = float(np.mean([self.given.feature_weights.get(f, GROUP_WEIGHT) for f in features]))
            add(columns, tuple(inside), False, weight)
        return tuple(choices), grouped

    def _units(self, grouped: dict[int, tuple[int, ...]]) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
        """Return the sets of encoded columns that change together, and what they are called."""
        units: dict[tuple[int, ...], str] = {}
        for column, positions in self.encoding.positions.items():
            unit = grouped.get(positions[0], positions)
            if unit not in units:
                members = dict.fromkeys(self.encoding.names[self.encoding.slots[j].column] for j in unit)
                units[unit] = self.encoding.names[column] if len(members) == 1 else "/".join(members)
        return tuple(units), tuple(units.values())

    def _linear(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return A·z ≤ b on encoded rows: raw = (z − offset) / slope."""
        d = self.encoding.width
        if self.given.linear is None:
            return np.empty((0, d)), np.empty(0)
        try:
            A, b = (np.asarray(part, dtype=float) for part in self.given.linear)
        except (TypeError, ValueError):
            raise ValueError(f"linear: expected (A, b), numbers for A·x ≤ b, got {self.given.linear!r}") from None
        A, b = np.atleast_2d(A), np.ravel(b)
        if A.shape != (len(b), len(self.encoding.names)) or not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ValueError(
                f"linear: expected a finite A [limits, {len(self.encoding.names)}] and b, got {A.shape} and {b.shape}"
            )
        on_encoded = np.zeros((len(b), d))
        for column in np.flatnonzero((A != 0).any(axis=0)):
            name = self.encoding.names[column]
            j = self._number(name, "linear")
            on_encoded[:, j] = A[:, column] / self.encoding.slope[j]
            b = b + on_encoded[:, j] * self.encoding.offset[j]
        return on_encoded, b


def _columns_of(encoding: Encoding, feature: Feature, argument: str) -> tuple[int, tuple[int, ...]]:
    """Return a raw column's position and its encoded columns.

    Raises:
        ValueError: There is no such column, or the model ignores it.
    """
    column = encoding.column_of(feature, argument)
    return column, encoding.positions.get(column, ())


def _is_number(value: Any) -> bool:
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return bool(real and not math.isnan(value))
