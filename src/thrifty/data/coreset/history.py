"""What happened in each epoch, as rows that travel as CSV or JSON."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from thrifty._common.files import write_whole
from thrifty._common.settings import dump, parse

SCHEMA, VERSION = "thrifty.coreset.history", 1


@dataclass
class Epoch:
    """One epoch.

    Args:
        epoch: From 1.
        samples: Trained on.
        checked: Whether the subset was checked before it.
        updated: Whether it was chosen anew.
        snr: At the check; NaN without one.
        threshold: τ.
        overlap: Share of the new subset that the old one had; NaN without an update.
        weight_ratio: The largest weight over the mean.
        residual: Of the last selection, where the selector knows it.
        filled: Samples of it that were drawn at random.
        discrepancy: 1 − cosine of the subset's gradient and that of all data, where that was asked for.
        seconds_check: Of the check.
        seconds_select: Of scoring all data and choosing.
        seconds_train: From the first batch to the last.
    """

    epoch: int
    samples: int
    checked: bool = False
    updated: bool = False
    snr: float = math.nan
    threshold: float = math.nan
    overlap: float = math.nan
    weight_ratio: float = math.nan
    residual: float = math.nan
    filled: int = 0
    discrepancy: float = math.nan
    seconds_check: float = 0.0
    seconds_select: float = 0.0
    seconds_train: float = 0.0


class History(list[Epoch]):
    """The epochs of a run.

    Example:
        >>> history = History([Epoch(1, 100, updated=True, seconds_select=2.0, seconds_train=6.0)])
        >>> history.updates, history.overhead
        (1, 0.25)
    """

    @property
    def updates(self) -> int:
        """How often a subset was chosen."""
        return sum(row.updated for row in self)

    @property
    def overhead(self) -> float:
        """The share of the time that checks and selections took."""
        apart = sum(row.seconds_check + row.seconds_select for row in self)
        return apart / max(apart + sum(row.seconds_train for row in self), 1e-12)

    def rows(self) -> list[dict[str, Any]]:
        """Return the epochs as plain values."""
        return [asdict(row) for row in self]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> History:
        """Return the epochs of :meth:`rows`.

        Raises:
            ValueError: A row has other fields.
        """
        known = {field.name for field in fields(Epoch)}
        for row in rows:
            if not isinstance(row, Mapping) or set(row) != known:
                raise ValueError(f"history: expected rows of {', '.join(sorted(known))}, got {row!r}")
        filled: list[dict[str, Any]] = [{k: math.nan if v is None else v for k, v in row.items()} for row in rows]
        return cls(Epoch(**row) for row in filled)

    def to_json(self) -> str:
        """Return the epochs as JSON; what is not known is null."""
        rows = [
            {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
            for row in self.rows()
        ]
        return dump({"epochs": rows}, SCHEMA, VERSION)

    @classmethod
    def from_json(cls, text: str, name: str = "history") -> History:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: It is something else.
        """
        found = parse(text, SCHEMA, VERSION, known=("epochs",), needed=("epochs",), name=name)["epochs"]
        if not isinstance(found, list):
            raise ValueError(f"{name}: expected a list of epochs, got a {type(found).__name__}")
        return cls.of(found)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the epochs as CSV or JSON, by the file's suffix.

        Raises:
            FileExistsError: The file is there, and ``force`` is False.
            ValueError: The suffix is neither.
        """
        suffix = Path(path).suffix
        if suffix == ".json":
            return write_whole(path, self.to_json(), force=force)
        if suffix != ".csv":
            raise ValueError(f"path: expected .csv or .json, got {path}")
        text = io.StringIO()
        lines = csv.DictWriter(text, [field.name for field in fields(Epoch)], lineterminator="\n")
        lines.writeheader()
        lines.writerows(self.rows())
        return write_whole(path, text.getvalue(), force=force)
