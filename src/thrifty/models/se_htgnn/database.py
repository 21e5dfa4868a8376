"""Relational databases with time columns, as RelBench has them, read as a temporal graph.

A table without foreign keys is a set of entities; its numeric columns are static features, which an entity has from its
first event on (its time column, where there is one, is such an event). A table with foreign keys and a time column is a
table of events: its keys name the entities that took part, and where other tables refer to its rows, those are entities
too; every pair is a relation, and its numeric columns are measured. Layout: Robinson et al., "RelBench: A Benchmark for
Deep Learning on Relational Databases", NeurIPS 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from thrifty.models.se_htgnn.events import EventTable, Forecast, from_events
from thrifty.models.se_htgnn.temporal import HeteroTemporalData


def from_database(
    database: Any, freq: str = "D", *, forecast: tuple[str, str, str | None] | None = None, until: Any = None
) -> HeteroTemporalData:
    """Read a database.

    Args:
        database: Has ``table_dict`` (or is a mapping): name to a table with ``df``, ``pkey_col``,
            ``fkey_col_to_pkey_table`` and ``time_col``.
        freq: Length of a snapshot's period, as pandas names it.
        forecast: (table, foreign key, column) whose mean a period is to be forecast for that key's entities; column
            ``None``: how many rows there are.
        until: Rows after this time are left out: what was not known then cannot leak.

    Returns:
        The graph, with the reverse of every relation.

    Raises:
        ValueError: No table has a time column and a foreign key, or ``forecast`` names what is not there.
        ImportError: pandas is not installed.

    Example:
        >>> import pandas as pd
        >>> from types import SimpleNamespace as Table
        >>> static = {"pkey_col": "id", "fkey_col_to_pkey_table": {}, "time_col": None}
        >>> shops = Table(df=pd.DataFrame({"id": [1, 2], "size": [5, 7]}), **static)
        >>> items = Table(df=pd.DataFrame({"id": [1, 2]}), **static)
        >>> days = ["2024-01-01", "2024-01-02"]
        >>> sales = pd.DataFrame({"shop": [1, 2], "item": [2, 2], "price": [3.0, 4.0], "when": days})
        >>> keys = {"shop": "shops", "item": "items"}
        >>> sold = Table(df=sales, pkey_col=None, fkey_col_to_pkey_table=keys, time_col="when")
        >>> data = from_database({"shops": shops, "items": items, "sold": sold}, forecast=("sold", "shop", "price"))
        >>> data.metadata()[1][0], data.x["shops"].shape
        (('shops', 'sold', 'items'), torch.Size([2, 2, 3]))

    Source:
        Robinson et al., "RelBench", NeurIPS 2024, section 3.
    """
    tables: Mapping[str, Any] = getattr(database, "table_dict", database)
    events, names, features = [], [], {}
    referred = {to for table in tables.values() for to in table.fkey_col_to_pkey_table.values()}
    for name, table in tables.items():
        frame, when, keys = table.df, table.time_col, dict(table.fkey_col_to_pkey_table)
        if when is not None:
            frame = frame.dropna(subset=[when])
            frame = frame if until is None else frame[frame[when] <= until]
        measured = [c for c in frame.select_dtypes("number").columns if c not in {when, table.pkey_col, *keys}]
        if table.pkey_col is not None and name in referred:
            if keys and when is not None:
                keys[table.pkey_col] = name
            else:
                features[name] = frame.set_index(table.pkey_col)[measured]
        if when is None or not len(frame):
            continue
        if not keys:
            if name in features:  # when an entity came to be
                events.append(EventTable(frame, when, {table.pkey_col: name}))
                names.append(name)
            continue
        relations = [(a, name if len(keys) == 2 else f"{name}_{a}_{b}", b) for a, b in combinations(keys, 2)]
        events.append(EventTable(frame, when, keys, relations, measured))
        names.append(name)
    if not any(table.time_col is not None and table.fkey_col_to_pkey_table for table in tables.values()):
        raise ValueError(
            f"database: expected a table with a time column and foreign keys, got none in {', '.join(tables)}"
        )
    target = None
    if forecast is not None:
        if forecast[0] not in names:
            raise ValueError(f"forecast: expected a table of events among {', '.join(names)}, got {forecast[0]!r}")
        target = Forecast(names.index(forecast[0]), forecast[1], forecast[2])
    known = {name for table in events for name in table.entities.values()}
    static = {name: frame for name, frame in features.items() if name in known}
    return from_events(events, freq, forecast=target, features=static)
