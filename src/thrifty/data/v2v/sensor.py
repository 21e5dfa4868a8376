"""The sensor's state, and what it does to frames: in numba on the CPU, in torch anywhere.

Both give the same counts, bit for bit, whatever the noise: see :mod:`thrifty.data.v2v.noise`. Paper: arXiv 2505.16797,
section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from thrifty.data.v2v import kernels, noise
from thrifty.data.v2v.camera import EventCamera

Polarity = Literal["net", "split", "abs"]
Init = Literal["uniform", "triangular"]
POLARITIES: dict[str, int] = {"net": kernels.NET, "split": kernels.SPLIT, "abs": kernels.ABS}


@dataclass(frozen=True)
class SensorState:
    """Everything that a sensor carries from one frame to the next.

    Args:
        potential: What has built up since the last event, (n, h, w).
        log_previous: Logarithm of the last frame, (n, h, w).
        hot: Drift of every pixel in every frame, of hot ones and by leaks, (n, h, w); ``None`` where none drifts.
        seeds: Of the noise, one an item.
        frame: Frames seen so far, the first one apart.
        camera: Parameters of every item.

    Example:
        >>> state = begin(torch.zeros(1, 2, 2), EventCamera(0.2, 0.2), np.array([0]))
        >>> kept = state.clone()
        >>> state.frame, kept.potential is state.potential, bool((kept.potential.abs() < 0.2).all())
        (0, False, True)

    Source:
        arXiv 2505.16797, section 3.2.
    """

    potential: Tensor
    log_previous: Tensor
    hot: Tensor | None
    seeds: NDArray[np.int64]
    frame: int
    camera: EventCamera

    def clone(self) -> SensorState:
        """Return a state that can be advanced while this one stays."""
        return replace(self, potential=self.potential.clone(), log_previous=self.log_previous.clone())


def begin(
    log_first: Float[Tensor, "n h w"], camera: EventCamera, seeds: NDArray[np.int64], init: Init = "uniform"
) -> SensorState:
    """Return the state of sensors that had been running when the first frame came.

    Args:
        log_first: Logarithm of the first frame.
        camera: One camera an item.
        seeds: One an item.
        init: Law of the potential on (-c_neg, c_pos): uniform, as in the paper, or a triangle that peaks at 0.

    Source:
        arXiv 2505.16797, section 3.2; the triangle is ours.
    """
    n, h, w = log_first.shape
    device, dtype = log_first.device, log_first.dtype
    c_pos, c_neg = _column(camera.c_pos, device, torch.float64), _column(camera.c_neg, device, torch.float64)
    # rounded to float32, the outermost values could reach a threshold
    low, high = -_below(camera.c_neg, device, dtype), _below(camera.c_pos, device, dtype)
    if device.type == "cpu":
        v = torch.empty(n, h * w, dtype=dtype)
        for item in range(n):
            keys = noise.frame_keys(int(seeds[item]), noise.INITIAL, 1)[0]
            limits = (low[item, 0].numpy()[()], high[item, 0].numpy()[()])
            law = (camera.c_pos[item], camera.c_neg[item], *limits, init == "triangular")
            kernels.uniform_start(v[item].numpy(), keys, *law)
    else:
        v = _start_in_torch(noise.item_keys(seeds, noise.INITIAL, device), h * w, c_pos, c_neg, init)
        v = v.to(dtype).clamp(low, high)
    hot = None
    if bool(((camera.hot_fraction > 0) & (camera.hot_std > 0)).any()):
        chosen = noise.torch_uniform(noise.item_keys(seeds, noise.HOT_MASK, device), h * w)
        chosen = chosen < _column(camera.hot_fraction, device, torch.float64)
        table = torch.from_numpy(noise.quantiles().copy()).to(device)
        drift = noise.torch_gaussian(noise.item_keys(seeds, noise.HOT_VALUE, device), h * w, table).to(dtype)
        hot = (chosen * drift * _column(camera.hot_std, device, dtype)).view(n, h, w)
    if camera.leak.any():
        leak = _column(camera.leak, device, dtype)[:, :, None]
        hot = leak.expand(n, h, w).contiguous() if hot is None else hot + leak
    return SensorState(v.view(n, h, w).contiguous(), log_first.clone(), hot, seeds, 0, camera)


def _start_in_torch(keys: Tensor, pixels: int, c_pos: Tensor, c_neg: Tensor, init: Init) -> Tensor:
    """Return what ``kernels.uniform_start`` fills in, before it is rounded."""
    u = noise.torch_uniform(keys, pixels)
    if init == "uniform":
        return u * (c_pos + c_neg) - c_neg
    rising = torch.sqrt(u * c_neg * (c_pos + c_neg)) - c_neg
    return torch.where(rising < 0, rising, c_pos - torch.sqrt((1 - u) * c_pos * (c_pos + c_neg)))


def advance_numba(
    state: SensorState, frames: Tensor, table: Tensor | None, out: Tensor, *, per_bin: int, polarity: int,
    external: bool, limit: float,
) -> tuple[SensorState, int]:  # fmt: skip
    """Advance a state through frames on the CPU, adding counts to ``out``.

    Args:
        state: Advanced in place.
        frames: (n, intervals, h, w): grey levels for ``table``, or logarithms without one.
        table: Logarithms of grey levels, in the state's type.
        out: (n, bins, channels, h, w), int16 or floating.
        per_bin: Intervals of a bin.
        polarity: Of :data:`POLARITIES`.
        external: Noise goes onto the counts.
        limit: The largest count that ``out`` holds.

    Returns:
        The state after the last frame, and how many counts were cut at the limit.
    """
    arguments = _numba_arguments(state, frames, table)
    counted = out.flatten(3).numpy()

    def run(item: int, begin: int, end: int) -> int:
        cut: int = kernels.count_events(begin, end, *arguments(item), counted[item], per_bin, polarity, external, limit)
        return cut

    n, intervals, h, w = frames.shape
    cut = sum(kernels.over_pixels(run, n, h * w, intervals))
    return replace(state, frame=state.frame + intervals), cut


def interpolate_numba(
    state: SensorState, frames: Tensor, table: Tensor | None, out: Tensor, *, per_voxel: int, bins: int
) -> SensorState:
    """Advance a state through frames on the CPU, sharing events between bins: see ``kernels.interpolate_events``."""
    arguments = _numba_arguments(state, frames, table)
    shared = out.flatten(2).numpy()

    def run(item: int, begin: int, end: int) -> None:
        kernels.interpolate_events(begin, end, *arguments(item), shared[item], per_voxel, bins)

    n, intervals, h, w = frames.shape
    kernels.over_pixels(run, n, h * w, intervals)
    return replace(state, frame=state.frame + intervals)


def list_numba(state: SensorState, frames: Tensor, table: Tensor | None) -> tuple[SensorState, list[tuple]]:
    """Advance a state through frames on the CPU and list the events of every item: see ``kernels.list_events``."""
    arguments = _numba_arguments(state, frames, table)
    events = [kernels.list_events(*arguments(item)) for item in range(len(frames))]
    return replace(state, frame=state.frame + frames.shape[1]), events


def advance_torch(
    state: SensorState, frames: Tensor, table: Tensor | None, out: Tensor, *, per_bin: int, polarity: int,
    external: bool, limit: float,
) -> tuple[SensorState, int]:  # fmt: skip
    """Do what :func:`advance_numba` does with torch's operators, on any device: a loop over frames alone."""
    n, _, h, w = frames.shape
    step = _TorchStep(state, (n, h, w))
    v, previous = state.potential, state.log_previous
    cut = torch.zeros((), dtype=torch.int64, device=v.device)
    for i in range(frames.shape[1]):
        now = frames[:, i] if table is None else table[frames[:, i].int()]
        v = v + (now - previous)
        if not external:
            v = step.disturb(v, state.frame + 1 + i, step.c_pos, step.c_neg)
        v, count = step.fire(v)
        previous = now
        if external:
            count = step.disturb(count, state.frame + 1 + i, torch.ones_like(step.c_pos), torch.ones_like(step.c_neg))
        kept = count.clamp(-limit, limit)
        cut += (kept != count).sum()
        target = out[:, i // per_bin]
        if polarity == kernels.SPLIT:
            target += torch.stack([kept.clamp(min=0), (-kept).clamp(min=0)], dim=1).to(out.dtype)
        else:
            target[:, 0] += (kept.abs() if polarity == kernels.ABS else kept).to(out.dtype)
    after = replace(state, potential=v, log_previous=previous.clone(), frame=state.frame + frames.shape[1])
    return after, int(cut) if np.isfinite(limit) else 0


def interpolate_torch(
    state: SensorState, frames: Tensor, table: Tensor | None, out: Tensor, *, per_voxel: int, bins: int
) -> SensorState:
    """Do what :func:`interpolate_numba` does with torch's operators; the loop over events ends at the busiest pixel."""
    n, _, h, w = frames.shape
    step = _TorchStep(state, (n, h, w))
    v, previous = state.potential, state.log_previous
    for i in range(frames.shape[1]):
        now = frames[:, i] if table is None else table[frames[:, i].int()]
        reached = step.disturb(v + (now - previous), state.frame + 1 + i, step.c_pos, step.c_neg)
        left, count = step.fire(reached)
        voxel = out[:, i // per_voxel * bins : (i // per_voxel + 1) * bins]
        threshold = torch.where(count >= 0, step.c_pos, step.c_neg).double()
        travelled = torch.where(count == 0, torch.ones_like(v), reached - v).double()
        for k in range(1, int(count.abs().max()) + 1):
            share = (count.sign() * k * threshold - v.double()) / travelled
            at = ((i % per_voxel + share) * ((bins - 1) / per_voxel)).clamp(0, bins - 1)
            low = at.long().clamp(max=max(bins - 2, 0))
            fires = (count.abs() >= k) * count.sign().double()
            weight = at - low if bins > 1 else torch.zeros_like(at)
            voxel.scatter_add_(1, low[:, None], (fires * (1 - weight)).to(out.dtype)[:, None])
            if bins > 1:
                voxel.scatter_add_(1, low[:, None] + 1, (fires * weight).to(out.dtype)[:, None])
        v, previous = left, now
    return replace(state, potential=v, log_previous=previous.clone(), frame=state.frame + frames.shape[1])


class _TorchStep:
    """Steps 2 to 4 for a batch, with its cameras as tensors."""

    def __init__(self, state: SensorState, shape: tuple[int, int, int]) -> None:
        device, dtype = state.potential.device, state.potential.dtype
        camera = state.camera
        self.c_pos = _column(camera.c_pos, device, dtype)[:, :, None]
        self.c_neg = _column(camera.c_neg, device, dtype)[:, :, None]
        self.sigma = _column(camera.noise_std, device, dtype)[:, :, None] if camera.noise_std.any() else None
        self.hot, self.seeds, self.shape = state.hot, state.seeds, shape
        self.table = torch.from_numpy(noise.quantiles().copy()).to(device) if self.sigma is not None else None
        limits = np.array([[noise.jump_limit(share)] for share in camera.shot])
        self.shot = torch.from_numpy(limits).to(device) if camera.shot.any() else None

    def disturb(self, x: Tensor, frame: int, up: Tensor, down: Tensor) -> Tensor:
        """Return ``x`` with the noise of one frame, its jumps, and what drifts."""
        n, h, w = self.shape
        if self.sigma is not None and self.table is not None:
            keys = noise.item_keys(self.seeds, frame, x.device)
            drawn = noise.torch_gaussian(keys, h * w, self.table).view(n, h, w)
            x = x + self.sigma * drawn.to(self.sigma.dtype)
        if self.shot is not None:
            keys = noise.item_keys(self.seeds, noise.SHOT + frame, x.device)
            jumps = noise.torch_jumps(keys, self.shot, h * w).view(n, h, w)
            x = x + torch.where(jumps > 0, up, torch.where(jumps < 0, -down, 0))
        return x if self.hot is None else x + self.hot

    def fire(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the potential that is left, and the signed counts."""
        c = torch.where(v >= 0, self.c_pos, self.c_neg)
        n = torch.trunc(v / c)
        v = v - n * c
        up, down = v >= self.c_pos, v <= -self.c_neg
        n = n + up.to(n.dtype) - down.to(n.dtype)
        v = torch.where(up, v - self.c_pos, v)
        return torch.where(down, v + self.c_neg, v), n


def _numba_arguments(state: SensorState, frames: Tensor, table: Tensor | None):  # type: ignore[no-untyped-def]
    """Return what gives the kernels' arguments of one item, from ``frames`` to ``gaussian``."""
    real = np.float64 if state.potential.dtype == torch.float64 else np.float32
    flat = frames.flatten(2).numpy()
    v, previous = state.potential.flatten(1).numpy(), state.log_previous.flatten(1).numpy()
    hot = None if state.hot is None else state.hot.flatten(1).numpy()
    levels = np.empty(0, real) if table is None else table.numpy()
    camera = state.camera

    def arguments(item: int) -> tuple:
        sigma, shot = camera.noise_std[item], noise.jump_limit(camera.shot[item])
        keys = np.zeros((frames.shape[1], 4), np.uint32)
        for drawn, column, place in ((sigma, 0, 0), (shot, 2, noise.SHOT)):
            if drawn:
                seed, first = int(state.seeds[item]), place + state.frame + 1
                keys[:, column : column + 2] = noise.frame_keys(seed, first, len(keys))
        return (
            flat[item], levels, v[item], previous[item],
            np.empty(0, real) if hot is None else hot[item], real(camera.c_pos[item]), real(camera.c_neg[item]),
            real(sigma), np.int64(shot), keys, noise.quantiles(),
        )  # fmt: skip

    return arguments


def _column(values: NDArray[np.float64], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(values.copy()).to(device, dtype)[:, None]


def _below(values: NDArray[np.float64], device: torch.device, dtype: torch.dtype) -> Tensor:
    threshold = _column(values, device, dtype)
    return torch.nextafter(threshold, torch.zeros_like(threshold))
