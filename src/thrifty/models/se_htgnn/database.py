"""Relational databases with time columns, as RelBench has them, read as a temporal graph.

A table without a time column is a set of entities; its numeric columns are static features. A table with one is a table
of events: its foreign keys name the entities that took part, every pair of them is a relation, and its numeric columns
are measured. Layout: Robinson et al., "RelBench: A Benchmark for Deep Learning on Relational Databases", NeurIPS 2024.
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
    for name, table in tables.items():
        keys = dict(table.fkey_col_to_pkey_table)
        if table.time_col is None or not keys:
            if table.pkey_col is not None:
                features[name] = table.df.set_index(table.pkey_col).select_dtypes("number")
            continue
        frame = table.df.dropna(subset=[table.time_col])
        frame = frame if until is None else frame[frame[table.time_col] <= until]
        left_out = {table.time_col, table.pkey_col, *keys}
        values = [column for column in frame.select_dtypes("number").columns if column not in left_out]
        relations = [(a, name if len(keys) == 2 else f"{name}_{a}_{b}", b) for a, b in combinations(keys, 2)]
        events.append(EventTable(frame, table.time_col, keys, relations, values))
        names.append(name)
    if not events:
        raise ValueError(
            f"database: expected a table with a time column and foreign keys, got none in {', '.join(tables)}"
        )
    target = None
    if forecast is not None:
        if forecast[0] not in names:
            raise ValueError(f"forecast: expected a table of events among {', '.join(names)}, got {forecast[0]!r}")
        target = Forecast(names.index(forecast[0]), forecast[1], forecast[2])
    return from_events(events, freq, forecast=target, features=features)
