"""Real images: crops of photographs, and Fashion-MNIST enlarged, as the ViT-S/14 takes them."""

from __future__ import annotations

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
    rng = np.random.default_rng(ctx.seed)
    if ctx.data is not None:
        files = image_files([ctx.data])
        pictures = [read_pixels(path, (2 * SIDE, 2 * SIDE)) for path in files[:64]]
    else:
        from sklearn.datasets import load_sample_images

        pictures = load_sample_images().images
    crops = []
    for index in range(count):
        picture = pictures[index % len(pictures)]
        height, width = picture.shape[:2]
        side = int(rng.integers(min(height, width) // 2, min(height, width) + 1))
        top, left = int(rng.integers(height - side + 1)), int(rng.integers(width - side + 1))
        crops.append(_enlarged(picture[top : top + side, left : left + side]))
    return _normalised(torch.stack(crops)).to(ctx.device)


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
