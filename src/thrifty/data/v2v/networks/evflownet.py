"""EV-FlowNet: a U-Net for optical flow, skips concatenated, without memory.

Reference: Zhu et al., "EV-FlowNet", RSS 2018; sizes as in arXiv 2505.16797, appendix: 14 125 346 parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.v2v.networks.layers import ConvReLU, Residual, padded


class EVFlowNet(nn.Module):
    """Predicts by how many pixels the picture moves within one voxel grid.

    Args:
        bins: Of a voxel grid.
        base: Half the channels of the first encoder.

    Example:
        >>> sum(p.numel() for p in EVFlowNet().parameters())
        14125346

    Source:
        Zhu et al., RSS 2018.
    """

    task = "flow"

    def __init__(self, bins: int = 5, base: int = 32) -> None:
        super().__init__()
        widths = [base, 2 * base, 4 * base, 8 * base, 16 * base]
        pairs = zip([bins, *widths[1:-1]], widths[1:], strict=True)
        self.encoders = nn.ModuleList(ConvReLU(a, b, 3, stride=2) for a, b in pairs)
        self.middle = nn.Sequential(*(Residual(widths[-1]) for _ in range(2)))
        self.decoders = nn.ModuleList(ConvReLU(2 * widths[i], widths[i - 1], 3, upsample=True) for i in (4, 3, 2, 1))
        self.predict = nn.Conv2d(base, 2, 1)

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 2 h w"], None]:
        """Return (dx, dy) in pixels a voxel grid, and no state."""
        h, w = voxel.shape[-2:]
        x, skips = padded(voxel, 16), []
        for encode in self.encoders:
            x = encode(x)
            skips.append(x)
        x = self.middle(x)
        for decode in self.decoders:
            x = decode(torch.cat([x, skips.pop()], dim=1))
        return self.predict(x)[..., :h, :w], None
