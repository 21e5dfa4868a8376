"""What is done to frames between decoding and the sensor: where to cut, when to pause, how to shake and degrade.

Paper: arXiv 2505.16797, section 3.4 and the released configurations. Chance comes from the generator that is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, UInt8
from numpy.typing import NDArray

from thrifty._common.extras import require


@dataclass(frozen=True)
class Augmentation:
    """How frames are varied. The defaults are the paper's, the watermark's crop apart.

    Args:
        keep_top: Share of the height that is used, from the top.
        scale: Range of the resize scale, uniform; 1 cuts out pixels as they are.
        flip: Mirror left and right with probability 1/2.
        pause: Probabilities, a voxel grid, to pause and to stay paused; ``None`` never pauses.
        shake: Largest offset of a shaking camera in pixels; it ends at rest.
        contrast: Range of a factor on the contrast around 127.5 (the configurations' "hdr" is (1, 3)).
        contrast_share: How often it is applied.
        cut: Probability that a shot ends within the sample, and another part of the video follows.
        text: Probability that a line of text is burnt in, which stands still.

    Raises:
        ValueError: A field is out of range.

    Example:
        >>> Augmentation(scale=(0.5, 1.0), shake=4).flip
        True

    Source:
        arXiv 2505.16797, section 3.4.
    """

    keep_top: float = 1.0
    scale: tuple[float, float] = (1.0, 1.0)
    flip: bool = True
    pause: tuple[float, float] | None = (0.05, 0.9)
    shake: int = 0
    contrast: tuple[float, float] | None = None
    contrast_share: float = 0.8
    cut: float = 0.0
    text: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.keep_top <= 1:
            raise ValueError(f"keep_top: expected a share in (0, 1], got {self.keep_top}")
        if not 0 < self.scale[0] <= self.scale[1] < np.inf:
            raise ValueError(f"scale: expected a range (low, high) above 0, got {self.scale}")
        if self.pause is not None and not all(0 <= p < 1 for p in self.pause):
            raise ValueError(f"pause: expected two probabilities in [0, 1), got {self.pause}")
        if self.shake < 0 or int(self.shake) != self.shake:
            raise ValueError(f"shake: expected a whole number of pixels of at least 0, got {self.shake}")
        if self.contrast is not None and not 0 < self.contrast[0] <= self.contrast[1] < np.inf:
            raise ValueError(f"contrast: expected a range (low, high) above 0, got {self.contrast}")
        for name in ("contrast_share", "cut", "text"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a probability in [0, 1], got {getattr(self, name)}")


def pause_indices(
    frames: int, per_voxel: int, pause: tuple[float, float] | None, rng: np.random.Generator
) -> Int[np.ndarray, " frames"]:
    """Return which source frame each frame of a sample shows: a chain of two states, running and paused.

    Args:
        frames: Of the sample.
        per_voxel: Frame intervals of a voxel grid.
        pause: Probabilities, a voxel grid, to pause and to stay paused.
        rng: Source of chance.

    Returns:
        Indices from 0 on, each the one before or the next; a repeated one is a pause.

    Example:
        >>> pause_indices(5, 5, None, np.random.default_rng(0)).tolist()
        [0, 1, 2, 3, 4]

    Source:
        arXiv 2505.16797, section 3.4; Rebecq et al., TPAMI 2021.
    """
    if pause is None:
        return np.arange(frames)
    begins, stays = 1 - (1 - pause[0]) ** (1 / per_voxel), pause[1] ** (1 / per_voxel)
    drawn = rng.random(frames)
    paused, index, shown = False, 0, np.empty(frames, np.int64)
    for i in range(frames):
        shown[i] = index
        paused = drawn[i] < (stays if paused else begins)
        index += not paused
    return shown


def place_crop(
    height: int, width: int, crop: int, augmentation: Augmentation, rng: np.random.Generator
) -> tuple[int, int, int]:
    """Return top, left and side of a square source window that becomes ``crop`` pixels wide.

    Raises:
        ValueError: The crop is larger than the frame.
    """
    height = int(height * augmentation.keep_top)
    if crop > min(height, width):
        raise ValueError(
            f"crop: expected at most {min(height, width)} pixels in frames of {height} x {width}, got {crop}"
        )
    low, high = augmentation.scale
    scale = max(low + (high - low) * rng.random(), crop / height, crop / width)
    side = max(1, min(int(crop / scale), height, width))
    return int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1)), side


def shake_offsets(frames: int, reach: int, rng: np.random.Generator) -> Int[np.ndarray, "frames 2"]:
    """Return the camera's offset at every frame: a random walk of whole velocities that ends at rest at (0, 0)."""
    velocity = rng.integers(-1, 2, (frames, 2))
    walked = np.cumsum(velocity[::-1], axis=0)[::-1]
    walked = np.clip(walked - walked[-1], -reach, reach)
    return np.ascontiguousarray(walked)


def change_contrast(frames: UInt8[np.ndarray, "n h w"], factor: float) -> UInt8[np.ndarray, "n h w"]:
    """Multiply the contrast around the middle grey, and cut what leaves the range.

    Example:
        >>> change_contrast(np.array([[[100, 150]]], np.uint8), 2.0).tolist()
        [[[72, 172]]]
    """
    table = np.rint(np.clip(factor * (np.arange(256) - 127.5) + 127.5, 0, 255)).astype(np.uint8)
    changed: NDArray[np.uint8] = table[frames]
    return changed


def burn_text(frames: UInt8[np.ndarray, "n h w"], rng: np.random.Generator) -> UInt8[np.ndarray, "n h w"]:
    """Write random letters over all frames of a clip at one place, as subtitles and logos are.

    Raises:
        ImportError: OpenCV is not installed.
    """
    cv2 = require("cv2", extra="vision")
    height, width = frames.shape[1:]
    text = "".join(rng.choice(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789"), int(rng.integers(3, 13))))
    font, scale, grey = cv2.FONT_HERSHEY_SIMPLEX, float(rng.uniform(0.3, 1.0)), int(rng.integers(0, 256))
    (long, tall), _ = cv2.getTextSize(text, font, scale, 1)
    left, base = rng.integers(0, max(width - long, 1)), rng.integers(min(tall, height - 1), height)
    mask = cv2.putText(np.zeros((height, width), np.uint8), text, (int(left), int(base)), font, scale, 255, 1)
    changed = frames.copy()
    changed[:, mask > 0] = grey
    return changed


def resized(frames: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Resize square frames bilinearly."""
    if frames.shape[-1] == side:
        return frames
    x = torch.from_numpy(frames)[:, None].float()
    x = torch.nn.functional.interpolate(x, size=(side, side), mode="bilinear", align_corners=False)
    return x[:, 0].round().clamp(0, 255).to(torch.uint8).numpy()
