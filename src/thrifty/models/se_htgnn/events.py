"""Tables of events turned into snapshots: who met whom in each period, and what was measured of whom.

An event is a row: when it was, which entities took part, and numbers that were measured. Pairs of its entities become
edges of the period's snapshot; counts and means of its numbers become the entities' features of that period, and, one
period on, what is to be forecast. A period's snapshot holds that period's events and no later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, Triple

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EventTable:
    """A table of events.

    Args:
        frame: The rows.
        time: Column that says when; a date, a time or a whole number.
        entities: Column to node type; two columns may be of one type (where from, where to).
        relations: (column, name, column) for every relation between two entities of a row.
        values: Columns of numbers: each becomes, for every entity column, a feature: its mean over the period's events.
        weighted: Edges count as often as their pair meets; otherwise once a period.

    Raises:
        ValueError: A column is missing, or a relation names one that is no entity.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"day": [0, 0, 1], "shop": ["x", "y", "x"], "item": [1, 1, 2], "price": [2.0, 3, 4]})
        >>> table = EventTable(rows, "day", {"shop": "shop", "item": "item"}, [("shop", "sells", "item")], ["price"])
        >>> from_events([table], freq=None).num_nodes
        {'shop': 2, 'item': 2}

    Source:
        arXiv 2510.18467, section 3.
    """

    frame: pd.DataFrame
    time: str
    entities: Mapping[str, str]
    relations: Sequence[tuple[str, str, str]] = ()
    values: Sequence[str] = ()
    weighted: bool = False

    def __post_init__(self) -> None:
        wanted = [self.time, *self.entities, *self.values]
        if missing := [name for name in wanted if name not in self.frame.columns]:
            raise ValueError(f"frame: expected the columns {', '.join(wanted)}, got none of {', '.join(missing)}")
        for source, _, destination in self.relations:
            for column in (source, destination):
                if column not in self.entities:
                    raise ValueError(f"relations: {column!r} is not among the entities {', '.join(self.entities)}")


@dataclass(frozen=True)
class Forecast:
    """What is to be forecast of the entities in a column: the mean of a value over a period's events.

    Args:
        table: Number of the table.
        entity: Its column.
        value: A column of numbers, of the table's values or not; ``None``: how many events there were.
        least: Events in a period below which nothing is to be forecast there.

    Example:
        >>> Forecast(0, "dest", "arr_delay", least=2).least
        2

    Source:
        arXiv 2510.18467, section 3.
    """

    table: int
    entity: str
    value: str | None = None
    least: int = 1


@dataclass
class _Built:
    """What is collected while tables are read."""

    ids: dict[str, dict[Any, int]] = field(default_factory=dict)
    edges: dict[Triple, list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]] = field(
        default_factory=dict
    )
    x: dict[str, list[np.ndarray]] = field(default_factory=dict)


def from_events(
    tables: Sequence[EventTable],
    freq: str | None = "D",
    *,
    forecast: Forecast | None = None,
    features: Mapping[str, pd.DataFrame] | None = None,
    reverse: bool = True,
) -> HeteroTemporalData:
    """Cut tables of events into snapshots.

    Every entity gets, for each column that it stands in, log(1 + events) and the mean of each value as features of the
    period (0 where nothing was measured).

    Args:
        tables: The events.
        freq: Length of a period, as pandas names it (``"D"``, ``"W"``, ``"h"``); ``None``: each time is one.
        forecast: What is to be predicted; ``None``: nothing but links.
        features: Static numbers of a node type, one row an entity, the index its name.
        reverse: Add the reverse of every relation.

    Returns:
        The graph; its periods are all from the first to the last event, empty ones too.

    Raises:
        ValueError: There is no row, a time or an entity is missing, or a value is no number.
        ImportError: pandas is not installed.

    Example:
        >>> import pandas as pd
        >>> days = ["2024-01-01", "2024-01-03"]
        >>> rows = pd.DataFrame({"when": days, "from": ["A", "B"], "to": ["B", "A"], "late": [5, 7]})
        >>> table = EventTable(rows, "when", {"from": "port", "to": "port"}, [("from", "sails", "to")], ["late"])
        >>> data = from_events([table], forecast=Forecast(0, "to", "late"))
        >>> len(data), data.metadata()[1][1], data.y["port"].shape
        (3, ('port', 'rev_sails', 'port'), torch.Size([3, 2]))

    Source:
        arXiv 2510.18467, section 3.
    """
    pd = require("pandas", extra="graph")
    if not tables or not all(len(table.frame) for table in tables):
        raise ValueError("tables: expected at least one table, and rows in each")
    periods, numbers = _periods(pd, tables, freq)
    built = _Built()
    codes = [
        {
            column: _codes(pd, table.frame[column], built.ids.setdefault(name, {}))
            for column, name in table.entities.items()
        }
        for table in tables
    ]
    for name, frame in (features or {}).items():
        _codes(pd, frame.index, built.ids.setdefault(name, {}))
    target = None
    for place, (table, snapshot, held) in enumerate(zip(tables, numbers, codes, strict=True)):
        _read(pd, table, snapshot, held, len(periods), built)
        if forecast is not None and forecast.table == place:
            target = _target(pd, forecast, table, snapshot, held, len(periods), built)
    if forecast is not None and target is None:
        raise ValueError(f"forecast: expected a table below {len(tables)}, got {forecast.table}")
    for name, frame in (features or {}).items():
        held = frame.reindex(list(built.ids[name])).select_dtypes("number").fillna(0).to_numpy(np.float32)
        built.x.setdefault(name, []).append(np.broadcast_to(held, (len(periods), *held.shape)))
    data = HeteroTemporalData(
        {name: len(code) for name, code in built.ids.items()},
        {triple: _joined(parts) for triple, parts in built.edges.items()},
        {name: torch.from_numpy(np.concatenate(parts, -1)) for name, parts in built.x.items()},
        {} if target is None else {target[0]: torch.from_numpy(target[1])},
        periods,
        {name: list(code) for name, code in built.ids.items()},
    )
    return data.with_reverse() if reverse else data


def _periods(pd: Any, tables: Sequence[EventTable], freq: str | None) -> tuple[list[Any], list[np.ndarray]]:
    """Return all periods, and the number of the period of each row of each table."""
    columns = []
    for table in tables:
        held = table.frame[table.time]
        if held.isna().any():
            raise ValueError(f"time: {int(held.isna().sum())} rows have no {table.time!r}; leave them out")
        columns.append(held if freq is None else pd.to_datetime(held).dt.to_period(freq))
    if freq is None:
        periods = sorted(set().union(*(set(pd.unique(column)) for column in columns)))
        code = {label: number for number, label in enumerate(periods)}
        return periods, [column.map(code).to_numpy(np.int64) for column in columns]
    first, last = min(column.min() for column in columns), max(column.max() for column in columns)
    index = pd.period_range(first, last, freq=first.freq)
    return [str(period) for period in index], [
        index.get_indexer(pd.PeriodIndex(column)).astype(np.int64) for column in columns
    ]


def _codes(pd: Any, column: Any, code: dict[Any, int]) -> np.ndarray:
    """Return the number of each label, new ones added to ``code``; -1 where it is missing."""
    places, labels = pd.factorize(column)
    known = np.array([code.setdefault(label, len(code)) for label in labels], dtype=np.int64)
    return np.where(places >= 0, known[places], -1) if len(known) else places.astype(np.int64)


def _read(
    pd: Any, table: EventTable, snapshot: np.ndarray, codes: Mapping[str, np.ndarray], periods: int, built: _Built
) -> None:
    """Add a table's edges and features."""
    for source, name, destination in table.relations:
        ends = (table.entities[source], table.entities[destination])
        both = (codes[source] >= 0) & (codes[destination] >= 0)
        sizes = (periods, len(built.ids[ends[0]]), len(built.ids[ends[1]]))
        key = np.ravel_multi_index((snapshot[both], codes[source][both], codes[destination][both]), sizes)
        key, count = np.unique(key, return_counts=True)
        when, first, second = np.unravel_index(key, sizes)
        weight = count.astype(np.float32) if table.weighted else None
        built.edges.setdefault((ends[0], name, ends[1]), []).append((first, second, when, weight))
    for column, name in table.entities.items():
        nodes = len(built.ids[name])
        measured = (_numbers(pd, table, title) for title in table.values)
        pieces = [np.log1p(_means(None, snapshot, codes[column], periods, nodes)[1])]
        pieces += [_means(values, snapshot, codes[column], periods, nodes)[0] for values in measured]
        built.x.setdefault(name, []).append(np.stack(pieces, -1).astype(np.float32))


