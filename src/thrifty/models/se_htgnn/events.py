"""Tables of events turned into snapshots: who met whom in each period, and what was measured of whom.

An event is a row: when it was, which entities took part, and numbers that were measured. Pairs of its entities become
edges of the period's snapshot; counts and means of its numbers become the entities' features of that period, and, one
period on, what is to be forecast. A period's snapshot holds that period's events and no later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from thrifty._common.checks import whole
from thrifty._common.extras import require
from thrifty.models.se_htgnn.columns import codes_of, means_of, numbers_of
from thrifty.models.se_htgnn.periods import periods_of
from thrifty.models.se_htgnn.temporal import Edges, HeteroTemporalData, Triple

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class EventTable:
    """A table of events.

    Args:
        frame: The rows.
        time: Column that says when: dates or times; with ``freq=None`` anything that can be sorted.
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
        if isinstance(self.values, str):
            raise ValueError(f"values: expected a list of columns, got {self.values!r}")
        for relation in self.relations:
            if isinstance(relation, str) or len(relation) != 3:
                raise ValueError(f"relations: expected (column, name, column), got {relation!r}")
        wanted = [self.time, *self.entities, *self.values]
        if missing := [name for name in wanted if name not in self.frame.columns]:
            raise ValueError(f"frame: expected the columns {', '.join(wanted)}, got none of {', '.join(missing)}")
        for source, _, destination in self.relations:
            for column in (source, destination):
                if column not in self.entities:
                    raise ValueError(f"relations: {column!r} is not among the entities {', '.join(self.entities)}")


@dataclass(frozen=True)
class Forecast:
    """What is to be forecast of the entities in a column: the mean of a value over a period's events, or a class.

    Args:
        table: Number of the table.
        entity: Its column.
        value: A column of numbers, of the table's values or not; ``None``: how many events there were, from an entity's
            first event of any kind on.
        least: Events in a period below which nothing is to be forecast there (counts are what they are).
        classes: The value is a class: whole numbers, or labels of any kind, which are numbered in order
            (``source["classes"]`` has them). A period's class is its most frequent one, of several the first in order.

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
    classes: bool = False


@dataclass
class _Built:
    """What is collected while tables are read."""

    ids: dict[str, dict[Any, int]] = field(default_factory=dict)
    edges: dict[Triple, list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]] = field(
        default_factory=dict
    )
    x: dict[str, list[np.ndarray]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)  # of the features


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
        freq: Length of a period, as pandas names it (``"D"``, ``"W"``, ``"2h"``); ``None``: each time is one.
        forecast: What is to be predicted; ``None``: nothing but links.
        features: Static numbers of a node type, one row an entity, the index its name; an entity has them from its
            first event on.
        reverse: Add the reverse of every relation.

    Returns:
        The graph; its periods are all from the first to the last event, empty ones too.

    Raises:
        ValueError: There is no row, a time is missing or no time, a column is not there, or a value is no number.
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
    periods, numbers = periods_of(pd, tables, freq)
    built = _Built()
    codes = [
        {
            column: codes_of(pd, table.frame[column], built.ids.setdefault(name, {}))
            for column, name in table.entities.items()
        }
        for table in tables
    ]
    for name, frame in (features or {}).items():
        if name not in built.ids:
            raise ValueError(f"features: expected a node type among {', '.join(built.ids)}, got {name!r}")
        if not frame.index.is_unique:
            raise ValueError(f"features: expected one row an entity of {name!r}, got several of some")
        codes_of(pd, frame.index, built.ids[name])
    for table, snapshot, held in zip(tables, numbers, codes, strict=True):
        _read(pd, table, snapshot, held, len(periods), built)
    born = _born(tables, numbers, codes, built, len(periods))
    source: dict[str, Any] = {"period": freq, "relations": [list(triple) for triple in built.edges]}
    y = {}
    if forecast is not None:
        if not 0 <= forecast.table < len(tables):
            raise ValueError(f"forecast: expected a table below {len(tables)}, got {forecast.table}")
        k = forecast.table
        name, values, labels = _target(pd, forecast, tables[k], numbers[k], codes[k], born, len(periods))
        y[name] = torch.from_numpy(values)
        source["forecast"] = asdict(forecast)
        source |= {} if labels is None else {"classes": labels}
    for name, frame in (features or {}).items():
        numeric = frame.reindex(list(built.ids[name])).select_dtypes("number").fillna(0)
        there = np.arange(len(periods))[:, None, None] >= born[name][None, :, None]
        built.x.setdefault(name, []).append(numeric.to_numpy(np.float32) * there)
        built.names.setdefault(name, []).extend(map(str, numeric.columns))
    data = HeteroTemporalData(
        {name: len(code) for name, code in built.ids.items()},
        {triple: _joined(parts) for triple, parts in built.edges.items()},
        {name: torch.from_numpy(np.concatenate(parts, -1).astype(np.float32)) for name, parts in built.x.items()},
        y,
        periods,
        {name: list(code) for name, code in built.ids.items()},
        source | {"features": built.names},
    )
    return data.with_reverse() if reverse else data


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
        measured = (numbers_of(pd, table.frame[title], title) for title in table.values)
        pieces = [np.log1p(means_of(None, snapshot, codes[column], periods, nodes)[1])]
        pieces += [means_of(values, snapshot, codes[column], periods, nodes)[0] for values in measured]
        built.x.setdefault(name, []).append(np.stack(pieces, -1).astype(np.float32))
        titles = ["events", *table.values]
        built.names.setdefault(name, []).extend(f"{title} by {column}" for title in titles)


def _born(
    tables: Sequence[EventTable],
    numbers: Sequence[np.ndarray],
    codes: Sequence[Mapping[str, np.ndarray]],
    built: _Built,
    periods: int,
) -> dict[str, np.ndarray]:
    """Return the period of each entity's first event; ``periods`` if it has none."""
    born = {name: np.full(len(code), periods) for name, code in built.ids.items()}
    for table, snapshot, held in zip(tables, numbers, codes, strict=True):
        for column, name in table.entities.items():
            known = held[column] >= 0
            np.minimum.at(born[name], held[column][known], snapshot[known])
    return born


