"""What the rivals share: one of their reductions, with the bookkeeping that every one of them needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Stage, Tokens


class Rival:
    """A reducer between attention and MLP whose tokens have no place of their own in the grid."""

    where: ClassVar[str] = "mid"

    def __init__(self, config: Any, *, trace: bool, debug: bool) -> None:
        self.config, self.debug, self._trace = config, debug, trace
        self.layers: tuple[int, ...] = config.layers or ()
        self.shares: tuple[float, ...] = config.keep or ()

    def begin(self, tokens: Tokens, *, track: bool) -> Tokens:
        """Forget positions; follow owners if asked to."""
        return replace(tokens, owner=tokens.position if track else None, position=None)

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return nothing: each token weighs as any other."""
        return None

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Tensor | None]:
        """Return attention's output; the choice needs nothing of it."""
        return attend(part, query, key, value, bias), None

    def shortened(
        self,
        x: Tensor,
        behind: Float[Tensor, "batch fewer d"],
        tokens: Tokens,
        stage: int,
        *,
        size: Float[Tensor, "batch fewer"],
        became: Int[Tensor, "batch live"] | None,
        shape: tuple[int, int] | None = None,
        score: Float[Tensor, "batch live"] | None = None,
    ) -> tuple[Tensor, Tokens]:
        """Return the prefix with what is behind it now, and what is known of it.

        Args:
            x: The sequence as it was.
            behind: The tokens that follow the prefix now.
            tokens: What was known.
            stage: Of the schedule.
            size: Patches that each token stands for.
            became: Where each token behind the prefix went, -1 for nowhere; needed while owners are followed.
            shape: Rows and columns, if they form a grid.
            score: For the trace.
        """
        out = torch.cat((x[:, : tokens.prefix], behind), dim=1)
        known = replace(tokens, size=size, shape=shape)
        if tokens.owner is not None:
            assert became is not None
            moved = became.gather(1, tokens.owner.clamp(min=0))
            known = replace(known, owner=torch.where(tokens.owner < 0, tokens.owner, moved))
        if self._trace:
            record = Stage(self.layers[stage], None, None, None, None, x.shape[1], out.shape[1], score)
            known = replace(known, history=(*tokens.history, record))
        return out, known