def _numbers(pd: Any, table: EventTable, name: str) -> np.ndarray:
    return pd.to_numeric(table.frame[name], errors="coerce").to_numpy(np.float64)  # type: ignore[no-any-return]


def _means(
    values: np.ndarray | None, snapshot: np.ndarray, code: np.ndarray, periods: int, nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a value, and how many there are of it, by period and entity; without values, of rows."""
    known = code >= 0 if values is None else (code >= 0) & np.isfinite(values)
    cell = snapshot[known] * nodes + code[known]
    count = np.bincount(cell, minlength=periods * nodes)
    total = count if values is None else np.bincount(cell, values[known], minlength=periods * nodes)
    mean = np.divide(total, count, out=np.zeros(len(count)), where=count > 0)
    return mean.reshape(periods, nodes), count.reshape(periods, nodes)


def _target(pd: Any, forecast: Forecast, table: EventTable, snapshot: np.ndarray, codes: Mapping[str, np.ndarray],
            periods: int, built: _Built) -> tuple[str, np.ndarray]:  # fmt: skip
    if forecast.entity not in codes:
        raise ValueError(f"forecast: expected an entity among {', '.join(codes)}, got {forecast.entity!r}")
    if forecast.value is not None and forecast.value not in table.frame.columns:
        raise ValueError(f"forecast: expected a value among {', '.join(table.frame.columns)}, got {forecast.value!r}")
    name = table.entities[forecast.entity]
    values = None if forecast.value is None else _numbers(pd, table, forecast.value)
    mean, count = _means(values, snapshot, codes[forecast.entity], periods, len(built.ids[name]))
    if values is None:
        return name, count.astype(np.float32)
    return name, np.where(count >= whole("least", forecast.least), mean, np.nan).astype(np.float32)


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]) -> Edges:
    index = torch.from_numpy(np.stack([np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])]))
    snapshot = torch.from_numpy(np.concatenate([p[2] for p in parts]))
    if all(p[3] is None for p in parts):
        return Edges(index, snapshot)
    weights = [np.ones(len(p[0]), np.float32) if p[3] is None else p[3] for p in parts]
    return Edges(index, snapshot, torch.from_numpy(np.concatenate(weights)))
