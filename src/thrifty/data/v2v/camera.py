"""Virtual event cameras: thresholds and noise, fixed, drawn afresh for every sample, or named after real sensors.

Paper: Lou et al., "V2V", arXiv 2505.16797, section 3.3; the laws are those of the released configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

Range = tuple[float, float]

#: The smallest threshold, log units: far below any camera's, and far above what float32 rounds to nothing.
LEAST = 1e-6

#: Parameters that are shares or probabilities.
SHARES = ("hot_fraction", "shot")


@dataclass(frozen=True, eq=False)
class EventCamera:
    """The parameters of one camera, or of one camera a batch item.

    Args:
        c_pos: Contrast threshold of brightening, natural-log units, above 0; a number, or one a batch item.
        c_neg: Likewise of darkening.
        noise_std: Standard deviation of the background noise, log units a frame.
        hot_fraction: Share of pixels that are hot.
        hot_std: Standard deviation of what a hot pixel drifts by in every frame, log units.
        leak: What every pixel drifts by in every frame, log units: leak noise, which fires upwards.
        shot: Probability, a pixel and frame, that the potential jumps by one threshold, up or down: shot noise.

    Raises:
        ValueError: There is no camera, a threshold is below :data:`LEAST`, a share is not in [0, 1], a number is not
            finite, or lengths differ.

    Example:
        >>> EventCamera(0.2, 0.25).c_neg
        array([0.25])
        >>> len(EventCamera([0.1, 0.2, 0.4], 0.3))
        3

    Source:
        arXiv 2505.16797, section 3.3.
    """

    c_pos: NDArray[np.float64]
    c_neg: NDArray[np.float64]
    noise_std: NDArray[np.float64]
    hot_fraction: NDArray[np.float64]
    hot_std: NDArray[np.float64]
    leak: NDArray[np.float64]
    shot: NDArray[np.float64]

    def __init__(
        self,
        c_pos: ArrayLike,
        c_neg: ArrayLike,
        noise_std: ArrayLike = 0.0,
        hot_fraction: ArrayLike = 0.0,
        hot_std: ArrayLike = 0.0,
        leak: ArrayLike = 0.0,
        shot: ArrayLike = 0.0,
    ) -> None:
        given = {
            "c_pos": c_pos,
            "c_neg": c_neg,
            "noise_std": noise_std,
            "hot_fraction": hot_fraction,
            "hot_std": hot_std,
            "leak": leak,
            "shot": shot,
        }
        arrays = {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in given.items()}
        sizes = {len(array) for array in arrays.values()} - {1}
        if len(sizes) > 1 or sizes == {0} or any(array.ndim != 1 for array in arrays.values()):
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise ValueError(f"camera: expected one number, or one a batch item, in every field, got {shapes}")
        for name, array in arrays.items():
            low = LEAST if name in ("c_pos", "c_neg") else 0.0
            high = 1.0 if name in SHARES else np.inf
            bad = ~(np.isfinite(array) & (array >= low) & (array <= high))
            if bad.any():
                limit = " and at most 1" if high == 1.0 else ""
                raise ValueError(f"{name}: expected a finite number of at least {low:g}{limit}, got {array[bad][0]}")
            object.__setattr__(self, name, np.broadcast_to(array, (max(sizes, default=1),)))

    def __len__(self) -> int:
        return len(self.c_pos)

    def spread(self, n: int) -> EventCamera:
        """Return the cameras of ``n`` batch items: these, or this one ``n`` times.

        Raises:
            ValueError: There is another number of them.
        """
        if len(self) not in (1, n):
            raise ValueError(f"camera: expected one, or one for each of {n} batch items, got {len(self)}")
        return EventCamera(*(np.broadcast_to(getattr(self, f.name), (n,)) for f in fields(self)))

    @classmethod
    def joined(cls, cameras: Sequence[EventCamera]) -> EventCamera:
        """Return the cameras of several items as those of one batch."""
        return cls(*(np.concatenate([getattr(camera, f.name) for camera in cameras]) for f in fields(cls)))

    def describe(self) -> list[dict[str, float]]:
        """Return the parameters of every item, as JSON holds them."""
        return [{f.name: float(getattr(self, f.name)[i]) for f in fields(self)} for i in range(len(self))]


@dataclass(frozen=True)
class EventCameraSampler:
    """Draws a fresh camera for every sample: on-the-fly randomisation.

    Args:
        threshold: Range of the smaller threshold, uniform.
        ratio: Range of the larger threshold over the smaller one; which of the two is larger is a fair coin.
        noise_std: Range of the background noise.
        hot_fraction: Range of the share of hot pixels.
        hot_std: Range of their strength.
        scale_noise: Multiply both strengths by the positive threshold (off in the paper).
        leak: Range of the leak (none in the paper, which found that the simpler noise trains better).
        shot: Range of the shot noise (likewise).

    Raises:
        ValueError: A range is reversed, not finite, or outside what its parameter allows (ratio: from 1 on).

    Example:
        >>> cameras = EventCameraSampler().sample(4, torch.Generator().manual_seed(0))
        >>> len(cameras), bool((cameras.c_pos <= 3).all())
        (4, True)

    Source:
        arXiv 2505.16797, section 3.3 and the released configurations.
    """

    threshold: Range = (0.05, 2.0)
    ratio: Range = (1.0, 1.5)
    noise_std: Range = (0.0, 0.1)
    hot_fraction: Range = (0.0, 1e-3)
    hot_std: Range = (0.0, 10.0)
    scale_noise: bool = False
    leak: Range = (0.0, 0.0)
    shot: Range = (0.0, 0.0)

    def __post_init__(self) -> None:
        least = {"threshold": LEAST, "ratio": 1.0}
        for name in ("threshold", "ratio", "noise_std", "hot_fraction", "hot_std", "leak", "shot"):
            given, floor, top = getattr(self, name), least.get(name, 0.0), 1.0 if name in SHARES else np.inf
            values = np.asarray(given, dtype=np.float64)
            if values.shape != (2,) or not (np.isfinite(values).all() and floor <= values[0] <= values[1] <= top):
                limit = " and at most 1" if top == 1.0 else ""
                raise ValueError(f"{name}: expected a range (low, high) of at least {floor:g}{limit}, got {given!r}")

    def sample(self, n: int, generator: torch.Generator | np.random.Generator | None = None) -> EventCamera:
        """Draw ``n`` cameras."""
        u = uniforms(generator, 6, n)
        c, r, sigma, fraction, strength = (
            low + (high - low) * u[row]
            for row, (low, high) in enumerate(
                (self.threshold, self.ratio, self.noise_std, self.hot_fraction, self.hot_std)
            )
        )
        positive_first = u[5] < 0.5
        c_pos, c_neg = np.where(positive_first, c, r * c), np.where(positive_first, r * c, c)
        scale = c_pos if self.scale_noise else 1.0
        more = [low + (high - low) * uniforms(generator, n) if high else 0.0 for low, high in (self.leak, self.shot)]
        return EventCamera(c_pos, c_neg, sigma * scale, fraction, strength * scale, *more)


@dataclass(frozen=True)
class FixedThresholds:
    """Thresholds drawn once a video and kept in every epoch, the rest fresh: the paper's ablation "-F".

    A data set names a video by its content, so that moving or renaming a file changes nothing.

    Args:
        sampler: The law of everything.
        seed: Of the thresholds.

    Example:
        >>> law = FixedThresholds(EventCameraSampler())
        >>> first, again = (law.sample_for("a.mp4", torch.Generator().manual_seed(s)) for s in (1, 2))
        >>> bool(first.c_pos == again.c_pos), bool(first.noise_std == again.noise_std)
        (True, False)

    Source:
        arXiv 2505.16797, table 4.
    """

    sampler: EventCameraSampler
    seed: int = 0

    def sample_for(self, video: str, generator: torch.Generator | np.random.Generator | None = None) -> EventCamera:
        """Draw the camera of one sample of a video, whatever names it."""
        fixed = self.sampler.sample(1, np.random.default_rng([self.seed, *video.encode()]))
        fresh = self.sampler.sample(1, generator)
        return EventCamera(
            fixed.c_pos, fixed.c_neg, fresh.noise_std, fresh.hot_fraction, fresh.hot_std, fresh.leak, fresh.shot
        )


#: Round figures for sensors in ordinary settings (thresholds in log units); start here, and measure your own.
PRESETS = {
    "clean": EventCamera(0.2, 0.2),
    "noisy": EventCamera(0.2, 0.2, noise_std=0.03, hot_fraction=5e-4, hot_std=0.5),
    "davis346": EventCamera(0.2, 0.24, noise_std=0.01, hot_fraction=2e-4, hot_std=0.2),
    "prophesee-gen4": EventCamera(0.3, 0.3, noise_std=0.01, hot_fraction=1e-4, hot_std=0.2),
}


def preset(name: str) -> EventCamera:
    """Return a camera of :data:`PRESETS`.

    Args:
        name: ``"clean"``, ``"noisy"``, ``"davis346"`` or ``"prophesee-gen4"``.

    Raises:
        ValueError: There is none of that name.

    Example:
        >>> camera = preset("davis346")
        >>> camera.c_pos, camera.c_neg
        (array([0.2]), array([0.24]))
    """
    if name not in PRESETS:
        raise ValueError(f"camera: expected one of {', '.join(PRESETS)}, got {name!r}")
    return PRESETS[name]


def uniforms(generator: torch.Generator | np.random.Generator | None, *shape: int) -> NDArray[np.float64]:
    """Draw uniform numbers from whichever generator the caller uses; ``None`` is fresh entropy, not global state."""
    if isinstance(generator, torch.Generator):
        drawn: Any = torch.rand(*shape, generator=generator, dtype=torch.float64, device=generator.device)
        return np.asarray(drawn.cpu())
    return (generator or np.random.default_rng()).random(shape)


def draw_seeds(generator: torch.Generator | np.random.Generator | None, n: int) -> NDArray[np.int64]:
    """Draw ``n`` seeds of 62 bits."""
    if isinstance(generator, torch.Generator):
        drawn = torch.randint(0, 2**62, (n,), generator=generator, device=generator.device)
        return np.asarray(drawn.cpu())
    return (generator or np.random.default_rng()).integers(0, 2**62, n)
