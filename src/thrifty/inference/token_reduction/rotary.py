"""Rotary positions on a sequence that was shortened: kept patches turn by where they were, DC tokens by their cell.

Rotary models (EVA-02, DINOv3, rope ViTs) turn the queries and keys of patches by angles of their place in the grid;
tokens in front have no place and are not turned. The paper says nothing of them. A DC token turns as the patch in the
middle of its cell, which is where the patches that it stands for are on average.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.inference.token_reduction.partition import Tokens


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines that a host turns its patches by.

    Args:
        cos: A row a patch of the grid; one table for all heads, or one a head.
        sin: Likewise.
        paired: Channels turn in neighbouring pairs (timm's default), not the first half with the second.
        prefix: Tokens in front, which are not turned.
    """

    cos: Float[Tensor, "*head patches d"]
    sin: Float[Tensor, "*head patches d"]
    paired: bool
    prefix: int

    def at(self, tokens: Tokens) -> Rotary:
        """Return the rows of the tokens that are left, an image its own."""
        patches = tokens.grid[0] * tokens.grid[1]
        if tokens.live == patches:  # none was dropped yet
            return self
        assert tokens.position is not None
        place = tokens.position
        if tokens.summaries:
            middles = cell_middles(tokens.grid, tokens.window, place.device).expand(len(place), -1)
            place = torch.cat((place, middles), dim=1)
        return Rotary(_rows(self.cos, place), _rows(self.sin, place), self.paired, self.prefix)

    def turn(self, x: Float[Tensor, "batch head n d"]) -> Float[Tensor, "batch head n d"]:
        """Turn the tokens behind the prefix, in x's precision.

        Source:
            Su et al., "RoFormer", 2021, arXiv 2104.09864, equation 34.
        """
        patches = x[:, :, self.prefix :]
        if self.paired:
            across = torch.stack((-patches[..., 1::2], patches[..., ::2]), dim=-1).reshape(patches.shape)
        else:
            first, second = patches.chunk(2, dim=-1)
            across = torch.cat((-second, first), dim=-1)
        turned = (patches * self.cos + across * self.sin).to(x.dtype)
        return torch.cat((x[:, :, : self.prefix], turned), dim=2)


def cell_middles(grid: tuple[int, int], window: int, device: torch.device | str) -> Int[Tensor, "1 cells"]:
    """Return the place of the patch in the middle of each DC cell, in cell order."""
    half = 2 * torch.arange(window, device=device) + 1
    row, column = (half * side // (2 * window) for side in grid)
    return (row[:, None] * grid[1] + column).reshape(1, -1)


def _rows(table: Tensor, place: Int[Tensor, "batch n"]) -> Float[Tensor, "batch head n d"]:
    """Look rows up for every image: of one table, or of one a head."""
    rows = table[..., place, :]
    return rows[:, None] if table.ndim == 2 else rows.transpose(0, 1)
