"""What the command line reads: a JSON file that says which tables of events make up a graph.

::

    {"freq": "D",
     "tables": [{"file": "flights.csv", "time": "date",
                 "entities": {"origin": "airport", "dest": "airport", "carrier": "carrier"},
                 "relations": [["origin", "flies_to", "dest"], ["carrier", "serves", "dest"]],
                 "values": ["delay"]}],
     "forecast": {"table": 0, "entity": "dest", "value": "delay", "least": 2},
     "descriptions": {"airport": "a place where planes take off and land"},
     "domain": "flights"}

Files are CSV or Parquet, beside the JSON file; entities in a CSV are text as it stands there (``007``, ``NA``), and
none where the cell is empty. ``freq`` is the length of a period ("D", "W", "2h"; null: every time is one);
``"time_format": "%Y%m%d"`` in a table says how its times are written, if they are not plain dates. ``links`` in place
of ``forecast`` names an edge type whose links are to be forecast; ``classes: true`` in ``forecast`` says that the
values are classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thrifty._common import settings
from thrifty._common.extras import require
from thrifty.models.se_htgnn.events import EventTable, Forecast, from_events
from thrifty.models.se_htgnn.temporal import HeteroTemporalData, Triple

SCHEMA, VERSION = "thrifty.se_htgnn.graph", 1
_KEYS = ("freq", "tables", "forecast", "links", "descriptions", "domain")
_TABLE = ("file", "time", "time_format", "entities", "relations", "values", "weighted")
#: What stands for a missing number or time in a CSV.
MISSING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>"]

_FORECAST = ("table", "entity", "value", "least", "classes")


@dataclass(frozen=True)
class GraphFile:
    """A graph as a file describes it.

    Args:
        data: The graph.
        target: The node type to forecast, or the edge type whose links; ``None``: nothing is said.
        classes: What is forecast are classes.
        descriptions: A sentence on each node type.
        domain: What the graph is of.
    """

    data: HeteroTemporalData
    target: str | Triple | None
    classes: bool
    descriptions: dict[str, str]
    domain: str


def read_graph(path: Path) -> GraphFile:
    """Read a graph file and its tables.

    Args:
        path: The JSON file.

    Raises:
        ValueError: It does not say what is needed, or a table lacks a column; the message names file and key.
        OSError: A file is missing.
    """
    found = settings.parse(
        path.read_text(), SCHEMA, VERSION, known=_KEYS, needed=("tables",), headless=True, name=str(path)
    )
    tables = [_table(path, number, entry) for number, entry in enumerate(found["tables"])]
    if found.get("forecast") is not None and found.get("links") is not None:
        raise ValueError(f"{path}: expected either 'forecast' or 'links', got both; a model is trained for one of them")
    target: str | Triple | None = None
    forecast, classes = None, False
    if (wanted := found.get("forecast")) is not None:
        _keys(f"{path}, forecast", wanted, _FORECAST, ("entity",))
        classes = bool(wanted.get("classes", False))
        place = wanted.get("table", 0)
        if not isinstance(place, int) or not 0 <= place < len(tables):
            raise ValueError(f"{path}, forecast: expected a table below {len(tables)}, got {place!r}")
        forecast = Forecast(place, wanted["entity"], wanted.get("value"), wanted.get("least", 1), classes)
        target = tables[place].entities.get(wanted["entity"])
    data = from_events(tables, found.get("freq", "D"), forecast=forecast)
    if (links := found.get("links")) is not None:
        if tuple(links) not in data.edges:
            raise ValueError(f"{path}, links: expected an edge type among {list(data.edges)}, got {links}")
        target = (links[0], links[1], links[2])
    return GraphFile(data, target, classes, found.get("descriptions", {}), found.get("domain", "entities over time"))


def _keys(name: str, entry: Any, known: tuple[str, ...], needed: tuple[str, ...]) -> None:
    if not isinstance(entry, dict):
        raise ValueError(f"{name}: expected an object, got {json.dumps(entry)[:40]}")
    if unknown := sorted(set(entry) - set(known)):
        raise ValueError(f"{name}: expected the keys {', '.join(known)}, got also {', '.join(unknown)}")
    if missing := [key for key in needed if key not in entry]:
        raise ValueError(f"{name}: expected {', '.join(map(repr, missing))}, got none")


def _table(path: Path, number: int, entry: Any) -> EventTable:
    name = f"{path}, table {number}"
    _keys(name, entry, _TABLE, ("file", "time", "entities"))
    pandas = require("pandas", extra="graph")
    file = path.parent / entry["file"]
    if not isinstance(entry["entities"], dict):
        raise ValueError(f"{name}: entities: expected column to node type, got {json.dumps(entry['entities'])[:40]}")
    try:
        when, written = entry["time"], entry.get("time_format")
        frame = _rows(pandas, file, [*entry["entities"], *([when] if written else [])])  # 20240101 is no number
        if written and when in frame.columns:
            frame[when] = pandas.to_datetime(frame[when].astype(str), format=written)
        return EventTable(frame, when, entry["entities"], entry.get("relations", []), entry.get("values", []),
                          entry.get("weighted", False))  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{name} ({file}): {error}") from None


def _rows(pandas: Any, file: Path, as_written: list[str]) -> Any:
    """Return a file's rows; some columns of a CSV are taken as they are written."""
    if file.suffix in (".parquet", ".pq"):
        return pandas.read_parquet(file)
    columns = pandas.read_csv(file, nrows=0).columns
    missing = {name: [""] if name in as_written else MISSING for name in columns}
    text = {name: str for name in as_written if name in columns}
    return pandas.read_csv(file, dtype=text, keep_default_na=False, na_values=missing)
