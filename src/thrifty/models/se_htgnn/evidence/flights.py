"""The first workload: 365 days of New York's flights; tomorrow's mean arrival delay of every destination.

Two node types, airports and carriers; three relations and their reverses: an origin flies to a destination, a carrier
serves a destination, a carrier departs from an origin. Features of a day: log(1 + flights), mean delay in half hours
(clipped to -60 to 180 minutes), share cancelled, of arrivals, of departures, and of a carrier.
"""

from __future__ import annotations

from functools import cache

from thrifty.bench.data import flights
from thrifty.models.se_htgnn.events import EventTable, Forecast, from_events
from thrifty.models.se_htgnn.splits import Split, temporal_split
from thrifty.models.se_htgnn.temporal import HeteroTemporalData

TARGET = "airport"
HELD_OUT = 30  # days of test, and days of validation before them


@cache
def graph() -> HeteroTemporalData:
    """Return the graph; delays to forecast are in minutes.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
    """
    table = flights.load()
    rows = table.assign(
        arrival=table.arr_delay.clip(-60, 180) / 30,
        departure=table.dep_delay.clip(-60, 180) / 30,
        cancelled=table.dep_delay.isna().astype(float),
        late=table.arr_delay.clip(-60, 180),
    )
    arrivals = EventTable(
        rows, "date", {"dest": "airport", "origin": "airport", "carrier": "carrier"},
        [("origin", "flies_to", "dest"), ("carrier", "serves", "dest"), ("carrier", "departs_from", "origin")],
        ["arrival", "departure", "cancelled"],
    )  # fmt: skip
    return from_events([arrivals], "D", forecast=Forecast(0, "dest", "late", least=2))


def split(window: int) -> Split:
    """Return the last 30 days to test, 30 before them to validate, and the rest."""
    return temporal_split(graph(), window, HELD_OUT, HELD_OUT)
