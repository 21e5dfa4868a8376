"""Recordings with frames, written piece by piece: the HDF5 layout that event data sets share.

``events/{xs,ys,ts,ps}``, ``images/image000000000`` with the attributes ``timestamp`` (seconds) and ``event_idx``, and
perhaps ``flow/flow000000000`` (2, h, w) from one image to the next. Layout: Stoffregen et al., "Reducing the
Sim-to-Real Gap for Event Cameras", ECCV 2020.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty._common.files import refuse_existing
from thrifty.data.v2v.events import as_events


def write_recording(
    path: str | os.PathLike[str], events: Any, frames: NDArray[np.uint8], timestamps_us: NDArray[Any],
    flow: NDArray[np.float32] | None = None, *, force: bool = False,
) -> Path:  # fmt: skip
    """Write a recording.

    Args:
        path: An ``.h5`` file.
        events: See :func:`~thrifty.data.v2v.as_events`.
        frames: (frames, h, w) uint8.
        timestamps_us: Of the frames.
        flow: (frames - 1, 2, h, w).
        force: Replace what is there.

    Raises:
        FileExistsError: There is a file already, and ``force`` is False.
        ImportError: h5py is not installed.
    """
    with RecordingWriter(path, frames.shape[1:], force=force) as recording:
        recording.add_events(as_events(events, sensor_size=frames.shape[1:]))
        for i, (frame, time) in enumerate(zip(frames, timestamps_us, strict=True)):
            recording.add_frame(frame, time, None if flow is None or i == 0 else flow[i - 1])
    return Path(path)


class RecordingWriter:
    """Writes a recording piece by piece; the file appears when the block ends without an error.

    Args:
        path: An ``.h5`` file.
        sensor_size: (height, width).
        force: Replace what is there.

    Raises:
        FileExistsError: There is a file already, and ``force`` is False.
        ImportError: h5py is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], sensor_size: tuple[int, ...], *, force: bool = False) -> None:
        self._h5py = require("h5py", extra="vision")
        self._path, self._size = Path(path), sensor_size
        refuse_existing(self._path, force)
        self._beside = self._path.with_name(f".part-{self._path.name}")
        self._images = 0

    def __enter__(self) -> RecordingWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._h5py.File(self._beside, "w")
        self._file.attrs["sensor_resolution"] = self._size
        for name, kind in (("xs", "<u2"), ("ys", "<u2"), ("ts", "<f8"), ("ps", "?")):
            self._file.create_dataset(f"events/{name}", (0,), kind, maxshape=(None,), chunks=(1 << 15,))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._file.close()
            if kind is None:
                self._beside.replace(self._path)
        finally:
            self._beside.unlink(missing_ok=True)

    def add_events(self, events: NDArray[Any]) -> None:
        """Append events, none of them earlier than those before; see :data:`~thrifty.data.v2v.EVENT`."""
        columns = (("xs", events["x"]), ("ys", events["y"]), ("ts", events["t"] / 1e6), ("ps", events["p"] > 0))
        for name, column in columns:
            held = self._file[f"events/{name}"]
            begin = len(held)
            held.resize(begin + len(column), axis=0)
            held[begin:] = column

    def add_frame(self, frame: NDArray[np.uint8], time_us: float, flow: NDArray[np.float32] | None = None) -> None:
        """Append a frame, its events being there, and the flow to it from the frame before."""
        image = self._file.create_dataset(f"images/image{self._images:09d}", data=frame)
        image.attrs["timestamp"] = float(time_us) / 1e6
        image.attrs["event_idx"] = place_of(self._file["events/ts"], float(time_us), None)
        if flow is not None:
            self._file.create_dataset(f"flow/flow{self._images - 1:09d}", data=flow)
        self._images += 1


def place_of(times: Any, stamp: float, hint: Any) -> int:
    """Return the first event at or behind a time: near ``hint``, else by bisection, so that few times are read."""
    scale = 1e6 if times.dtype.kind == "f" else 1.0

    def behind(i: int) -> bool:
        return bool(np.rint(times[i] * scale) >= stamp)

    low, high = 0, len(times)
    if hint is not None and 0 <= int(hint) < high:
        for at in range(max(int(hint) - 1, 1), min(int(hint) + 3, high)):  # some writers mean the event before
            if behind(at) and not behind(at - 1):
                return at
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if behind(middle) else (middle + 1, high)
    return low
