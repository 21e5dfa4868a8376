"""Recordings with frames, read from frame to frame, and evaluation on them.

Layout: see :mod:`thrifty.data.v2v.writing`; metrics: arXiv 2505.16797, section 4.
"""

from __future__ import annotations

import math
import os
import re
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
from thrifty.data.v2v.binning import normalized
from thrifty.data.v2v.event_files import event_columns, opened_hdf5
from thrifty.data.v2v.events import as_events, events_to_voxel
from thrifty.data.v2v.intensity import Channels, to_grey
from thrifty.data.v2v.metrics import flow_errors, frame_errors
from thrifty.data.v2v.saving import GRIDS
from thrifty.data.v2v.writing import place_of

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


def read_windows(
    path: str | os.PathLike[str],
    bins: int = 5,
    *,
    representation: Literal["discrete", "interpolated"] = "discrete",
    normalize: bool = False,
    window: Literal["frames", "events"] = "frames",
    start: float = 0.0,
    end: float = float("inf"),
    channels: Channels | None = None,
) -> Iterator[Window]:
    """Read a recording from frame to frame; no more than one window is held.

    Times are seconds where they are floating, and microseconds where they are whole.

    Args:
        path: See :func:`~thrifty.data.v2v.writing.write_recording`.
        bins: Of a voxel grid.
        representation: Its kind.
        normalize: Divide it by robust maxima; see :func:`~thrifty.data.v2v.normalized`.
        window: Bins divide the time between the two frames, or between the first and last event between them (as
            the paper's test code does).
        start: Seconds behind the first frame from which on windows are read; data sets are cut there by convention.
        end: Seconds at which they end.
        channels: Their order in colour images.

    Yields:
        A window for every frame but the first.

    Raises:
        ValueError: There are fewer than two frames, a frame has no time, is in colour without ``channels``, or is not
            of the first one's size, or events are not sorted by time.
    """
    one_of("window", window, ("frames", "events"))
    with opened_hdf5(path) as file:
        images = _in_time(path, file)
        columns, flows = event_columns(file), sorted(file["flow"], key=_number) if "flow" in file else []
        if flows and len(flows) < len(images) - 1:
            raise ValueError(f"{path}: expected a flow for every two images, got {len(flows)} for {len(images)}")
        place = [place_of(columns["t"], stamp, image.attrs.get("event_idx")) for stamp, image in images]
        for i in range(1, len(images)):
            (before, _), (now, image) = images[i - 1 : i + 1]
            if not start <= (before - images[0][0]) / 1e6 < end:
                continue
            part = {field: column[place[i - 1] : place[i]] for field, column in columns.items()}
            _check_sorted(path, part["t"], before, now)
            held = as_events(part, time_unit="s" if part["t"].dtype.kind == "f" else "us")
            frame = _grey(path, image, channels)
            voxel = events_to_voxel(
                held, frame.shape, bins, representation, (before, now) if window == "frames" else "events"
            )
            if normalize:
                voxel = normalized(torch.from_numpy(voxel)[None])[0].numpy()
            flow = file["flow"][flows[i - 1]][()] if flows else None
            if flow is not None and flow.shape != (2, *frame.shape):
                raise ValueError(f"{path}: expected flow of (2, {frame.shape[0]}, {frame.shape[1]}), got {flow.shape}")
            yield Window(voxel, frame, flow, len(held))


def _in_time(path: Any, file: Any) -> list[tuple[float, Any]]:
    """Return the images of a recording and their times in microseconds, in the order of these."""
    if "images" not in file:
        raise ValueError(f"{path}: expected a group 'images', got {', '.join(file)}")
    found = []
    for name, image in file["images"].items():
        stamp = image.attrs.get("timestamp")
        if stamp is None:
            raise ValueError(f"{path}: expected an attribute 'timestamp' at every image, got none at {name}")
        found.append((float(stamp) * (1 if np.asarray(stamp).dtype.kind in "iu" else 1e6), image))
    if len(found) < 2:
        raise ValueError(f"{path}: expected at least two images, got {len(found)}")
    return sorted(found, key=lambda pair: pair[0])


def _number(name: str) -> int:
    """Return the number at the end of a name: ``flow9`` comes before ``flow10``."""
    digits = re.search(r"(\d*)$", name)
    return int(digits.group(1) or 0) if digits else 0


def _check_sorted(path: Any, times: NDArray[Any], before: float, now: float) -> None:
    micro = np.rint(times * 1e6) if times.dtype.kind == "f" else times
    if len(micro) and ((np.diff(micro) < 0).any() or micro[0] < before or micro[-1] > now):
        raise ValueError(f"{path}: expected events sorted by time, got others between {before:g} and {now:g} us")


def _grey(path: Any, image: Any, channels: Channels | None) -> NDArray[np.uint8]:
    frame: NDArray[np.uint8] = image[()]
    if frame.ndim == 3 and frame.shape[-1] == 1:
        frame = frame[..., 0]
    if frame.ndim == 3 and channels is not None:
        frame = to_grey(torch.from_numpy(frame), channels).numpy()
    if frame.ndim != 2 or frame.dtype != np.uint8:
        raise ValueError(
            f"{path}: expected images of uint8, (h, w), or (h, w, 3) with channels='rgb' or 'bgr', got {image.name} of "
            f"{frame.dtype} {frame.shape}"
        )
    return frame


@torch.no_grad()
def evaluate(
    model: nn.Module, path: str | os.PathLike[str], *, device: str = "cpu", perceptual: Any = None,
    legacy_ssim: bool = False, bins: int | None = None, representation: str | None = None,
    normalize: bool | None = None, **how: Any,
) -> dict[str, float]:  # fmt: skip
    """Return a network's mean errors on a recording; its state is kept from window to window.

    Args:
        model: With ``task`` ``"reconstruction"`` or ``"flow"``.
        path: See :func:`~thrifty.data.v2v.writing.write_recording`.
        device: Where.
        perceptual: A perceptual metric, for instance ``losses.lpips("alex")``.
        legacy_ssim: As published tables have it.
        bins: Of a voxel grid; ``None``: what the network was trained on, if it says so (``model.grids``).
        representation: Likewise.
        normalize: Likewise; every voxel grid by itself, since those that follow are not known yet.
        **how: See :func:`read_windows`.

    Returns:
        ``windows``, and ``mse``, ``ssim`` (and ``perceptual``), or ``epe``, ``over_1px``, ``over_3px``, dense and
        sparse; NaN where no pixel counts.

    Raises:
        ValueError: A flow network meets a recording without flow, or there is no window.

    Source:
        arXiv 2505.16797, section 4.
    """
    grids: dict[str, Any] = GRIDS | getattr(model, "grids", {})
    for name, value in (("num_bins", bins), ("representation", representation), ("normalize", normalize)):
        grids[name] = grids[name] if value is None else value
    training, model = model.training, model.to(device).eval()
    task = getattr(model, "task", "reconstruction")
    found: list[dict[str, float]] = []
    state: Any = None
    bins = grids.pop("num_bins")
    for part in read_windows(path, bins, **grids, **how):
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
    model.train(training)
    if not found:
        raise ValueError(f"{path}: expected windows between start and end, got none")
    kept = {name: [v for row in found if (v := row[name]) == v] for name in found[0]}
    means = {name: statistics.fmean(values) if values else math.nan for name, values in kept.items()}
    return {"windows": len(found), **means}
