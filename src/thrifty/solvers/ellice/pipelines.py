"""What the preprocessing steps of a fitted scikit-learn ``Pipeline`` do to each column.

Steps that treat columns one by one and can be undone are read as an :class:`Encoding`: the scalers, ``OneHotEncoder``,
``SimpleImputer`` (nothing may be missing here), feature selection, ``ColumnTransformer`` of these, nested pipelines.
Anything else makes the pipeline *opaque*: rows can be certified, but new ones cannot be made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

from thrifty.solvers.ellice.encoding import Encoding, Slot


class OpaqueStepError(Exception):
    """A step mixes columns, or cannot be undone."""


def read_steps(steps: Sequence[Any], names: Sequence[str]) -> Encoding:
    """Return the encoding that fitted steps amount to, in order.

    Raises:
        OpaqueStepError: One of them is not of a known kind.
    """
    slots = [Slot(column) for column in range(len(names))]
    baselines: dict[int, Any] = {}
    for step in steps:
        slots = _through(step, slots, names, baselines)
    return Encoding(names, slots, baselines)


def _through(step: Any, slots: list[Slot], names: Sequence[str], baselines: dict[int, Any]) -> list[Slot]:
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return slots
    if isinstance(step, Pipeline):
        for _, inner in step.steps:
            slots = _through(inner, slots, names, baselines)
        return slots
    if isinstance(step, ColumnTransformer):
        return _through_columns(step, slots, names, baselines)
    if isinstance(step, OneHotEncoder):
        return _one_hot(step, slots, baselines)
    if isinstance(step, SimpleImputer) and not step.add_indicator:
        return slots
    if (scaling := _scaling(step)) is not None:
        by, plus = (np.broadcast_to(np.asarray(part, dtype=float), (len(slots),)) for part in scaling)
        return [slot.scaled(float(a), float(b)) for slot, a, b in zip(slots, by, plus, strict=True)]
    if hasattr(step, "get_support"):
        return [slots[position] for position in np.flatnonzero(step.get_support())]
    raise OpaqueStepError(type(step).__name__)


def _scaling(step: Any) -> tuple[Any, Any] | None:
    """Return slope and offset of a scaler's columns, ``None`` if the step is no scaler."""
    if isinstance(step, StandardScaler):
        by = 1.0 if step.scale_ is None else 1.0 / step.scale_
        return by, 0.0 if step.mean_ is None or not step.with_mean else -step.mean_ * by
    if isinstance(step, MinMaxScaler):
        if step.clip:
            raise OpaqueStepError("MinMaxScaler(clip=True)")
        return step.scale_, step.min_
    if isinstance(step, MaxAbsScaler):
        return 1.0 / step.scale_, 0.0
    if isinstance(step, RobustScaler):
        by = 1.0 if step.scale_ is None else 1.0 / step.scale_
        return by, 0.0 if step.center_ is None else -step.center_ * by
    return None


def _one_hot(step: OneHotEncoder, slots: list[Slot], baselines: dict[int, Any]) -> list[Slot]:
    if any(slot.level is not None or slot.slope != 1.0 or slot.offset for slot in slots):
        raise OpaqueStepError("OneHotEncoder after another step")
    if getattr(step, "_infrequent_enabled", False):
        raise OpaqueStepError("OneHotEncoder with infrequent categories")
    made: list[Slot] = []
    for position, (slot, levels) in enumerate(zip(slots, step.categories_, strict=True)):
        dropped = None if step.drop_idx_ is None else step.drop_idx_[position]
        if dropped is not None:
            baselines[slot.column] = levels[dropped]
        made += [Slot(slot.column, level) for at, level in enumerate(levels) if at != dropped]
    return made


def _through_columns(
    step: ColumnTransformer, slots: list[Slot], names: Sequence[str], baselines: dict[int, Any]
) -> list[Slot]:
    seen = list(getattr(step, "feature_names_in_", []))
    made: list[Slot] = []
    for _, inner, columns in step.transformers_:
        if isinstance(inner, str) and inner == "drop":
            continue
        if given := [slots[position] for position in _positions(columns, seen, len(slots))]:
            made += _through(inner, given, names, baselines)  # what was given no column was never fitted
    return made


def _positions(columns: Any, seen: list[Any], width: int) -> list[int]:
    """Return the positions of a ``ColumnTransformer``'s column specification."""
    if isinstance(columns, str):
        return [seen.index(columns)]
    if isinstance(columns, slice):
        ends = [seen.index(end) if isinstance(end, str) else end for end in (columns.start, columns.stop)]
        if isinstance(columns.stop, str):
            ends[1] += 1
        return list(range(width))[slice(ends[0], ends[1], columns.step)]
    listed = np.atleast_1d(np.asarray(columns))
    if listed.dtype == bool:
        return [int(position) for position in np.flatnonzero(listed)]
    return [seen.index(column) if isinstance(column, str) else int(column) % width for column in listed.tolist()]
