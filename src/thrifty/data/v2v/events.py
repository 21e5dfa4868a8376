"""Event streams: one array type, their voxel grids (two conventions, same call), and their export from frames.

Paper: arXiv 2505.16797, section 3.1 (discrete), Zhu et al., CVPR 2019, and Rebecq et al., CVPR 2019 (interpolated).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from thrifty._common.checks import one_of, whole
from thrifty.data.v2v import sensor
from thrifty.data.v2v.camera import EventCamera, EventCameraSampler, draw_seeds
from thrifty.data.v2v.intensity import Channels, checked_frames, log_intensity, log_table

#: An event: column, row, time in microseconds, and polarity in {-1, 1}.
EVENT = np.dtype([("x", "<u2"), ("y", "<u2"), ("t", "<i8"), ("p", "i1")])

TimeUnit = Literal["us", "ms", "s", "ns"]
_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "ns": 1e-3}
_NAMES = {"x": ("x", "xs"), "y": ("y", "ys"), "t": ("t", "ts", "timestamp"), "p": ("p", "ps", "polarity", "on")}


def as_events(
    events: Any, *, time_unit: TimeUnit | None = None, sensor_size: tuple[int, int] | None = None
) -> NDArray[Any]:
    """Return events as one array of (x, y, t, p), sorted by time; the caller's stay as they are.

    Times are in microseconds, polarities in {-1, 1}.

    Args:
        events: A structured array with fields x, y, t, p (also xs, ys, ts, ps, polarity, on), or a mapping of arrays.
        time_unit: Of the timestamps; needed where they are floating, else microseconds.
        sensor_size: (height, width); coordinates are held against it.

    Returns:
        A new array of :data:`EVENT`.

    Raises:
        ValueError: A field is missing, lengths differ, a coordinate is outside, a time is not finite or its unit is
            unknown, or polarities are neither {0, 1} nor {-1, 1}.

    Example:
        >>> as_events({"x": [1], "y": [2], "t": [0.5], "p": [False]}, time_unit="ms").tolist()
        [(1, 2, 500, -1)]
    """
    names = events.dtype.names if isinstance(events, np.ndarray) else tuple(events)
    if not names:
        raise ValueError("events: expected a structured array, or a mapping, with x, y, t and p, got plain numbers")
    columns = {}
    for field, candidates in _NAMES.items():
        found = next((name for name in candidates if name in names), None)
        if found is None:
            raise ValueError(f"events: expected a field {field} ({', '.join(candidates)}), got {', '.join(names)}")
        columns[field] = np.asarray(events[found])
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError(f"events: expected columns of one length, got {[len(c) for c in columns.values()]}")
    made = np.empty(len(columns["x"]), EVENT)
    for field, size in zip("xy", (sensor_size or (None, None))[::-1], strict=True):
        place = columns[field]
        if len(place) and (place.min() < 0 or place.max() >= (size or 65536) or (place != np.floor(place)).any()):
            raise ValueError(
                f"events: expected whole {field} in [0, {size or 65536}), got {place.min()} to {place.max()}"
            )
        made[field] = place
    made["t"] = _microseconds(columns["t"], time_unit)
    made["p"] = _signed(columns["p"])
    if len(made) and (np.diff(made["t"]) < 0).any():
        made = made[np.argsort(made["t"], kind="stable")]
    return made


def from_tonic(events: NDArray[Any], sensor_size: tuple[int, int, int]) -> tuple[NDArray[Any], tuple[int, int]]:
    """Return tonic's events as ours, and its (width, height, polarities) as (height, width).

    Args:
        events: A structured array with fields x, y, t (microseconds) and p.
        sensor_size: As tonic's data sets name it; how many polarities there are is ignored.

    Returns:
        (events, sensor size).

    Raises:
        ValueError: As :func:`as_events`.

    Example:
        >>> import numpy as np
        >>> theirs = np.array([(3, 1, 10, True)], dtype=[("x", "i2"), ("y", "i2"), ("t", "i8"), ("p", "?")])
        >>> from_tonic(theirs, (4, 2, 2))[1]
        (2, 4)

    Source:
        tonic's structured arrays and its ``sensor_size`` (Lenz et al., "Tonic", 2021).
    """
    size = (int(sensor_size[1]), int(sensor_size[0]))
    return as_events(events, sensor_size=size), size


def events_to_voxel(
    events: Any,
    sensor_size: tuple[int, int],
    num_bins: int = 5,
    mode: Literal["discrete", "interpolated"] = "discrete",
    t_range: tuple[float, float] | Literal["events"] | None = None,
    *,
    time_unit: TimeUnit | None = None,
) -> Float[np.ndarray, "bins h w"]:
    """Put events into a voxel grid.

    Args:
        events: See :func:`as_events`.
        sensor_size: (height, width).
        num_bins: B.
        mode: ``"discrete"``: an event counts in the bin its time falls into; ``"interpolated"``: it is shared by the
            two nearest of B nodes, from the start of the window to its end.
        t_range: The window: (t0, t1) in microseconds, events at or behind t1 are dropped; ``"events"``, from the first
            to the last event, which is included; ``None``: as ``"events"``.
        time_unit: Of the timestamps.

    Returns:
        float32; zeros without an event. Where the window has no length, everything is in bin 0.

    Raises:
        ValueError: ``num_bins`` is below 1, ``t_range`` is reversed, or the events will not do.

    Example:
        >>> stream = {"x": [0, 0, 0], "y": [0, 0, 0], "t": [0, 40, 99], "p": [1, 1, 0]}
        >>> events_to_voxel(stream, (1, 1), 2, t_range=(0, 100)).ravel().tolist()
        [2.0, -1.0]

    Source:
        arXiv 2505.16797, section 3.1 (discrete); Zhu et al., CVPR 2019, and Rebecq et al., CVPR 2019 (interpolated).
    """
    bins = whole("num_bins", num_bins)
    one_of("mode", mode, ("discrete", "interpolated"))
    height, width = (whole("sensor_size", side) for side in sensor_size)
    held = as_events(events, time_unit=time_unit, sensor_size=(height, width))
    grid = np.zeros((bins, height * width), np.float64)
    t0, t1, held = _window(held, t_range)
    if len(held):
        place = held["y"].astype(np.int64) * width + held["x"]
        p = held["p"].astype(np.float64)
        share = (held["t"] - t0) / (t1 - t0) if t1 > t0 else np.zeros(len(held))
        if mode == "discrete":
            b = np.minimum((bins * share).astype(np.int64), bins - 1)
            grid += _add(b * height * width + place, p, grid.size).reshape(grid.shape)
        else:
            at = (bins - 1) * share
            low = np.minimum(at.astype(np.int64), max(bins - 2, 0))
            weight = at - low
            grid += _add(low * height * width + place, p * (1 - weight), grid.size).reshape(grid.shape)
            if bins > 1:
                grid += _add((low + 1) * height * width + place, p * weight, grid.size).reshape(grid.shape)
    return grid.reshape(bins, height, width).astype(np.float32)


def frames_to_events(
    frames: Any,
    timestamps: ArrayLike,
    camera: EventCamera | EventCameraSampler,
    generator: torch.Generator | np.random.Generator | None = None,
    *,
    time_unit: TimeUnit | None = None,
    refractory_us: int = 0,
    gamma: float | Literal["srgb"] = 2.2,
    log_eps: float = 1e-3,
    init: sensor.Init = "uniform",
    value_range: tuple[float, float] | None = None,
    channels: Channels | None = None,
) -> NDArray[Any]:
    """Return the event stream behind the voxel grids, for tools that want one.

    Between two frames the potential moves in a straight line; an event stands where it crosses a threshold.

    Args:
        frames: (frames, h, w), uint8 or floating in [0, 1].
        timestamps: Of every frame, increasing.
        camera: Its parameters, or a sampler.
        generator: Of the camera and of the noise.
        time_unit: Of the timestamps; needed where they are floating, else microseconds.
        refractory_us: A pixel is silent for so long after an event (0: never).
        gamma: As in :class:`~thrifty.data.v2v.VideoToVoxel`.
        log_eps: Likewise.
        init: Likewise.
        value_range: Likewise.
        channels: Likewise.

    Returns:
        (x, y, t, p), t in microseconds, sorted by time; float64 throughout.

    Raises:
        ValueError: Timestamps do not increase, are not one a frame or of an unknown unit, or frames will not do.

    Example:
        >>> frames = np.stack([np.full((2, 2), level, np.uint8) for level in (40, 80)])
        >>> events = frames_to_events(frames, [0, 40_000], EventCamera(0.5, 0.5), np.random.default_rng(0))
        >>> set(events["p"].tolist()), bool((np.diff(events["t"]) >= 0).all())
        ({1}, True)

    Source:
        arXiv 2505.16797, section 3.2; the straight line between two frames is that of ESIM (Rebecq et al., CoRL 2018).
    """
    x = checked_frames(frames, value_range=value_range, channels=channels)
    if len(x) > 1:
        raise ValueError(f"frames: expected one sequence, got {len(x)}")
    times = _microseconds(np.asarray(timestamps), time_unit, name="timestamps")
    if times.shape != (x.shape[1],):
        raise ValueError(f"timestamps: expected one for each of {x.shape[1]} frames, got {times.shape}")
    packets = event_packets(
        [x[0]], times, camera, generator, refractory_us=refractory_us, gamma=gamma, log_eps=log_eps, init=init
    )
    return np.concatenate(list(packets))


def event_packets(
    blocks: Iterable[Any],
    times: NDArray[np.int64],
    camera: EventCamera | EventCameraSampler,
    generator: torch.Generator | np.random.Generator | None = None,
    *,
    refractory_us: int = 0,
    gamma: float | Literal["srgb"] = 2.2,
    log_eps: float = 1e-3,
    init: sensor.Init = "uniform",
) -> Iterator[NDArray[Any]]:
    """Yield the events of :func:`frames_to_events` block by block, so that a long video is never held.

    Args:
        blocks: Grey frames (frames, h, w) that follow one another.
        times: Of all frames, microseconds, increasing.
        camera: Its parameters, or a sampler.
        generator: Of the camera and of the noise.
        refractory_us: A pixel is silent for so long after an event.
        gamma: As in :class:`~thrifty.data.v2v.VideoToVoxel`.
        log_eps: Likewise.
        init: Likewise.

    Yields:
        For every block, the events up to its last frame.
    """
    whole("refractory_us", refractory_us, least=0)
    if not (np.diff(times) > 0).all():
        raise ValueError(f"timestamps: expected times that increase, got {times.tolist()[:6]} us")
    drawn = (camera if isinstance(camera, EventCamera) else camera.sample(1, generator)).spread(1)
    state: sensor.SensorState | None = None
    last: dict[int, int] = {}
    done = 0
    for block in blocks:
        x = checked_frames(block, least=1, begins=False, channels="grey")
        table = torch.tensor(log_table(gamma, log_eps)) if x.dtype == torch.uint8 else None
        logs = x if table is not None else log_intensity(x.double(), gamma, log_eps)
        if state is None:
            first = logs[:, 0] if table is None else table[logs[:, 0].int()]
            state, logs = sensor.begin(first, drawn, draw_seeds(generator, 1), init), logs[:, 1:]
        state, ((interval, pixel, polarity, share),) = sensor.list_numba(state, logs.contiguous(), table)
        interval = interval + done
        done += logs.shape[1]
        made = np.empty(len(pixel), EVENT)
        made["y"], made["x"] = np.divmod(pixel, x.shape[-1])
        made["t"] = np.rint(times[interval] + share * (times[interval + 1] - times[interval]))
        made["p"] = polarity
        order = np.argsort(made["t"], kind="stable")
        made, pixel = made[order], pixel[order]
        yield made[_awake(pixel, made["t"], refractory_us, last)] if refractory_us else made


def _awake(pixel: NDArray[np.int64], t: NDArray[np.int64], silence: int, last: dict[int, int]) -> NDArray[np.bool_]:
    """Tell which events are at least ``silence`` behind the last one kept of their pixel; ``last`` is kept up."""
    kept = np.empty(len(pixel), bool)
    for i, (p, now) in enumerate(zip(pixel.tolist(), t.tolist(), strict=True)):
        kept[i] = p not in last or now - last[p] >= silence
        if kept[i]:
            last[p] = now
    return kept


def _window(held: NDArray[Any], t_range: Any) -> tuple[float, float, NDArray[Any]]:
    if t_range is None or (isinstance(t_range, str) and t_range == "events"):
        return (float(held["t"][0]), float(held["t"][-1]), held) if len(held) else (0.0, 0.0, held)
    if isinstance(t_range, str) or len(t_range) != 2 or not t_range[0] <= t_range[1]:
        raise ValueError(f"t_range: expected (t0, t1) with t0 <= t1, 'events' or None, got {t_range!r}")
    t0, t1 = map(float, t_range)
    inside = (held["t"] >= t0) & ((held["t"] < t1) | (t0 == t1) & (held["t"] == t0))
    return t0, t1, held[inside]


def _add(place: NDArray[np.int64], weight: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return np.asarray(np.bincount(place, weight, minlength=size), np.float64)


def _microseconds(t: NDArray[Any], unit: str | None, name: str = "events") -> NDArray[np.int64]:
    if unit is not None:
        one_of("time_unit", unit, tuple(_UNITS))
    if len(t) == 0:
        return np.zeros(0, np.int64)
    if t.dtype.kind == "f":
        if unit is None:
            raise ValueError("time_unit: expected one of 'us', 'ms', 's', 'ns' for floating timestamps, got none")
        if not np.isfinite(t).all():
            raise ValueError(f"{name}: expected finite timestamps, got NaN or infinity")
    elif t.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected timestamps that are numbers, got {t.dtype}")
    if unit in (None, "us") and t.dtype.kind != "f":
        return t.astype(np.int64)
    return np.rint(t.astype(np.float64) * _UNITS[unit or "us"]).astype(np.int64)


def _signed(p: NDArray[Any]) -> NDArray[np.int8]:
    values = set(np.unique(p).tolist())
    if not (values <= {0, 1} or values <= {-1, 1}):
        raise ValueError(f"events: expected polarities in {{0, 1}} or {{-1, 1}}, got {sorted(values)[:5]}")
    signed: NDArray[np.int8] = np.where(np.asarray(p) > 0, 1, -1).astype(np.int8)
    return signed
