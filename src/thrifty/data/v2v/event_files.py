"""Event recordings in the formats of cameras and data sets, through the libraries that read them.

``.aedat4``, ``.raw`` (Prophesee EVT2, EVT3) and ``.dat`` through faery; ``.h5`` and ``.hdf5`` through h5py, in
the layouts ``events/{x,y,t,p}`` and ``events/{xs,ys,ts,ps}``, with the filters of hdf5plugin where it is installed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
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
    from thrifty._common.files import refuse_existing

    path = Path(path)
    if path.suffix.lower() not in _FAERY:
        raise ValueError(f"path: expected a file ending in {', '.join(_FAERY)}, got {path}")
    refuse_existing(path, force)
    faery = require("faery", extra="vision")
    held = as_events(events, sensor_size=sensor_size)
    theirs = np.empty(len(held), faery.EVENTS_DTYPE)
    theirs["t"], theirs["x"], theirs["y"], theirs["on"] = held["t"], held["x"], held["y"], held["p"] > 0
    beside = path.with_name(f".part-{path.name}")
    try:
        faery.events_stream_from_array(theirs, sensor_size[::-1]).to_file(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


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
    h5py = require("h5py", extra="vision")
    with suppress(ModuleNotFoundError):  # only some recordings are compressed by its filters
        import_module("hdf5plugin")
    with h5py.File(path) as file:
        group = file.get("events")
        if group is None:
            raise ValueError(f"{path}: expected a group 'events', got {', '.join(file)}")
        if not hasattr(group, "keys"):
            raise ValueError(f"{path}: expected columns in 'events', got one data set")
        columns = {name: group[name][()] for name in group if name in ("x", "y", "t", "p", "xs", "ys", "ts", "ps")}
        floating = columns.get("t", columns.get("ts", np.empty(0))).dtype.kind == "f"
        size = file.attrs.get("sensor_resolution")
    events = as_events(columns, time_unit="s" if floating else None)
    if size is None:
        size = (int(events["y"].max(initial=0)) + 1, int(events["x"].max(initial=0)) + 1)
    height, width = int(size[0]), int(size[1])
    return as_events(events, sensor_size=(height, width)), (height, width)
