"""Frames to event-camera voxel grids, on the fly: what a data loader, or a training step on a GPU, calls.

Paper: arXiv 2505.16797, sections 3.2 and 3.3.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thrifty._common.checks import one_of, whole
from thrifty.data.v2v import sensor
from thrifty.data.v2v.binning import normalized
from thrifty.data.v2v.camera import EventCamera, EventCameraSampler, draw_seeds
from thrifty.data.v2v.intensity import Channels, checked_frames, log_intensity, log_table
from thrifty.data.v2v.sensor import Init, Polarity, SensorState

_log = logging.getLogger(__name__)

#: The largest count that int16 holds.
INT16 = 32767.0

_NUMPY = {torch.int16: np.int16, torch.float32: np.float32, torch.float64: np.float64}


class VideoToVoxel(nn.Module):
    """Turns frames into voxel grids of signed event counts, as an event camera would have seen them.

    It has no weights. On the CPU it runs in numba, elsewhere in torch; both give the same bits, in one call or in
    chunks. A camera that is drawn afresh for every item is the default.

    Args:
        num_bins: Bins of a voxel grid, B.
        frames_per_bin: Frame intervals of a bin, f.
        camera: One camera, one a batch item, or a sampler that draws them.
        gamma: Of the video; see :func:`~thrifty.data.v2v.log_table`.
        log_eps: Likewise.
        full_range: Expand limited-range video.
        init: Potential at the first frame: ``"uniform"`` (the paper's) or ``"triangular"``, nearer to the steady state.
        burn_in: Noisy frames, all like the first, that pass before it.
        noise: ``"potential"``: noise meets later events; ``"external"``: it is added to finished counts (an ablation).
        representation: ``"discrete"``: counts; ``"interpolated"``: every event is shared by two bins, its time taken
            from a straight line (not in the paper).
        polarity: ``"net"``: signed; ``"split"``: (positive, negative) on an axis behind the bins; ``"abs"``: their sum.
        normalize: Divide by robust maxima of the sequence; see :func:`~thrifty.data.v2v.normalized`.
        dtype: Of potential and voxels: float32, or float64 for exactness.
        backend: ``"auto"``, ``"numba"`` or ``"torch"``.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> frames = torch.randint(0, 256, (2, 11, 24, 32), dtype=torch.uint8)
        >>> v2v = VideoToVoxel(num_bins=5)
        >>> v2v(frames, generator=torch.Generator().manual_seed(0)).shape
        torch.Size([2, 2, 5, 24, 32])

    Source:
        arXiv 2505.16797, sections 3.2 and 3.3.
    """

    def __init__(
        self,
        num_bins: int = 5,
        frames_per_bin: int = 1,
        camera: EventCamera | EventCameraSampler | Any = None,
        gamma: float | Literal["srgb"] = 2.2,
        log_eps: float = 1e-3,
        *,
        full_range: bool = False,
        init: Init = "uniform",
        burn_in: int = 0,
        noise: Literal["potential", "external"] = "potential",
        representation: Literal["discrete", "interpolated"] = "discrete",
        polarity: Polarity = "net",
        normalize: bool = False,
        dtype: torch.dtype = torch.float32,
        backend: Literal["auto", "numba", "torch"] = "auto",
    ) -> None:
        super().__init__()
        self.num_bins, self.frames_per_bin = whole("num_bins", num_bins), whole("frames_per_bin", frames_per_bin)
        self.burn_in = whole("burn_in", burn_in, least=0)
        one_of("init", init, ("uniform", "triangular"))
        one_of("noise", noise, ("potential", "external"))
        one_of("representation", representation, ("discrete", "interpolated"))
        one_of("polarity", polarity, tuple(sensor.POLARITIES))
        one_of("dtype", dtype, (torch.float32, torch.float64))
        one_of("backend", backend, ("auto", "numba", "torch"))
        if (noise == "external" or representation == "interpolated") and polarity != "net":
            raise ValueError(f"polarity: expected 'net' with external noise or interpolated bins, got {polarity!r}")
        if noise == "external" and representation == "interpolated":
            raise ValueError("noise: expected 'potential' with interpolated bins, got 'external'")
        self.camera = EventCameraSampler() if camera is None else camera
        self.gamma, self.log_eps, self.full_range = gamma, log_eps, full_range
        self.init, self.noise, self.representation, self.polarity = init, noise, representation, polarity
        self.normalize, self.dtype, self.backend = normalize, dtype, backend
        self.register_buffer(
            "_table", torch.tensor(log_table(gamma, log_eps, full_range=full_range), dtype=dtype), persistent=False
        )
        self._stream: SensorState | None = None

    @property
    def frames_per_voxel(self) -> int:
        """Frame intervals of one voxel grid, B f."""
        return self.num_bins * self.frames_per_bin

    def forward(
        self,
        frames: Tensor,
        generator: torch.Generator | None = None,
        state: SensorState | None = None,
        return_info: bool = False,
        *,
        camera: EventCamera | None = None,
        seeds: NDArray[np.int64] | None = None,
        value_range: tuple[float, float] | None = None,
        channels: Channels | None = None,
    ) -> Any:
        """Turn frames into voxel grids.

        Args:
            frames: (n, frames, h, w), uint8 or floating in [0, 1]: one more frame than B f L intervals, or as many if
                ``state`` brings the frame before them.
            generator: Of the camera and of the noise; ``None`` takes fresh entropy.
            state: What an earlier call left, to go on with.
            return_info: Also return ``{"camera": EventCamera, "state": SensorState}``.
            camera: In place of the module's own.
            seeds: Of the noise, one an item, in place of ``generator``.
            value_range: Black and white of floating frames.
            channels: ``"rgb"`` or ``"bgr"`` for colour frames with channels last; ``"grey"`` for grey ones whose shape
                looks like that of colour.

        Returns:
            Voxel grids (n, L, B, h, w), with an axis of two behind B for ``polarity="split"``.

        Raises:
            ValueError: The number of frames does not fit, or a value will not do.
        """
        x = checked_frames(frames, value_range=value_range, channels=channels, least=1, begins=state is None)
        intervals = x.shape[1] - (state is None)
        if intervals < self.frames_per_voxel or intervals % self.frames_per_voxel:
            extra = " + 1" if state is None else ""
            raise ValueError(
                f"frames: expected a multiple of {self.num_bins} bins x {self.frames_per_bin} frames{extra}, "
                f"got {x.shape[1]}"
            )
        x, state = self._enter(x, generator, state, camera, seeds)
        n, _, h, w = x.shape
        grids = intervals // self.frames_per_voxel
        channels_out = 2 if self.polarity == "split" else 1
        shape = (n, grids * self.num_bins, channels_out, h, w)
        out = self._room(x, shape, self.dtype, filled=self.representation == "discrete")
        if self.representation == "interpolated":
            step = sensor.interpolate_numba if self._in_numba(x) else sensor.interpolate_torch
            per_voxel = self.frames_per_voxel
            state = step(state, *self._logs(x), out[:, :, 0], per_voxel=per_voxel, bins=self.num_bins)
        else:
            state, _ = self._count(state, x, out, self.frames_per_bin, float("inf"))
        voxels = out.view(n, grids, self.num_bins, channels_out, h, w)
        voxels = voxels if self.polarity == "split" else voxels.squeeze(3)
        if self.normalize:
            voxels = normalized(voxels)
        return (voxels, {"camera": state.camera, "state": state}) if return_info else voxels

    def counts(
        self,
        frames: Tensor,
        generator: torch.Generator | None = None,
        state: SensorState | None = None,
        *,
        camera: EventCamera | None = None,
        value_range: tuple[float, float] | None = None,
        channels: Channels | None = None,
    ) -> tuple[Tensor, SensorState]:
        """Return the event counts of every interval, (n, intervals, h, w) int16, and the state behind them.

        Arguments as in :meth:`forward`, any number of frames. Counts beyond int16 are cut there, with a warning in the
        log; external noise gives floating counts.
        """
        x = checked_frames(
            frames, value_range=value_range, channels=channels, least=1 if state else 2, begins=state is None
        )
        x, state = self._enter(x, generator, state, camera)
        n, intervals, h, w = x.shape
        external = self.noise == "external"
        shape = (n, intervals, 2 if self.polarity == "split" else 1, h, w)
        out = self._room(x, shape, self.dtype if external else torch.int16, filled=True)
        safe = external or self._most(x, state) < INT16
        state, cut = self._count(state, x, out, 1, float("inf") if safe else INT16)
        if cut:
            _log.warning("%d counts were beyond int16 and were cut at %d", cut, int(INT16))
        return out if self.polarity == "split" else out[:, :, 0], state

    def push(
        self, frame: Tensor, generator: torch.Generator | None = None, *, camera: EventCamera | None = None
    ) -> Tensor | None:
        """Take the next frame of a stream, (h, w) or (n, h, w), and return its counts, int16 of the same shape.

        The first frame only starts the stream, with ``generator`` and ``camera`` as in :meth:`forward`, and gives
        ``None``. :meth:`reset` ends it.
        """
        x = checked_frames(frame[None, None] if frame.ndim == 2 else frame[:, None], least=1)
        if self._stream is None:
            _, self._stream = self._enter(x, generator, None, camera)
            return None
        counted, self._stream = self.counts(x, state=self._stream)
        return counted[0, 0] if frame.ndim == 2 else counted[:, 0]

    def reset(self) -> None:
        """Forget the stream that :meth:`push` was fed."""
        self._stream = None

    def _enter(
        self,
        x: Tensor,
        generator: torch.Generator | None,
        state: SensorState | None,
        camera: EventCamera | None,
        seeds: NDArray[np.int64] | None = None,
    ) -> tuple[Tensor, SensorState]:
        """Return the frames behind each interval, and the state before the first one."""
        n, size = len(x), tuple(x.shape[-2:])
        if state is not None:
            held = tuple(state.potential.shape)
            if held != (n, *size):
                raise ValueError(f"frames: expected {held[0]} items of size {held[1:]} as before, got {n} of {size}")
            return x, state.clone()
        law: Any = camera or self.camera
        if not isinstance(law, EventCamera) and not hasattr(law, "sample"):
            raise ValueError(f"camera: expected a camera for these frames, got {type(law).__name__}, a law by video")
        drawn = law if isinstance(law, EventCamera) else law.sample(n, generator)
        first, table = self._logs(x[:, :1])
        logs = first[:, 0] if table is None else table[first[:, 0].int()]
        seeds = draw_seeds(generator, n) if seeds is None else seeds
        state = sensor.begin(logs, drawn.spread(n), seeds, self.init)
        if self.burn_in:
            quiet = x[:, :1].expand(-1, self.burn_in, -1, -1).contiguous()
            sink = torch.zeros(n, self.burn_in, 1, *size, dtype=self.dtype, device=x.device)
            state = replace(state, frame=-self.burn_in)
            run = sensor.advance_numba if self._in_numba(x) else sensor.advance_torch
            state, _ = run(state, *self._logs(quiet), sink, per_bin=1, polarity=0, external=False, limit=float("inf"))
        return x[:, 1:], state

    def _count(self, state: SensorState, x: Tensor, out: Tensor, per_bin: int, limit: float) -> tuple[SensorState, int]:
        run = sensor.advance_numba if self._in_numba(x) else sensor.advance_torch
        return run(
            state, *self._logs(x), out, per_bin=per_bin, polarity=sensor.POLARITIES[self.polarity],
            external=self.noise == "external", limit=limit,
        )  # fmt: skip

    def _most(self, x: Tensor, state: SensorState) -> float:
        """Return more than any pixel can count in an interval: what spares most sequences the check of int16."""
        table: Any = self._table
        most = 1.0 if x.is_floating_point() else float(table.max())
        least = float(np.log(self.log_eps)) if x.is_floating_point() else float(table.min())
        hot = 0.0 if state.hot is None else float(state.hot.abs().max())
        reach = max(most - least, float(state.log_previous.max()) - least) + 6 * state.camera.noise_std.max() + hot
        return float(reach / min(state.camera.c_pos.min(), state.camera.c_neg.min())) + 2

    def _room(self, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype, *, filled: bool) -> Tensor:
        """Return a tensor for the result: numba's kernel fills it whole, everything else adds to zeros."""
        if filled and self._in_numba(x):  # numpy asks for huge pages, whose first touch is cheaper
            return torch.from_numpy(np.empty(shape, _NUMPY[dtype]))
        return torch.zeros(shape, dtype=dtype, device=x.device)

    def _logs(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return grey levels and their table, or logarithms and ``None``."""
        if x.dtype == torch.uint8:
            table: Any = self._table
            return x.contiguous(), table.to(x.device)
        return log_intensity(x.to(self.dtype), self.gamma, self.log_eps).contiguous(), None

    def _in_numba(self, x: Tensor) -> bool:
        if self.backend == "numba" and x.device.type != "cpu":
            raise ValueError(f"backend: 'numba' runs on the CPU, got frames on {x.device}")
        return self.backend == "numba" or (self.backend == "auto" and x.device.type == "cpu")
