"""E-RAFT: RAFT between two consecutive voxel grids, its first guess the flow before.

torchvision's RAFT (large) with as many input channels as a voxel grid has bins; the context comes from the newer grid,
and the flow of the last call is carried forward along itself as the first guess. Reference: Gehrig et al., "E-RAFT",
3DV 2021; Teed and Deng, "RAFT", ECCV 2020: 5 270 080 parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.extras import require
from thrifty.data.v2v.networks.layers import padded

#: Smallest side that the correlation pyramid of four levels takes.
LEAST = 128


class ERAFT(nn.Module):
    """Predicts flow from a voxel grid and the one before.

    Args:
        bins: Of a voxel grid.
        updates: Iterations.

    Raises:
        ImportError: torchvision is not installed.

    Example:
        >>> sum(p.numel() for p in ERAFT().parameters())
        5270080

    Source:
        Gehrig et al., 3DV 2021.
    """

    task = "flow"
    #: It reads one voxel grid more than it predicts for.
    needs_previous = True

    def __init__(self, bins: int = 5, updates: int = 12) -> None:
        super().__init__()
        raft = require("torchvision.models.optical_flow", extra="vision").raft_large(weights=None, progress=False)
        for encoder in (raft.feature_encoder, raft.context_encoder):
            first = encoder.convnormrelu[0]
            made = nn.Conv2d(bins, first.out_channels, first.kernel_size, first.stride, first.padding)
            nn.init.kaiming_normal_(made.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(made.bias)  # type: ignore[arg-type]
            encoder.convnormrelu[0] = made
        self.raft, self.updates = raft, updates

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 2 h w"], Any]:
        """Return (dx, dy) in pixels a voxel grid, and the state: this grid, and the coarse flow carried forward.

        The first voxel grid of a sequence has none before it: it is compared with itself.
        """
        h, w = voxel.shape[-2:]
        grid = functional.pad(voxel, (0, max(0, LEAST - w), 0, max(0, LEAST - h)))
        grid = padded(grid, 8)
        before, guess = state or (grid, None)
        raft = self.raft
        old, new = raft.feature_encoder(torch.cat([before, grid])).chunk(2)
        raft.corr_block.build_pyramid(old, new)
        context = raft.context_encoder(grid)
        size = raft.update_block.hidden_state_size
        hidden, context = torch.tanh(context[:, :size]), functional.relu(context[:, size:])
        start = coordinates(old)
        place = start if guess is None else start + guess
        for _ in range(self.updates):
            place = place.detach()
            features = raft.corr_block.index_pyramid(centroids_coords=place)
            hidden, step = raft.update_block(hidden, context, features, place - start)
            place = place + step
        flow = place - start
        raft_module = require("torchvision.models.optical_flow._utils", extra="vision")
        fine = raft_module.upsample_flow(flow=flow, up_mask=raft.mask_predictor(hidden))
        return fine[..., :h, :w], (grid, carried(flow.detach()))


def coordinates(like: Float[Tensor, "n c h w"]) -> Float[Tensor, "n 2 h w"]:
    """Return (x, y) of every pixel."""
    n, _, h, w = like.shape
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    return torch.stack([x, y]).to(like).expand(n, 2, h, w)


def carried(flow: Float[Tensor, "n 2 h w"]) -> Float[Tensor, "n 2 h w"]:
    """Move every flow vector to where it points to (the mean, where several meet; 0, where none does)."""
    n, _, h, w = flow.shape
    target = (coordinates(flow) + flow).round().long()
    inside = (target[:, 0] >= 0) & (target[:, 0] < w) & (target[:, 1] >= 0) & (target[:, 1] < h)
    place = (target[:, 1].clamp(0, h - 1) * w + target[:, 0].clamp(0, w - 1)).flatten(1)
    weight = inside.flatten(1).to(flow.dtype)
    total = torch.zeros(n, 2, h * w, dtype=flow.dtype, device=flow.device)
    total.scatter_add_(2, place[:, None].expand(-1, 2, -1), flow.flatten(2) * weight[:, None])
    count = torch.zeros(n, h * w, dtype=flow.dtype, device=flow.device).scatter_add_(1, place, weight)
    return (total / count.clamp(min=1)[:, None]).view(n, 2, h, w)
