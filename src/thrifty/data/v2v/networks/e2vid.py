"""E2VID, recurrent: a U-Net with a ConvLSTM behind every encoder, skips summed, no normalisation.

Reference: Rebecq et al., "High Speed and High Dynamic Range Video with an Event Camera", TPAMI 2021; sizes as in
arXiv 2505.16797, appendix: 10 710 401 parameters.
"""

from __future__ import annotations

import itertools
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.v2v.networks.layers import ConvLSTM, ConvReLU, Residual, padded


class E2VID(nn.Module):
    """Reconstructs a frame from one voxel grid and what it remembers.

    Args:
        bins: Of a voxel grid.
        base: Channels of the head; they double with every encoder.

    Example:
        >>> import torch
        >>> frame, state = E2VID()(torch.zeros(1, 5, 30, 20))
        >>> frame.shape, sum(p.numel() for p in E2VID().parameters())
        (torch.Size([1, 1, 30, 20]), 10710401)

    Source:
        Rebecq et al., TPAMI 2021.
    """

    task = "reconstruction"

    def __init__(self, bins: int = 5, base: int = 32) -> None:
        super().__init__()
        widths = [base, 2 * base, 4 * base, 8 * base]
        self.head = ConvReLU(bins, base, 5)
        self.encoders = nn.ModuleList(ConvReLU(a, b, 5, stride=2) for a, b in itertools.pairwise(widths))
        self.memories = nn.ModuleList(ConvLSTM(width) for width in widths[1:])
        self.middle = nn.Sequential(*(Residual(widths[-1]) for _ in range(2)))
        self.decoders = nn.ModuleList(self.decoder(widths[i], widths[i - 1], i) for i in (3, 2, 1))
        self.predict = nn.Conv2d(base, 1, 1)

    def decoder(self, inputs: int, outputs: int, level: int) -> nn.Module:
        """Return one decoder; ``level`` is 3 for the first."""
        return ConvReLU(inputs, outputs, 5, upsample=True)

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 1 h w"], Any]:
        """Return the frame (about 0 to 1, not clamped), and the state for the next voxel grid."""
        h, w = voxel.shape[-2:]
        x = head = self.head(padded(voxel, 8))
        skips, states = [], []
        for i, (encode, remember) in enumerate(zip(self.encoders, self.memories, strict=True)):
            x, kept = remember(encode(x), state[i] if state else None)
            skips.append(x)
            states.append(kept)
        x = self.middle(x)
        for decode in self.decoders:
            x = decode(x + skips.pop())
        return self.predict(x + head)[..., :h, :w], states
