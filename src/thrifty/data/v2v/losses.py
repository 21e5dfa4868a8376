"""What networks are trained to: frames that look right and hang together in time, and flow.

Paper: arXiv 2505.16797, section 3.5. The perceptual term is pluggable: LPIPS where its weights are at hand, else
:class:`GradientStructureLoss`, an offline substitute that is named as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.extras import require
from thrifty.data.v2v.metrics import ssim

#: (prediction, target) -> loss of every item.
Perceptual = Callable[[Tensor, Tensor], Tensor]


def warp(frame: Float[Tensor, "n c h w"], flow: Float[Tensor, "n 2 h w"]) -> Float[Tensor, "n c h w"]:
    """Sample a frame at x - flow(x), bilinearly, with zeros outside.

    Args:
        frame: The earlier one.
        flow: From it to the later one, in pixels, (dx, dy).

    Example:
        >>> frame = torch.eye(3)[None, None]
        >>> right = torch.zeros(1, 2, 3, 3)
        >>> right[:, 0] = 1
        >>> warp(frame, right)[0, 0].tolist()
        [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

    Source:
        arXiv 2505.16797, equation of the temporal consistency.
    """
    h, w = frame.shape[-2:]
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    place = torch.stack([x, y]).to(flow) - flow
    size = torch.tensor([max(w - 1, 1), max(h - 1, 1)]).to(flow)
    grid = 2 * place.permute(0, 2, 3, 1) / size - 1
    return functional.grid_sample(frame, grid, padding_mode="zeros", align_corners=True)


def temporal_consistency(
    prediction: Float[Tensor, "n 1 h w"],
    previous: Float[Tensor, "n 1 h w"],
    target: Float[Tensor, "n 1 h w"],
    previous_target: Float[Tensor, "n 1 h w"],
    flow: Float[Tensor, "n 2 h w"],
) -> Float[Tensor, ""]:
    """Return how far a prediction is from the last one, moved along the flow, where the true frames agree.

    Args:
        prediction: Now.
        previous: The step before; clamped at 0.
        target: True frame now.
        previous_target: True frame before.
        flow: From before to now.

    Example:
        >>> still = torch.full((1, 1, 4, 4), 0.5)
        >>> float(temporal_consistency(still, still, still, still, torch.zeros(1, 2, 4, 4)))
        0.0

    Source:
        arXiv 2505.16797, section 3.5; Lai et al., ECCV 2018.
    """
    moved = warp(previous.clamp(min=0), flow)
    trust = torch.exp(-50 * (target - warp(previous_target, flow)).square())
    apart = (prediction - moved).abs() / (prediction.abs() + moved.abs() + 1e-5)
    return (trust * apart).mean()


class GradientStructureLoss(nn.Module):
    """An offline substitute for LPIPS: gradients at three scales, and 1 - SSIM. It has no weights, and is not LPIPS.

    Example:
        >>> x = torch.rand(2, 1, 32, 32)
        >>> GradientStructureLoss()(x, x).tolist()
        [0.0, 0.0]
    """

    def forward(self, prediction: Float[Tensor, "n 1 h w"], target: Float[Tensor, "n 1 h w"]) -> Float[Tensor, " n"]:
        """Return the loss of every item."""
        total = 1 - ssim(prediction, target)
        for _ in range(3):
            for axis in (-1, -2):
                apart = prediction.diff(dim=axis) - target.diff(dim=axis)
                total = total + apart.abs().flatten(1).mean(dim=1)
            if min(prediction.shape[-2:]) >= 8:
                prediction, target = functional.avg_pool2d(prediction, 2), functional.avg_pool2d(target, 2)
        return total


def lpips(network: str = "vgg") -> Perceptual:
    """Return LPIPS v0.1, whose backbone comes from torchvision's cache or is downloaded.

    Args:
        network: ``"vgg"`` (the paper's loss) or ``"alex"`` (its metric).

    Raises:
        ImportError: ``torchmetrics`` or torchvision is not installed.
    """
    metric = require("torchmetrics.functional.image.lpips", extra="vision")
    made: Any = metric._LPIPS(pretrained=True, net=network, use_dropout=True, eval_mode=True)

    def measure(prediction: Tensor, target: Tensor) -> Tensor:
        made.to(prediction.device)
        three = (x.expand(-1, 3, -1, -1) * 2 - 1 for x in (prediction, target))
        return made(*three).flatten()  # type: ignore[no-any-return]

    return measure


@dataclass(frozen=True)
class ReconstructionLoss:
    """Perceptual + L1 + temporal consistency, the mean over the steps of a sequence.

    Args:
        perceptual: (prediction, target) -> loss of every item; ``None`` leaves it out.
        weights: Of the three.
        consistent_from: First step with temporal consistency, as a share of the sequence: in the paper it begins half
            way, so that over the whole sequence its weight is one half; 0 is the older loss "Alex+TC".

    Source:
        arXiv 2505.16797, section 3.5.
    """

    perceptual: Perceptual | None = GradientStructureLoss()  # noqa: RUF009 - it has no state
    weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    consistent_from: float = 0.5

    def needs_flow(self, step: int, steps: int) -> bool:
        """Tell whether a step needs the flow from the frame before."""
        return self.weights[2] > 0 and step > 0 and step >= self.consistent_from * steps

    def step(
        self, step: int, steps: int, prediction: Tensor, target: Tensor, previous: tuple[Tensor, Tensor] | None = None,
        flow: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return one step's share of the loss.

        Args:
            step: Its number.
            steps: Of the sequence.
            prediction: (n, 1, h, w).
            target: Likewise.
            previous: Prediction and target of the step before.
            flow: From the frame before to this one.
        """
        total = self.weights[1] * (prediction - target).abs().mean()
        if self.perceptual is not None:
            total = total + self.weights[0] * self.perceptual(prediction, target).mean()
        if previous is not None and flow is not None and self.needs_flow(step, steps):
            total = total + self.weights[2] * temporal_consistency(prediction, previous[0], target, previous[1], flow)
        return total / steps
