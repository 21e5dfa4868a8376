"""The periods that tables of events are cut into."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from thrifty.models.se_htgnn.events import EventTable

#: Periods above which a table that leaves nine in ten of them empty is warned of.
SPARSE = 1000


def periods_of(pd: Any, tables: Sequence[EventTable], freq: str | None) -> tuple[list[Any], list[np.ndarray]]:
    """Return all periods, and the number of the period of each row of each table."""
    for table in tables:
        if missing := int(table.frame[table.time].isna().sum()):
            raise ValueError(f"time: {missing} rows have no {table.time!r}; leave them out")
    if freq is None:
        columns = [table.frame[table.time] for table in tables]
        periods = sorted(set().union(*(set(pd.unique(column)) for column in columns)))
        code = {label: number for number, label in enumerate(periods)}
        return periods, [column.map(code).to_numpy(np.int64) for column in columns]
    try:
        length = pd.Period("2000-01-01", freq).freq
        unit = length.base
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"freq: expected the length of a period as pandas names it ('D', 'W', 'h', 'M', '2D'), got {freq!r}: "
            f"{error}"
        ) from None
    clocks = [_clock(pd, table) for table in tables]
    if len({str(clock.dt.tz) for clock in clocks}) > 1:
        if any(clock.dt.tz is None for clock in clocks):
            raise ValueError("time: some tables have a time zone and some have none")
        clocks = [clock.dt.tz_convert("UTC") for clock in clocks]
    ordinals = [pd.PeriodIndex(clock.dt.tz_localize(None), freq=unit).astype("int64").to_numpy() for clock in clocks]
    first, last = min(o.min() for o in ordinals), max(o.max() for o in ordinals)
    count = int(last - first) // length.n + 1
    filled = len(np.unique(np.concatenate([(o - first) // length.n for o in ordinals])))
    if count > SPARSE and count > 10 * filled:
        warnings.warn(
            f"time: {count} periods of {freq!r} from the first to the last event, of which {filled} hold one; is there "
            "a time that is wrong?",
            stacklevel=3,
        )
    labels = pd.PeriodIndex.from_ordinals(first + length.n * np.arange(count), freq=unit)
    return [str(label) for label in labels], [(o - first) // length.n for o in ordinals]


def _clock(pd: Any, table: EventTable) -> Any:
    """Return a table's times as pandas' own."""
    column = table.frame[table.time]
    if pd.api.types.is_numeric_dtype(column):
        raise ValueError(
            f"time: expected dates or times in {table.time!r}, got numbers ({column.iloc[0]}); turn them into dates "
            "(pandas.to_datetime with its format or unit; time_format in a graph file), or give freq=None, which takes "
            "every number as a period"
        )
    try:
        return pd.to_datetime(column)
    except (ValueError, TypeError) as error:
        raise ValueError(f"time: expected dates or times in {table.time!r}: {error}") from None
