"""FireNet: a small recurrent network at full resolution.

Reference: Scheerlinck et al., "Fast Image Reconstruction with an Event Camera", WACV 2020: 37 777 parameters.
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.v2v.networks.layers import ConvGRU, ConvReLU, Residual


class FireNet(nn.Module):
    """Reconstructs a frame from one voxel grid and what it remembers.

    Args:
        bins: Of a voxel grid.
        base: Channels of every layer.

    Example:
        >>> sum(p.numel() for p in FireNet().parameters())
        37777

    Source:
        Scheerlinck et al., WACV 2020.
    """

    task = "reconstruction"

    def __init__(self, bins: int = 5, base: int = 16) -> None:
        super().__init__()
        self.head = ConvReLU(bins, base, 3)
        self.memories = nn.ModuleList(ConvGRU(base) for _ in range(2))
        self.residuals = nn.ModuleList(Residual(base) for _ in range(2))
        self.predict = nn.Conv2d(base, 1, 1)

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 1 h w"], Any]:
        """Return the frame (about 0 to 1, not clamped), and the state for the next voxel grid."""
        x, states = self.head(voxel), []
        for i, (remember, residual) in enumerate(zip(self.memories, self.residuals, strict=True)):
            states.append(remember(x, state[i] if state else None))
            x = residual(states[-1])
        return self.predict(x), states
