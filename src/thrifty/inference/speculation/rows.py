"""Measurements: one row for a batch size and a draft length, as CSV or as lines of JSON."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from thrifty._common.checks import is_number
from thrifty._common.tables import read_cells
from thrifty._common.texts import read_rows as read_objects

_log = logging.getLogger(__name__)

_LINES = frozenset({".jsonl", ".ndjson"})
_WHOLE = frozenset({"gamma", "num_experts", "top_k", "verify_tokens", "repeats"})
_TEXT = frozenset({"model", "hardware"})


@dataclass(frozen=True)
class Row:
    """What was measured at one batch size and draft length; whatever was not is ``None``.

    Args:
        batch_size: Requests decoded together.
        gamma: Draft tokens a round.
        num_experts: Routed experts of a layer (1: dense).
        top_k: Routed experts of a token.
        sigma: Tokens a round over γ + 1.
        speedup: Time a token without speculation, over with it.
        t_ar_ms: T_T(B, 1), one plain step of the target.
        t_verify_ms: T_T(B, verify_tokens), one verification.
        t_draft_ms: One step of the draft.
        t_reject_ms: One acceptance test.
        verify_tokens: Tokens of a request in a verification (``None``: γ + 1).
        context: Tokens in each request's cache.
        active_experts: Distinct experts that a pass of ``verify_tokens`` woke, mean over layers.
        repeats: Samples behind the times.
        model: What was measured.
        hardware: Where.

    Raises:
        ValueError: A number is not finite, or out of its range; the message names the field.

    Example:
        >>> Row(batch_size=16, gamma=4, num_experts=64, top_k=8, sigma=0.9, speedup=2.29).width("gamma+1")
        5

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, Algorithm 1: its measurements.
    """

    batch_size: float
    gamma: int | None = None
    num_experts: int = 1
    top_k: int = 1
    sigma: float | None = None
    speedup: float | None = None
    t_ar_ms: float | None = None
    t_verify_ms: float | None = None
    t_draft_ms: float | None = None
    t_reject_ms: float | None = None
    verify_tokens: int | None = None
    context: float | None = None
    active_experts: float | None = None
    repeats: int | None = None
    model: str | None = None
    hardware: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name in _TEXT:
                continue
            low = 0.0 if field.name not in {"batch_size", "num_experts", "top_k", "verify_tokens", "repeats"} else 1.0
            whole = field.name in _WHOLE
            if not is_number(value) or not math.isfinite(value) or value < low or (whole and value != int(value)):
                raise ValueError(
                    f"{field.name}: expected a {'whole ' * whole}number of at least {low:g}, got {value!r}"
                )
        for name in ("speedup", "t_ar_ms", "t_verify_ms", "t_draft_ms"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name}: expected a number above 0, got 0")
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k: expected at most num_experts={self.num_experts}, got {self.top_k}")
        if self.sigma is not None:
            low = 1 / (self.gamma + 1) if self.gamma is not None else 0.0
            if not low - 1e-6 <= self.sigma <= 1 + 1e-6:
                raise ValueError(f"sigma: expected a number in [1/(gamma+1), 1] = [{low:.4g}, 1], got {self.sigma}")

    def width(self, verify_width: str) -> int:
        """Return the tokens of a request in its verification."""
        if self.verify_tokens is not None:
            return self.verify_tokens
        return max(1, (self.gamma or 0) + (verify_width == "gamma+1"))


NAMES = tuple(field.name for field in fields(Row))


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Read rows from a CSV file with a header, or from lines of JSON (``.jsonl``).

    Args:
        path: The file; its columns are the fields of :class:`Row`, and a cell that was not measured is empty.

    Returns:
        The rows, in the file's order.

    Raises:
        ValueError: There is no row, a column is unknown, ``batch_size`` is missing or a value impossible; the message
            names file, row and field.

    Example:
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "rows.csv"
        >>> _ = path.write_text("batch_size,gamma,sigma,speedup" + chr(10) + "16,4,0.9,2.29")
        >>> read_rows(path)[0].speedup
        2.29

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, Algorithm 1: its measurements, named as in :class:`Row`.
    """
    path = Path(path)
    if path.suffix in _LINES:
        records = read_objects(path)
    else:
        names, lines = read_cells(path)
        records = [{name: cell or None for name, cell in zip(names, line, strict=True)} for line in lines]
    return [_row(record, f"{path}, row {number}") for number, record in enumerate(records, start=1)]


def append_row(path: str | os.PathLike[str], row: Row) -> None:
    """Add one row to a file of JSON lines, whole and synced, so that an interrupted measurement keeps its rows."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps({name: value for name, value in asdict(row).items() if value is not None}) + "\n")
        file.flush()
        os.fsync(file.fileno())


def finished_rows(path: Path, *, model: str, hardware: str) -> list[Row]:
    """Return the rows that a file of an interrupted measurement holds already.

    A last line that an interruption cut off is dropped from the file.

    Args:
        path: Lines of JSON, or no file yet.
        model: What is to be measured, as the rows call it.
        hardware: Where.

    Raises:
        ValueError: The name ends otherwise, there is no such folder, or the rows are of something else.
    """
    if path.suffix not in _LINES or not path.parent.is_dir():
        raise ValueError(f"out: expected a name that ends in .jsonl, in a folder that exists, got {path}")
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        _log.warning("%s: the last line was cut off, and is measured again", path)
        path.write_bytes(whole)
    rows = read_rows(path) if whole.strip() else []
    for row in rows:
        if (row.model, row.hardware) != (model, hardware):
            held = f"{row.model} ({row.hardware})"
            raise ValueError(f"out: expected another file for {model} ({hardware}): {path} holds rows of {held}")
    return rows


def stride_sample(rows: Sequence[Row], count: int) -> list[Row]:
    """Return at least ``count`` rows as the paper draws them: sorted by (K, γ, B), every so many-th from the first.

    The stride is the largest that gives so many: 11 for 21 of the paper's 228 rows.

    Args:
        rows: All rows.
        count: How many are wanted.

    Returns:
        Every so many-th row.

    Raises:
        ValueError: ``count`` is not in [1, number of rows].

    Example:
        >>> [row.batch_size for row in stride_sample([Row(b, 2) for b in (1, 2, 4, 8, 16)], 3)]
        [1, 4, 16]

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 4.3.
    """
    if not 1 <= count <= len(rows):
        raise ValueError(f"count: expected a number of rows in [1, {len(rows)}], got {count}")
    stride = next(s for s in range(len(rows), 0, -1) if math.ceil(len(rows) / s) >= count)
    return sorted(rows, key=lambda row: (row.top_k, row.gamma or 0, row.batch_size))[::stride]


def _row(record: dict[str, Any], where: str) -> Row:
    if unknown := sorted(set(record) - set(NAMES)):
        raise ValueError(f"{where}: unknown columns {', '.join(unknown)}; known are {', '.join(NAMES)}")
    if record.get("batch_size") is None:
        raise ValueError(f"{where}: batch_size is missing")
    values: dict[str, Any] = {}
    for name, value in record.items():
        if value is None:
            continue
        if name in _TEXT:
            values[name] = str(value)
            continue
        try:
            number = float(value)
            values[name] = int(number) if name in _WHOLE and number.is_integer() else number
        except (TypeError, ValueError):
            raise ValueError(f"{where}: {name}: expected a number, got {value!r}") from None
        if name in _WHOLE and not isinstance(values[name], int):
            raise ValueError(f"{where}: {name}: expected a whole number, got {value}")
    try:
        return Row(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
