"""Token reorganisation: what the class token attends to stays, the rest is fused into one token.

Written from Liang et al., "Not All Patches are What You Need: Expediting Vision Transformers via Token
Reorganizations", ICLR 2022, arXiv 2202.07800, section 3. The fused token of one stage is a candidate of the next.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thrifty.inference.token_reduction.attention import class_token_score
from thrifty.inference.token_reduction.config import tokens_kept
from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Tokens, highest, refuse_nonfinite, take, weighted_means
from thrifty.inference.token_reduction.rivals.schedule import Rival


class EViTReducer(Rival):
    """Keeps the tokens that the class token attends to."""

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether every token stays."""
        return tokens_kept(self.shares[stage], tokens.live) >= tokens.live

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Tensor]:
        """Return attention's output, and the class token's attention."""
        return attend(part, query, key, value, bias), class_token_score(query, key, part.scale)

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Keep the highest, and fuse the others by their attention."""
        score = clue[:, tokens.prefix :]
        if self.debug:
            refuse_nonfinite(score, self.layers[stage])
        count = tokens_kept(self.shares[stage], tokens.live)
        kept, low = highest(score, count)
        behind = x[:, tokens.prefix :]
        parts, sizes = [take(behind, kept)], [tokens.size.gather(1, kept)]
        if self.config.fuse:
            weight = score.gather(1, low)
            weight = weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-12)
            parts.append(weighted_means(weight[:, None, :], take(behind, low)))
            sizes.append(tokens.size.gather(1, low).sum(dim=1, keepdim=True))
        became = torch.full_like(score, count if self.config.fuse else -1, dtype=torch.long)
        became = became.scatter(1, kept, torch.arange(count, device=x.device).expand(len(x), count))
        return self.shortened(
            x, torch.cat(parts, dim=1), tokens, stage, size=torch.cat(sizes, dim=1), became=became, score=score
        )