def _target(pd: Any, forecast: Forecast, table: EventTable, snapshot: np.ndarray, codes: Mapping[str, np.ndarray],
            born: Mapping[str, np.ndarray], periods: int) -> tuple[str, np.ndarray, list[str] | None]:  # fmt: skip
    """Return the node type, what is to be forecast of it by period and entity, and the labels of classes, if any."""
    if forecast.entity not in codes:
        raise ValueError(f"forecast: expected an entity among {', '.join(codes)}, got {forecast.entity!r}")
    if forecast.value is not None and forecast.value not in table.frame.columns:
        raise ValueError(f"forecast: expected a value among {', '.join(table.frame.columns)}, got {forecast.value!r}")
    name, code, least = table.entities[forecast.entity], codes[forecast.entity], whole("least", forecast.least)
    if forecast.value is None:
        if forecast.classes:
            raise ValueError("forecast: classes need a value, the column that holds them")
        count = means_of(None, snapshot, code, periods, len(born[name]))[1]
        alive = np.arange(periods)[:, None] >= born[name]
        return name, np.where(alive, count, np.nan).astype(np.float32), None
    if not forecast.classes:
        mean, count = means_of(
            numbers_of(pd, table.frame[forecast.value], forecast.value), snapshot, code, periods, len(born[name])
        )
        return name, np.where(count >= least, mean, np.nan).astype(np.float32), None
    column = table.frame[forecast.value]
    kinds, labels = pd.factorize(column, sort=True)
    if pd.api.types.is_numeric_dtype(column):
        if len(strange := labels[labels != np.round(labels.to_numpy(np.float64))]):
            raise ValueError(f"forecast: expected classes as whole numbers in {forecast.value!r}, got {strange[0]}")
        numbers, names = labels.to_numpy(np.float32), None
    else:
        numbers, names = np.arange(len(labels), dtype=np.float32), [str(label) for label in labels]
    counts = np.zeros((periods, len(born[name]), max(1, len(labels))), np.int64)
    known = (code >= 0) & (kinds >= 0)
    np.add.at(counts, (snapshot[known], code[known], kinds[known]), 1)
    found = numbers[counts.argmax(-1)] if len(labels) else np.zeros(counts.shape[:2], np.float32)
    return name, np.where(counts.sum(-1) >= least, found, np.nan).astype(np.float32), names


def _joined(parts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]]) -> Edges:
    """Join what several tables, or columns, say of one relation: a pair counts once a period, weights add up."""
    held = np.stack([np.concatenate([part[k] for part in parts]) for k in (2, 0, 1)])
    held, place = np.unique(held, axis=1, return_inverse=True)
    index, snapshot = torch.from_numpy(held[1:].copy()), torch.from_numpy(held[0].copy())
    if all(part[3] is None for part in parts):
        return Edges(index, snapshot)
    weights = np.concatenate([np.ones(len(p[0]), np.float32) if p[3] is None else p[3] for p in parts])
    return Edges(index, snapshot, torch.from_numpy(np.bincount(place.ravel(), weights).astype(np.float32)))
