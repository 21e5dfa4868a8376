"""Event recordings in the formats of cameras and data sets, through the libraries that read them.

``.aedat4``, ``.raw`` (Prophesee EVT2, EVT3) and ``.dat`` through faery; ``.h5`` and ``.hdf5`` through h5py, in
the layouts ``events/{x,y,t,p}`` and ``events/{xs,ys,ts,ps}``, with the filters of hdf5plugin where it is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty._common.files import refuse_existing
from thrifty.data.v2v.events import as_events

_FAERY = (".aedat4", ".raw", ".dat")
_HDF5 = (".h5", ".hdf5")
SUFFIXES = (*_FAERY, *_HDF5)


def read_events(path: str | os.PathLike[str]) -> tuple[NDArray[Any], tuple[int, int]]:
    """Return the events of a recording, and its sensor's (height, width).

    Args:
        path: A file whose ending says its format.

    Raises:
        ValueError: The ending is unknown, or what is in the file is not what it says.
        FileNotFoundError: There is no such file.
        ImportError: faery or h5py is not installed.

    Example:
        >>> from thrifty.data.v2v import EVENT
        >>> events = np.array([(1, 2, 0, 1), (3, 1, 9, -1)], EVENT)
        >>> read_events(write_events("two.aedat4", events, (4, 5)))[0].tolist()
        [(1, 2, 0, 1), (3, 1, 9, -1)]
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path: expected a file ending in {', '.join(SUFFIXES)}, got {path}")
    if not path.is_file():
        raise FileNotFoundError(f"path: there is no file {path}")
    return _from_hdf5(path) if path.suffix.lower() in _HDF5 else _from_faery(path)


def write_events(
    path: str | os.PathLike[str], events: NDArray[Any], sensor_size: tuple[int, int], *, force: bool = False
) -> Path:
    """Write events as ``.aedat4``, ``.raw`` or ``.dat``; times are from 0 on.

    Raises:
        ValueError: The ending is unknown.
        FileExistsError: There is a file already, and ``force`` is False.
        ImportError: faery is not installed.
    """
    return write_packets(path, [as_events(events, sensor_size=sensor_size)], sensor_size, force=force)


def write_packets(
    path: str | os.PathLike[str], packets: Iterable[NDArray[Any]], sensor_size: tuple[int, int], *, force: bool = False
) -> Path:
    """Write events that come in packets, one after another in time, as :func:`write_events` writes them at once."""
    path = Path(path)
    if path.suffix.lower() not in _FAERY:
        raise ValueError(f"path: expected a file ending in {', '.join(_FAERY)}, got {path}")
    refuse_existing(path, force)
    faery = require("faery", extra="vision")

    class Stream(faery.FiniteEventsStream):  # type: ignore[name-defined, misc]
        def __iter__(self) -> Iterator[NDArray[Any]]:
            for held in packets:
                theirs = np.empty(len(held), faery.EVENTS_DTYPE)
                theirs["t"], theirs["x"], theirs["y"], theirs["on"] = held["t"], held["x"], held["y"], held["p"] > 0
                yield theirs

        def dimensions(self) -> tuple[int, int]:
            return sensor_size[1], sensor_size[0]

        def time_range(self) -> tuple[Any, Any]:  # for its report of progress, which nobody reads
            return faery.Time(microseconds=0), faery.Time(microseconds=1)

    beside = path.with_name(f".part-{path.name}")
    try:
        Stream().to_file(beside)
        beside.replace(path)
    finally:
        for rest in (beside, beside.with_name(f"{beside.name}.write")):  # faery's own, where the disk was full
            rest.unlink(missing_ok=True)
    return path


def opened_hdf5(path: str | os.PathLike[str]) -> Any:
    """Return an HDF5 file, open for reading, with the filters of hdf5plugin where it is installed.

    Raises:
        ValueError: It cannot be read, or has no group of columns ``events``.
        FileNotFoundError: There is no such file.
        ImportError: h5py is not installed.
    """
    h5py = require("h5py", extra="vision")
    with suppress(ModuleNotFoundError):  # only some recordings are compressed by its filters
        import_module("hdf5plugin")
    try:
        file = h5py.File(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"path: there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path}: it cannot be read as a recording: {error}") from None
    if "events" not in file:
        raise ValueError(f"{path}: expected a group 'events', got {', '.join(file)}")
    if not hasattr(file["events"], "keys"):
        raise ValueError(f"{path}: expected columns in 'events', got one data set")
    return file


def event_columns(file: Any) -> dict[str, Any]:
    """Return the data sets of x, y, t and p in an HDF5 recording, whatever of their two layouts it has.

    Raises:
        ValueError: One is missing.
    """
    group = file["events"]
    found = {}
    for field in "xytp":
        name = next((name for name in (field, f"{field}s") if name in group), None)
        if name is None:
            raise ValueError(f"{file.filename}: expected events/{field} or events/{field}s, got {', '.join(group)}")
        found[field] = group[name]
    return found


def _from_faery(path: Path) -> tuple[NDArray[Any], tuple[int, int]]:
    faery = require("faery", extra="vision")
    if path.suffix.lower() in (".raw", ".dat") and path.read_bytes()[:1] != b"%":  # faery takes anything for EVT2
        raise ValueError(f"{path}: it cannot be read as a recording: expected Prophesee's header, got none")
    try:
        stream = faery.events_stream_from_file(path)
        width, height = stream.dimensions()
        packets = list(stream)
    except (RuntimeError, OSError, AssertionError) as error:
        raise ValueError(f"{path}: it cannot be read as a recording: {error}") from None
    theirs = np.concatenate(packets) if packets else np.empty(0, faery.EVENTS_DTYPE)
    columns = {"x": theirs["x"], "y": theirs["y"], "t": theirs["t"].astype(np.int64), "p": theirs["on"]}
    return as_events(columns, sensor_size=(height, width)), (height, width)


def _from_hdf5(path: Path) -> tuple[NDArray[Any], tuple[int, int]]:
    with opened_hdf5(path) as file:
        columns = {field: column[()] for field, column in event_columns(file).items()}
        size = file.attrs.get("sensor_resolution")
    events = as_events(columns, time_unit="s" if columns["t"].dtype.kind == "f" else None)
    if size is None:
        size = (int(events["y"].max(initial=0)) + 1, int(events["x"].max(initial=0)) + 1)
    height, width = int(size[0]), int(size[1])
    return as_events(events, sensor_size=(height, width)), (height, width)
