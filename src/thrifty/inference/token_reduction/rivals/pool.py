"""Spatial pooling: patch tokens are averaged over a coarser grid."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from thrifty.inference.token_reduction.config import PoolConfig
from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Stage, Tokens


def pooled_grid(grid: tuple[int, int], keep: float) -> tuple[int, int]:
    """Return rows and columns that keep about so many tokens: each side times the root of the share, rounded up."""
    rows, columns = (max(1, math.ceil(side * math.sqrt(keep) - 1e-6)) for side in grid)
    return rows, columns


class PoolReducer:
    """Averages the grid of tokens down at the layers of the schedule."""

    where = "mid"

    def __init__(self, config: PoolConfig, *, trace: bool, debug: bool) -> None:
        self.config, self.debug, self._trace = config, debug, trace
        self.layers = config.layers
        self.shares: tuple[float, ...] = config.keep  # type: ignore[assignment]

    def begin(self, tokens: Tokens, *, track: bool) -> Tokens:
        """Forget positions; follow owners if asked to."""
        return replace(tokens, owner=tokens.position if track else None, position=None)

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether the grid stays."""
        assert tokens.shape is not None
        return pooled_grid(tokens.shape, self.shares[stage]) == tokens.shape

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return nothing."""
        return None

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, None]:
        """Return attention's output; the choice needs nothing of it."""
        return attend(part, query, key, value, bias), None

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Average over the coarser grid's cells, which overlap where the sides do not divide."""
        assert tokens.shape is not None
        onto = pooled_grid(tokens.shape, self.shares[stage])
        maps = x[:, tokens.prefix :].transpose(1, 2).reshape(len(x), x.shape[-1], *tokens.shape)
        pooled = functional.adaptive_avg_pool2d(maps, onto).flatten(2).transpose(1, 2)
        out = torch.cat((x[:, : tokens.prefix], pooled), dim=1)
        share = tokens.live / (onto[0] * onto[1])
        size = torch.full(
            pooled.shape[:2], share * float(tokens.grid[0] * tokens.grid[1]) / tokens.live, device=x.device
        )
        known = replace(tokens, size=size, shape=onto)
        if tokens.owner is not None:
            rows, columns = tokens.shape
            place = torch.arange(rows * columns, device=x.device)
            nearest = (place // columns * onto[0] // rows) * onto[1] + place % columns * onto[1] // columns
            known = replace(known, owner=nearest[tokens.owner])
        if self._trace:
            record = Stage(self.layers[stage], None, None, None, None, x.shape[1], out.shape[1])
            known = replace(known, history=(*tokens.history, record))
        return out, known
