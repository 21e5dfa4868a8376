"""Where flow comes from in training: RAFT, as in the paper, OpenCV's DIS flow without weights, or a known warp.

Paper: arXiv 2505.16797, section 3.5. A teacher is any function (earlier, later) -> flow from earlier to later.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from thrifty._common.checks import one_of
from thrifty._common.extras import require
from thrifty._common.weights import load_saved

#: (earlier, later) frames (n, 1, h, w) in [0, 1] -> (n, 2, h, w), pixels.
FlowTeacher = Callable[[Tensor, Tensor], Tensor]


def raft(weights: str | os.PathLike[str], size: str = "small", *, updates: int = 12) -> FlowTeacher:
    """Return torchvision's RAFT with weights from a file: small for consistency, large for flow training.

    Args:
        weights: A state dict, read with ``weights_only=True``.
        size: ``"small"`` or ``"large"``.
        updates: Iterations.

    Raises:
        ImportError: torchvision is not installed.
    """
    one_of("size", size, ("small", "large"))
    module = require("torchvision.models.optical_flow", extra="vision")
    model = getattr(module, f"raft_{size}")(weights=None, progress=False).eval().requires_grad_(False)
    model.load_state_dict(load_saved(weights, name="weights"))

    @torch.no_grad()
    def flow(earlier: Tensor, later: Tensor) -> Tensor:
        model.to(earlier.device)
        h, w = earlier.shape[-2:]
        pad = (0, max(128 - w, -w % 8), 0, max(128 - h, -h % 8))
        pair = (functional.pad(x * 2 - 1, pad, mode="replicate").expand(-1, 3, -1, -1) for x in (earlier, later))
        found: Tensor = model(*pair, num_flow_updates=updates)[-1]
        return found[..., :h, :w]

    return flow


@torch.no_grad()
def dis_flow(earlier: Float[Tensor, "n 1 h w"], later: Float[Tensor, "n 1 h w"]) -> Float[Tensor, "n 2 h w"]:
    """Return dense inverse-search flow (OpenCV): no weights, CPU; an offline substitute for RAFT.

    Raises:
        ImportError: OpenCV is not installed.

    Source:
        Kroeger et al., ECCV 2016.
    """
    cv2 = require("cv2", extra="vision")
    search = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    levels = [(x[:, 0] * 255).clamp(0, 255).round().to(torch.uint8).cpu().numpy() for x in (earlier, later)]
    found = [search.calc(before, after, None) for before, after in zip(*levels, strict=True)]
    return torch.from_numpy(np.stack(found)).permute(0, 3, 1, 2).to(earlier.device)


def warped_clip(
    picture: NDArray[np.uint8], frames: int, crop: int, rng: np.random.Generator, *, speed: float = 1.0, every: int = 1
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return a clip of a window that moves, turns and zooms over a picture, and its exact flow.

    Where it would leave the picture, or be less than two thirds as large, or half as large again, as at first, it goes
    back the way that it came.

    Args:
        picture: (h, w) uint8, larger than the crop.
        frames: Of the clip.
        crop: Side of the window.
        rng: Source of chance.
        speed: Pixels a frame at most, along each axis.
        every: Frames that one flow spans.

    Returns:
        Frames (frames, crop, crop), and, for every ``every``-th frame but the first, the flow to it from the one
        ``every`` frames before, at its own pixels: ((frames - 1) // every, 2, crop, crop).

    Raises:
        ValueError: The picture is not larger than the crop.
    """
    h, w = picture.shape
    if min(h, w) <= crop:
        raise ValueError(f"picture: expected more than {crop} x {crop} pixels, got {h} x {w}")
    moves = rng.uniform(-speed, speed, 2)
    turn, zoom = rng.uniform(-1, 1, 2) * 2 * speed / crop
    room = (np.array([w, h]) - crop) / 2
    begin = np.array([w, h]) / 2 + rng.uniform(-0.5, 0.5, 2) * room
    y, x = np.mgrid[:crop, :crop] - (crop - 1) / 2
    local = np.stack([x, y])

    def camera(t: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        scale = np.exp(zoom * t)
        cos, sin = scale * np.cos(turn * t), scale * np.sin(turn * t)
        return np.array([[cos, -sin], [sin, cos]]), begin + moves * t

    def inside(t: float) -> bool:
        matrix, centre = camera(t)
        corners = matrix @ local[:, [0, 0, -1, -1], [0, -1, 0, -1]] + centre[:, None]
        return bool((corners >= 0).all() and (corners <= [[w - 1], [h - 1]]).all()) and abs(zoom * t) < np.log(1.5)

    reach = max(1, next((t for t in range(frames - 1) if not inside(t + 1)), frames - 1))
    when = [reach - abs(reach - t % (2 * reach)) for t in range(frames)]
    held = torch.from_numpy(picture.astype(np.float32))[None, None]
    clip, flows = [], []
    for t in range(frames):
        matrix, centre = camera(when[t])
        place = np.einsum("ij,jhw->ihw", matrix, local) + centre[:, None, None]
        grid = torch.from_numpy(np.stack([2 * place[0] / (w - 1) - 1, 2 * place[1] / (h - 1) - 1], -1)).float()[None]
        shown = functional.grid_sample(held, grid, padding_mode="reflection", align_corners=True)[0, 0]
        clip.append(shown.round().clamp(0, 255).to(torch.uint8).numpy())
        if t and t % every == 0:
            old, middle = camera(when[t - every])
            before = np.einsum("ij,jhw->ihw", np.linalg.inv(old), place - middle[:, None, None])
            flows.append((local - before).astype(np.float32))
    return np.stack(clip), np.stack(flows)


def named(name: str, weights: Any = None) -> FlowTeacher:
    """Return a teacher by name: ``"dis"``, ``"raft-small"`` or ``"raft-large"`` (these need a file of weights).

    Raises:
        ValueError: There is none of that name, or its weights are missing.
    """
    one_of("teacher", name, ("dis", "raft-small", "raft-large"))
    if name == "dis":
        return dis_flow
    if weights is None:
        raise ValueError(f"weights: expected a file with the weights of {name}, got none")
    return raft(weights, name.removeprefix("raft-"))
