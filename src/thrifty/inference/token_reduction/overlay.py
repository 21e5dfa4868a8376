"""Pictures of what a reduction keeps: patches that were dropped are darkened, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from thrifty._common.checks import number
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.inference.token_reduction.partition import Stage


def visualize(
    image: UInt8[np.ndarray, "height width 3"],
    stages: Sequence[Stage],
    grid: tuple[int, int],
    *,
    index: int = 0,
    dim: float = 0.25,
) -> UInt8[np.ndarray, "height all 3"]:
    """Return the image, and beside it what each reduction kept, with the edges of its DC cells.

    Args:
        image: Pixels, 0 to 255.
        stages: Of :meth:`TokenReduction.info`.
        grid: Patch rows and columns (:attr:`TokenReduction.tokens`.grid).
        index: Which image of the batch the stages are of.
        dim: What is left of a dropped patch's brightness.

    Raises:
        ValueError: There is no stage that says which patches it kept (methods that merge do not), this is no image, or
            grid, index or ``dim`` do not fit.

    Example:
        >>> import torch
        >>> stage = Stage(4, torch.tensor([[0, 3]]), torch.tensor([[1, 2]]), None, None, before=5, after=3)
        >>> visualize(np.full((8, 8, 3), 200, np.uint8), [stage], (2, 2)).shape
        (8, 20, 3)
    """
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        came = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"image: expected pixels as a uint8 array, height x width x 3, got {came}")
    if min(grid) < 1 or grid[0] > image.shape[0] or grid[1] > image.shape[1]:
        raise ValueError(f"grid: expected patches of at least a pixel of {image.shape[:2]}, got {grid}")
    number("dim", dim, "a share in [0, 1]", least=0)
    if dim > 1:
        raise ValueError(f"dim: expected a share in [0, 1], got {dim}")
    shown = [stage for stage in stages if stage.kept is not None]
    if not shown:
        raise ValueError("stages: expected reductions that keep patches, with trace=True; merging has no kept patches")
    height, width = image.shape[:2]
    row = np.minimum(np.arange(height) * grid[0] // height, grid[0] - 1)
    column = np.minimum(np.arange(width) * grid[1] // width, grid[1] - 1)
    panels = [image]
    for stage in shown:
        assert stage.kept is not None
        if not 0 <= index < len(stage.kept):
            raise ValueError(f"index: expected an image of a batch of {len(stage.kept)}, got {index}")
        places = stage.kept[index].cpu().numpy()
        if places.max(initial=0) >= grid[0] * grid[1]:
            raise ValueError(f"grid: expected the one of these stages, which keep patch {places.max()}, got {grid}")
        kept = np.zeros(grid[0] * grid[1], bool)
        kept[places] = True
        mask = kept.reshape(grid)[np.ix_(row, column)]
        panel = np.where(mask[..., None], image, (image * dim).astype(np.uint8))
        if stage.window > 1:
            panel = _with_cells(panel, row * stage.window // grid[0], column * stage.window // grid[1])
        panels += [np.full((height, 4, 3), 255, np.uint8), panel]
    return np.concatenate(panels, axis=1)


def save_picture(path: Path, pixels: UInt8[np.ndarray, "height width 3"], *, force: bool = False) -> Path:
    """Write pixels as PNG, whole or not at all.

    Raises:
        FileExistsError: The file exists, and ``force`` is off.
    """
    picture = require("PIL.Image", extra="vision").fromarray(pixels)
    return write_whole(path, lambda file: picture.save(file, format="PNG"), force=force)


def _with_cells(panel: NDArray[np.uint8], rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.uint8]:
    """Draw the edges between DC cells."""
    panel = panel.copy()
    panel[np.flatnonzero(np.diff(rows)) + 1] = (255, 64, 64)
    panel[:, np.flatnonzero(np.diff(columns)) + 1] = (255, 64, 64)
    return panel
