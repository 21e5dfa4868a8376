"""Between the table that a user has and the numbers that the model's last steps see.

A raw column is a number, a category, or one that the model ignores. Every encoded column comes from one raw column: it
is an affine function of its number, or of the indicator of one of its levels. So constraints in raw units become
constraints on encoded columns, and an encoded row can be turned back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from thrifty._common.extras import require
from thrifty.solvers.ellice.frames import is_number, to_frame

Encoded = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Slot:
    """One encoded column: ``slope · v + offset``.

    Attributes:
        column: Position of the raw column.
        level: ``v`` indicates this level of a category; ``None``: ``v`` is the raw number itself.
        slope: Not 0.
        offset: Encoded value at ``v = 0``.
    """

    column: int
    level: Any = None
    slope: float = 1.0
    offset: float = 0.0

    def scaled(self, slope: float, offset: float) -> Slot:
        """The slot after a further affine step."""
        return Slot(self.column, self.level, self.slope * slope, self.offset * slope + offset)


@dataclass(frozen=True)
class Group:
    """The encoded columns of one category.

    Attributes:
        columns: Positions among the encoded columns.
        levels: The level that each stands for.
        baseline: The level that is there when none of them is; ``None``: one of them always is.
        has_baseline: Whether there is such a level.
    """

    columns: tuple[int, ...]
    levels: tuple[Any, ...]
    baseline: Any = None
    has_baseline: bool = False


class Encoding:
    """How raw columns become encoded ones, and back.

    Args:
        names: Names of the raw columns.
        slots: The encoded columns.
        baselines: For categories one of whose levels has no column: raw column to that level.
    """

    def __init__(self, names: Sequence[str], slots: Sequence[Slot], baselines: dict[int, Any] | None = None) -> None:
        self.names = tuple(names)
        self.slots = tuple(slots)
        self.baselines = dict(baselines or {})
        if twice := sorted({name for name in self.names if self.names.count(name) > 1}):
            raise ValueError(f"X: expected each column name once, got {twice} more often")
        self.slope = np.array([slot.slope for slot in self.slots])
        self.offset = np.array([slot.offset for slot in self.slots])
        by_column: dict[int, list[int]] = {}
        for position, slot in enumerate(self.slots):
            by_column.setdefault(slot.column, []).append(position)
        #: Encoded columns of each raw column that the model uses.
        self.positions = {column: tuple(found) for column, found in by_column.items()}
        #: Raw columns that are numbers which the model sees once, and their encoded columns.
        self.plain = [
            column for column, found in self.positions.items() if len(found) == 1 and self.slots[found[0]].level is None
        ]
        self._plain_at = np.array([self.positions[column][0] for column in self.plain], dtype=np.intp)
        #: Categories, by raw column.
        self.groups = {
            column: Group(
                found,
                tuple(self.slots[j].level for j in found),
                self.baselines.get(column),
                column in self.baselines,
            )
            for column, found in self.positions.items()
            if self.slots[found[0]].level is not None
        }

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.slots)

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Encoding:
        """Every column is a number that the model sees as it is."""
        return cls(names, [Slot(column) for column in range(len(names))])

    @classmethod
    def of_frame(cls, frame: Any) -> Encoding:
        """Numbers as they are, every other column one-hot over the levels that occur."""
        slots: list[Slot] = []
        for column, name in enumerate(frame.columns):
            values = frame[name]
            if is_number(values):
                slots.append(Slot(column))
            else:
                slots += [Slot(column, level) for level in sorted(set(values), key=str)]
        return cls([str(name) for name in frame.columns], slots)

    def column_of(self, feature: int | str, argument: str) -> int:
        """Return the position of a raw column, given by name or number.

        Raises:
            ValueError: There is none; ``argument`` is named.
        """
        if isinstance(feature, str) and feature in self.names:
            return self.names.index(feature)
        if isinstance(feature, (int, np.integer)) and not isinstance(feature, bool) and 0 <= feature < len(self.names):
            return int(feature)
        raise ValueError(f"{argument}: expected one of the columns {', '.join(self.names)}, got {feature!r}")

    def frame(self, X: Any, argument: str = "X") -> Any:
        """Return a table with our columns, in our order; see :func:`thrifty.solvers.ellice.frames.to_frame`.

        Raises:
            ValueError: Columns are missing, doubled or too few, or a value that the model uses is missing.
        """
        frame = to_frame(X, self.names, argument)
        used = frame[[self.names[column] for column in sorted(self.positions)]]
        if bool(used.isna().to_numpy().any()):
            holed = [str(name) for name in used.columns[used.isna().any()]]
            raise ValueError(
                f"{argument}: expected no missing values (fill them in, or leave those rows out), got some in {holed}"
            )
        return frame

    def encode(self, frame: Any) -> Encoded:
        """Return the encoded rows of a table with our columns.

        Raises:
            ValueError: A number is not finite, or a category has a level that the model has not seen.
        """
        encoded = np.empty((len(frame), self.width))
        numbers = self._numbers(frame, self.plain)
        encoded[:, self._plain_at] = numbers * self.slope[self._plain_at] + self.offset[self._plain_at]
        for column, positions in self.positions.items():
            if len(positions) == 1 and column not in self.groups:
                continue
            values = frame.iloc[:, column].to_numpy()
            group = self.groups.get(column)
            if group is None:
                numbers = self._numbers(frame, [column])[:, 0]
                for j in positions:
                    encoded[:, j] = numbers * self.slope[j] + self.offset[j]
                continue
            known = {*group.levels, *([group.baseline] if group.has_baseline else [])}
            if strange := sorted({str(value) for value in values if value not in known}):
                raise ValueError(
                    f"{self.names[column]!r}: expected the levels {sorted(map(str, known))} that the model has seen, "
                    f"got {strange[:3]}"
                )
            for j, level in zip(positions, group.levels, strict=True):
                encoded[:, j] = (values == level) * self.slope[j] + self.offset[j]
        return encoded

    def _numbers(self, frame: Any, columns: list[int]) -> Float[np.ndarray, "n k"]:
        """Return raw columns as float64.

        Raises:
            ValueError: One holds something else, or something that is not finite.
        """
        kinds = frame.dtypes.to_numpy()
        for column in columns:
            if kinds[column].kind in "mMc":  # numpy would turn dates into nanoseconds
                raise ValueError(f"{self.names[column]!r}: expected numbers, got {kinds[column]}")
        some = frame if len(columns) == frame.shape[1] else frame.iloc[:, columns]
        try:
            numbers = np.asarray(some, dtype=float)
        except (TypeError, ValueError):
            for column in columns:
                if not is_number(frame.dtypes.iloc[column]):
                    name, values = self.names[column], frame.iloc[:3, column].tolist()
                    raise ValueError(f"{name!r}: expected numbers, got {values}") from None
            raise
        if (bad := np.flatnonzero(~np.isfinite(numbers).all(axis=0))).size:
            raise ValueError(f"{self.names[columns[bad[0]]]!r}: expected finite numbers, got others")
        return numbers

    def decode(self, encoded: Encoded, like: Any) -> Any:
        """Return raw rows; columns that the model ignores, and values that did not change, are taken from ``like``.

        Args:
            encoded: ``[n, d]``; NaN rows give missing values.
            like: Raw rows that these came from, ``n`` of them.
        """
        pd = require("pandas", extra="tabular")
        was = self.encode(like)
        if len(self.plain) == len(self.names):  # numbers only: all at once
            moved = encoded[:, self._plain_at]
            before = self._numbers(like, self.plain)
            now = np.where(
                moved == was[:, self._plain_at],
                before,
                (moved - self.offset[self._plain_at]) / self.slope[self._plain_at],
            )
            return pd.DataFrame(now[:, np.argsort(self.plain)], index=like.index, columns=list(self.names))
        columns: dict[str, Any] = {}
        lost = np.isnan(encoded).any(axis=1) if self.width else np.zeros(len(encoded), bool)
        for column, name in enumerate(self.names):
            before = like.iloc[:, column].to_numpy()
            positions = list(self.positions.get(column, ()))
            if not positions:
                columns[name] = before
                continue
            group = self.groups.get(column)
            same = (encoded[:, positions] == was[:, positions]).all(axis=1)
            indicated = (encoded[:, positions] - self.offset[positions]) / self.slope[positions]
            if group is None:
                now = np.where(same, before.astype(float), indicated[:, 0])
                whole = np.issubdtype(before.dtype, np.integer) and not lost.any() and bool((now == np.rint(now)).all())
                columns[name] = now.astype(before.dtype) if whole else now
                continue
            levels = np.array([*group.levels, group.baseline], dtype=object)
            pick = np.where(np.nan_to_num(indicated).max(axis=1) > 0.5, np.nan_to_num(indicated).argmax(axis=1), -1)
            chosen = levels[pick]
            chosen[lost] = None
            columns[name] = np.where(same, before.astype(object), chosen)
        return pd.DataFrame(columns, index=like.index, columns=list(self.names))

    def to_json(self) -> dict[str, Any]:
        """Return what a saved explainer holds of it."""
        return {
            "names": list(self.names),
            "slots": [asdict(slot) | {"level": _plain(slot.level)} for slot in self.slots],
            "baselines": {str(column): _plain(level) for column, level in self.baselines.items()},
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Encoding:
        """Return the encoding that :meth:`to_json` stored."""
        baselines = {int(column): level for column, level in stored["baselines"].items()}
        return cls(stored["names"], [Slot(**slot) for slot in stored["slots"]], baselines)


def _plain(level: Any) -> Any:
    return level.item() if isinstance(level, np.generic) else level
