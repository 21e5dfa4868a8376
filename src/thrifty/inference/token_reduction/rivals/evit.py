"""Token reorganisation: what the class token attends to stays, the rest is fused into one token.

Written from Liang et al., "Not All Patches are What You Need: Expediting Vision Transformers via Token
Reorganizations", ICLR 2022, arXiv 2202.07800, section 3. The fused token of one stage is a candidate of the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.inference.token_reduction.attention import class_token_score
from thrifty.inference.token_reduction.config import EViTConfig, tokens_kept
from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Stage, Tokens, highest, refuse_nonfinite, take, weighted_means


class EViTReducer:
    """Keeps the tokens that the class token attends to."""

    where = "mid"

    def __init__(self, config: EViTConfig, *, trace: bool, debug: bool) -> None:
        self.config, self.debug, self._trace = config, debug, trace
        self.layers = config.layers
        self.shares: tuple[float, ...] = config.keep  # type: ignore[assignment]

    def begin(self, tokens: Tokens, *, track: bool) -> Tokens:
        """Forget positions; follow owners if asked to."""
        return replace(tokens, owner=tokens.position if track else None, position=None)

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether every token stays."""
        return tokens_kept(self.shares[stage], tokens.live) >= tokens.live

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return nothing: a fused token weighs as any other."""
        return None

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Tensor]:
        """Return attention's output, and the class token's attention."""
        return attend(part, query, key, value, bias), class_token_score(query, key, part.scale)

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Keep the highest, and fuse the others by their attention."""
        first, live = tokens.prefix, tokens.live
        score = clue[:, first:]
        if self.debug:
            refuse_nonfinite(score, self.layers[stage])
        count = tokens_kept(self.shares[stage], live)
        kept, low = highest(score, count)
        behind = x[:, first:]
        parts, sizes = [x[:, :first], take(behind, kept)], [tokens.size.gather(1, kept)]
        if self.config.fuse:
            weight = score.gather(1, low)
            weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
            parts.append(weighted_means(weight[:, None, :], take(behind, low)))
            sizes.append(tokens.size.gather(1, low).sum(dim=1, keepdim=True))
        out = torch.cat(parts, dim=1)
        known = replace(tokens, size=torch.cat(sizes, dim=1), shape=None)
        if tokens.owner is not None:
            target = torch.full_like(score, count if self.config.fuse else -1, dtype=torch.long)
            ranks = torch.arange(count, device=x.device).expand(len(x), count)
            target = target.scatter(1, kept, ranks)
            moved = target.gather(1, tokens.owner.clamp(min=0))
            known = replace(known, owner=torch.where(tokens.owner < 0, tokens.owner, moved))
        if self._trace:
            record = Stage(self.layers[stage], None, None, None, None, x.shape[1], out.shape[1], score)
            known = replace(known, history=(*tokens.history, record))
        return out, known
