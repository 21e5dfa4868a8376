"""Real images: crops of photographs, and Fashion-MNIST enlarged, as the ViT-S/14 takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from thrifty.bench.context import Context
from thrifty.bench.data import fashion, vit_s14
from thrifty.inference.token_reduction.files import image_files, read_pixels

SIDE = 224


def backbone(ctx: Context) -> nn.Module:
    """Return the pretrained model on the run's device."""
    model: nn.Module = vit_s14.load().to(ctx.device)
    return model


def photographs(count: int, ctx: Context) -> Tensor:
    """Return random square crops of scikit-learn's two photographs (or of the user's images), half to full height."""
    return crops(_pictures(ctx), count, ctx.seed).to(ctx.device)


def halves(count: int, side: Literal["left", "right"], seed: int, ctx: Context) -> Tensor:
    """Return crops of the left or of the right halves of the pictures: no pixel is in both."""
    cut = [picture[:, : picture.shape[1] // 2] for picture in _pictures(ctx)]
    if side == "right":
        cut = [picture[:, picture.shape[1] // 2 :] for picture in _pictures(ctx)]
    return crops(cut, count, seed).to(ctx.device)


def _pictures(ctx: Context) -> Sequence[np.ndarray]:
    if ctx.data is not None:
        return [read_pixels(path, (2 * SIDE, 2 * SIDE)) for path in image_files([ctx.data])[:64]]
    from sklearn.datasets import load_sample_images

    held: Sequence[np.ndarray] = load_sample_images().images
    return held


def crops(pictures: Sequence[np.ndarray], count: int, seed: int) -> Tensor:
    """Return square crops, half to all of the shorter side, as the model takes them."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(count):
        picture = pictures[index % len(pictures)]
        height, width = picture.shape[:2]
        side = int(rng.integers(min(height, width) // 2, min(height, width) + 1))
        top, left = int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1))
        found.append(_enlarged(picture[top : top + side, left : left + side]))
    return _normalised(torch.stack(found))


def clothes(count: int, ctx: Context) -> Tensor:
    """Return test images of Fashion-MNIST, grey as three channels, enlarged to the photographs' size."""
    images, _ = fashion.load("test")
    chosen = np.random.default_rng(ctx.seed).choice(len(images), count, replace=False)
    grey = [_enlarged(np.repeat(images[i][:, :, None], 3, axis=2)) for i in chosen]
    return _normalised(torch.stack(grey)).to(ctx.device)


def _enlarged(pixels: np.ndarray) -> Tensor:
    x = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float()[None] / 255
    return torch.nn.functional.interpolate(x, size=(SIDE, SIDE), mode="bicubic", antialias=True, align_corners=False)[0]


def _normalised(x: Tensor) -> Tensor:
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (vit_s14.MEAN, vit_s14.STD))
    return (x.clamp(0, 1) - mean) / std
