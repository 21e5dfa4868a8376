"""Recordings with frames: the HDF5 layout that event data sets share, and evaluation on it.

``events/{xs,ys,ts,ps}``, ``images/image000000000`` with the attributes ``timestamp`` (seconds) and ``event_idx``, and
perhaps ``flow/flow000000000`` (2, h, w) from one image to the next. Layout: Stoffregen et al., "Reducing the
Sim-to-Real Gap for Event Cameras", ECCV 2020; metrics: arXiv 2505.16797, section 4.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.files import refuse_existing
from thrifty.data.v2v.events import as_events, events_to_voxel
from thrifty.data.v2v.metrics import flow_errors, frame_errors

#: Where the field cuts sequences, seconds behind their start: IJRR (ECD) and MVSEC as in EVREAL (Ercan et al., CVPRW
#: 2023); sequences of HQF are used whole.
STANDARD_CUTS = {
    **dict.fromkeys(("calibration", "boxes_6dof", "dynamic_6dof", "poster_6dof", "shapes_6dof"), (5.0, 20.0)),
    "office_zigzag": (5.0, 12.0),
    "slider_depth": (1.0, 2.5),
    **dict.fromkeys((f"indoor_flying{i}_data" for i in (1, 2, 3)), (10.0, 70.0)),
    "indoor_flying4_data": (10.0, 19.8),
    "outdoor_day1_data": (0.0, 60.0),
    "outdoor_day2_data": (100.0, 160.0),
}


def standard_cut(path: str | os.PathLike[str]) -> dict[str, float]:
    """Return ``start`` and ``end`` of a sequence of a known data set, by its file's name; nothing for others.

    Example:
        >>> standard_cut("ECD/slider_depth.h5")
        {'start': 1.0, 'end': 2.5}
    """
    cut = STANDARD_CUTS.get(Path(path).stem)
    return {} if cut is None else {"start": cut[0], "end": cut[1]}


@dataclass(frozen=True)
class Window:
    """What lies between two frames of a recording.

    Args:
        voxel: (bins, h, w).
        frame: The later frame, (h, w) uint8.
        flow: From the earlier frame to it, (2, h, w), or ``None``.
        events: How many there were.
    """

    voxel: NDArray[np.float32]
    frame: NDArray[np.uint8]
    flow: NDArray[np.float32] | None
    events: int


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
    h5py = require("h5py", extra="vision")
    path = Path(path)
    refuse_existing(path, force)
    held = as_events(events, sensor_size=frames.shape[1:])
    beside = path.with_name(f".part-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with h5py.File(beside, "w") as file:
            file.attrs["sensor_resolution"] = frames.shape[1:]
            group = file.create_group("events")
            group["xs"], group["ys"] = held["x"], held["y"]
            group["ts"], group["ps"] = held["t"] / 1e6, held["p"] > 0
            places = np.searchsorted(held["t"], timestamps_us)
            for i, (frame, time, place) in enumerate(zip(frames, timestamps_us, places, strict=True)):
                image = file.create_dataset(f"images/image{i:09d}", data=frame)
                image.attrs["timestamp"], image.attrs["event_idx"] = time / 1e6, place
            for i, field in enumerate(flow if flow is not None else ()):
                file.create_dataset(f"flow/flow{i:09d}", data=field)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def read_windows(
    path: str | os.PathLike[str],
    bins: int = 5,
    *,
    representation: Literal["discrete", "interpolated"] = "discrete",
    window: Literal["frames", "events"] = "frames",
    start: float = 0.0,
    end: float = float("inf"),
) -> Iterator[Window]:
    """Read a recording from frame to frame.

    Args:
        path: See :func:`write_recording`.
        bins: Of a voxel grid.
        representation: Its kind.
        window: Bins divide the time between the two frames, or between the first and last event between them (as
            the paper's test code does).
        start: Seconds behind the first frame from which on windows are read; data sets are cut there by convention.
        end: Seconds at which they end.

    Yields:
        A window for every frame but the first.

    Raises:
        ValueError: There are fewer than two frames, or a frame has no time.
    """
    one_of("window", window, ("frames", "events"))
    h5py = require("h5py", extra="vision")
    with h5py.File(path) as file:
        for name in ("events", "images"):
            if name not in file:
                raise ValueError(f"{path}: expected a group {name!r}, got {', '.join(file)}")
        group = file["events"]
        times = group["ts"][()]
        names = sorted(file["images"])
        if len(names) < 2:
            raise ValueError(f"{path}: expected at least two images, got {len(names)}")
        stamps = [file["images"][name].attrs.get("timestamp") for name in names]
        if None in stamps:
            raise ValueError(f"{path}: expected an attribute 'timestamp' at every image, got none at {names[0]}")
        flows = sorted(file["flow"]) if "flow" in file else []
        places = np.searchsorted(times, stamps)
        for i in range(1, len(names)):
            if not start <= stamps[i - 1] - stamps[0] < end:
                continue
            part = slice(places[i - 1], places[i])
            frame = file["images"][names[i]][()]
            columns = {field: group[f"{field}s"][part] for field in "xyp"}
            held = as_events(columns | {"t": times[part]}, time_unit="s")
            span: Any = (stamps[i - 1] * 1e6, stamps[i] * 1e6) if window == "frames" else "events"
            voxel = events_to_voxel(held, frame.shape[:2], bins, representation, span)
            flow = file["flow"][flows[i - 1]][()] if flows else None
            yield Window(voxel, frame if frame.ndim == 2 else frame[..., 0], flow, len(held))


@torch.no_grad()
def evaluate(
    model: nn.Module, path: str | os.PathLike[str], *, bins: int = 5, device: str = "cpu", perceptual: Any = None,
    legacy_ssim: bool = False, **how: Any,
) -> dict[str, float]:  # fmt: skip
    """Return a network's mean errors on a recording; its state is kept from window to window.

    Args:
        model: With ``task`` ``"reconstruction"`` or ``"flow"``.
        path: See :func:`write_recording`.
        bins: Of a voxel grid.
        device: Where.
        perceptual: A perceptual metric, for instance ``losses.lpips("alex")``.
        legacy_ssim: As published tables have it.
        **how: See :func:`read_windows`.

    Returns:
        ``windows``, and ``mse``, ``ssim`` (and ``perceptual``), or ``epe``, ``over_1px``, ``over_3px``, dense and
        sparse.

    Raises:
        ValueError: A flow network meets a recording without flow, or there is no window.

    Source:
        arXiv 2505.16797, section 4.
    """
    model = model.to(device).eval()
    task = getattr(model, "task", "reconstruction")
    found: list[dict[str, float]] = []
    state: Any = None
    for part in read_windows(path, bins, **how):
        voxel = torch.from_numpy(part.voxel)[None].to(device)
        output, state = model(voxel, state)
        if task == "reconstruction":
            target = torch.from_numpy(part.frame)[None, None].float().to(device) / 255
            found.append(frame_errors(output.float(), target, perceptual, legacy_ssim=legacy_ssim))
            continue
        if part.flow is None:
            raise ValueError(f"{path}: expected flow, since {type(model).__name__} predicts it, got none")
        events = torch.from_numpy(np.abs(part.voxel).sum(axis=0) > 0)[None].to(device)
        found.append(flow_errors(output.float(), torch.from_numpy(part.flow)[None].to(device), events))
    if not found:
        raise ValueError(f"{path}: expected windows between start and end, got none")
    means = {name: statistics.fmean(v for row in found if (v := row[name]) == v) for name in found[0]}
    return {"windows": len(found), **means}
