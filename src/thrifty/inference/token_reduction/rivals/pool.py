"""Spatial pooling: patch tokens are averaged over a coarser grid."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from thrifty.inference.token_reduction.partition import Tokens
from thrifty.inference.token_reduction.rivals.schedule import Rival


def pooled_grid(grid: tuple[int, int], keep: float) -> tuple[int, int]:
    """Return rows and columns that keep about so many tokens: each side times the root of the share, rounded up."""
    rows, columns = (max(1, math.ceil(side * math.sqrt(keep) - 1e-6)) for side in grid)
    return rows, columns


class PoolReducer(Rival):
    """Averages the grid of tokens down at the layers of the schedule."""

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether the grid stays."""
        assert tokens.shape is not None
        return pooled_grid(tokens.shape, self.shares[stage]) == tokens.shape

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Average over the coarser grid's cells, which overlap where the sides do not divide."""
        assert tokens.shape is not None
        rows, columns = tokens.shape
        onto = pooled_grid(tokens.shape, self.shares[stage])
        maps = x[:, tokens.prefix :].transpose(1, 2).reshape(len(x), x.shape[-1], rows, columns)
        pooled = functional.adaptive_avg_pool2d(maps, onto).flatten(2).transpose(1, 2)
        patches = tokens.grid[0] * tokens.grid[1]
        size = torch.full(pooled.shape[:2], patches / (onto[0] * onto[1]), device=x.device)
        place = torch.arange(rows * columns, device=x.device)
        nearest = (place // columns * onto[0] // rows) * onto[1] + place % columns * onto[1] // columns
        return self.shortened(
            x, pooled, tokens, stage, size=size, became=nearest.expand(len(x), rows * columns), shape=onto
        )
