"""How good frames and flow are. Paper: arXiv 2505.16797, section 4; SSIM: Wang et al., TIP 2004."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional


def mse(prediction: Float[Tensor, "n 1 h w"], target: Float[Tensor, "n 1 h w"]) -> Float[Tensor, " n"]:
    """Return the mean squared error of every item, on [0, 1].

    Example:
        >>> mse(torch.zeros(1, 1, 2, 2), torch.ones(1, 1, 2, 2)).tolist()
        [1.0]
    """
    return (prediction - target).square().flatten(1).mean(dim=1)


def ssim(
    prediction: Float[Tensor, "n 1 h w"], target: Float[Tensor, "n 1 h w"], *, legacy: bool = False
) -> Float[Tensor, " n"]:
    """Return the structural similarity of every item: a window of 7 x 7, sample covariances, only whole windows.

    Args:
        prediction: On [0, 1].
        target: Likewise.
        legacy: Take 2 for the range of the data, as published tables do by mistake, in place of 1.

    Example:
        >>> x = torch.rand(1, 1, 16, 16)
        >>> round(float(ssim(x, x)), 6)
        1.0

    Source:
        Wang et al., TIP 2004, as scikit-image computes it by default.
    """
    size, reach = 7, 2.0 if legacy else 1.0
    both = torch.cat([prediction, target])
    mean = functional.avg_pool2d(both, size, 1)
    square = functional.avg_pool2d(both * both, size, 1)
    cross = functional.avg_pool2d(prediction * target, size, 1)
    n, correction = len(prediction), size**2 / (size**2 - 1)
    a, b = mean[:n], mean[n:]
    variance = correction * (square - mean * mean)
    covariance = correction * (cross - a * b)
    c1, c2 = (0.01 * reach) ** 2, (0.03 * reach) ** 2
    top = (2 * a * b + c1) * (2 * covariance + c2)
    bottom = (a * a + b * b + c1) * (variance[:n] + variance[n:] + c2)
    return (top / bottom).flatten(1).mean(dim=1)


def flow_errors(
    prediction: Float[Tensor, "n 2 h w"], target: Float[Tensor, "n 2 h w"], events: Bool[Tensor, "n h w"] | None = None
) -> dict[str, float]:
    """Return the end-point error of flow, and the share of pixels that are off.

    Pixels count where the true flow is neither NaN nor exactly (0, 0).

    Args:
        prediction: (dx, dy).
        target: Likewise.
        events: Where there was an event: the sparse errors are over these.

    Returns:
        ``epe`` (pixels), ``over_1px`` and ``over_3px`` (%), and the same with ``sparse_`` in front if ``events`` is
        given; NaN where no pixel counts.

    Example:
        >>> flow_errors(torch.zeros(1, 2, 1, 1), torch.full((1, 2, 1, 1), 3.0))["over_3px"]
        100.0

    Source:
        arXiv 2505.16797, section 4.2.
    """
    valid = torch.isfinite(target).all(dim=1) & (target != 0).any(dim=1)
    apart = (prediction - torch.nan_to_num(target)).square().sum(dim=1).sqrt()
    found: dict[str, float] = {}
    for name, mask in (("", valid), *([("sparse_", valid & events)] if events is not None else [])):
        errors = apart[mask]
        found[f"{name}epe"] = float(errors.mean())
        for limit in (1, 3):
            found[f"{name}over_{limit}px"] = 100 * float((errors > limit).float().mean())
    return found


def frame_errors(
    prediction: Float[Tensor, "n 1 h w"], target: Float[Tensor, "n 1 h w"], perceptual: Any = None, *,
    legacy_ssim: bool = False,
) -> dict[str, float]:  # fmt: skip
    """Return ``mse``, ``ssim`` and, with such a metric, ``perceptual`` of frames; predictions are clamped to [0, 1]."""
    clamped = prediction.clamp(0, 1)
    found = {
        "mse": float(mse(clamped, target).mean()),
        "ssim": float(ssim(clamped, target, legacy=legacy_ssim).mean()),
    }
    if perceptual is not None:
        found["perceptual"] = float(perceptual(clamped, target).mean())
    return found
