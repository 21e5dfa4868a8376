"""Token merging: the most similar pairs of tokens become one, weighted by size.

Written from Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023, arXiv 2210.09461, section 3: tokens are
dealt out in turn to two sets; each of the first finds its most similar partner in the second by the cosine of the keys'
mean over heads; the r most similar pairs merge into means weighted by size; attention adds the log of sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from thrifty.inference.token_reduction.config import tokens_kept
from thrifty.inference.token_reduction.hosts import Block, Heads, attend
from thrifty.inference.token_reduction.partition import Tokens, ranked, take
from thrifty.inference.token_reduction.reducers import log_sizes
from thrifty.inference.token_reduction.rivals.schedule import Rival


def match(
    metric: Float[Tensor, "batch n d"], prefix: int, merge: int
) -> tuple[Int[Tensor, "batch stay"], Int[Tensor, "batch merge"], Int[Tensor, "batch merge"]]:
    """Return the tokens of the first set that stay, those that merge, and into which of the second set each goes.

    Indices count within the sets: even places (behind the prefix) form the first, odd ones the second. The most similar
    pairs merge; of equal ones, the earlier.
    """
    unit = functional.normalize(metric.detach().float()[:, prefix:], dim=-1)
    likeness = unit[:, ::2] @ unit[:, 1::2].transpose(1, 2)
    best, partner = likeness.max(dim=-1)
    order = ranked(best)
    gone = order[:, :merge]
    return order[:, merge:].sort(dim=-1).values, gone, partner.gather(1, gone)


class ToMeReducer(Rival):
    """Merges the most similar tokens at the layers of the schedule."""

    def merged(self, stage: int, tokens: Tokens) -> int:
        """Return how many tokens a stage merges away: at most half of them."""
        if self.config.r is not None:
            return min(self.config.r, tokens.live // 2)  # type: ignore[no-any-return]
        return min(tokens.live - tokens_kept(self.shares[stage], tokens.live), tokens.live // 2)

    def is_noop(self, stage: int, tokens: Tokens) -> bool:
        """Tell whether nothing is merged."""
        return self.merged(stage, tokens) == 0

    def bias(self, tokens: Tokens) -> Float[Tensor, "batch 1 1 n"] | None:
        """Return the log of sizes (proportional attention)."""
        return log_sizes(tokens) if self.config.proportional and tokens.shape is None else None

    def attend(
        self, part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None, stage: int
    ) -> tuple[Heads, Tensor]:
        """Return attention's output, and the keys that similarity is measured on."""
        return attend(part, query, key, value, bias), key.mean(dim=1)

    def reduce(
        self, x: Tensor, tokens: Tokens, clue: Any, stage: int, embedding: Tensor | None
    ) -> tuple[Tensor, Tokens]:
        """Merge pairs; the first set's survivors come first, then the second set."""
        stay, gone, into = match(clue, tokens.prefix, self.merged(stage, tokens))
        behind = x[:, tokens.prefix :]
        size = tokens.size.to(torch.promote_types(x.dtype, torch.float32)).unsqueeze(-1)
        weighed = behind * size
        summed = weighed[:, 1::2].scatter_add(1, _wide(into, x), take(weighed[:, ::2], gone))
        target_size = size[:, 1::2].scatter_add(1, into.unsqueeze(-1), take(size[:, ::2], gone))
        merged = (summed / target_size).to(x.dtype)
        short = torch.cat((take(behind[:, ::2], stay), merged), dim=1)
        sizes = torch.cat((take(size[:, ::2], stay), target_size), dim=1).squeeze(-1)
        became = None if tokens.owner is None else _became(stay, gone, into, tokens.live)
        return self.shortened(x, short, tokens, stage, size=sizes, became=became)


def _wide(index: Int[Tensor, "batch k"], x: Tensor) -> Int[Tensor, "batch k d"]:
    return index.unsqueeze(-1).expand(-1, -1, x.shape[-1])


def _became(stay: Tensor, gone: Tensor, into: Tensor, live: int) -> Int[Tensor, "batch live"]:
    """Return where each token went."""
    batch, kept = stay.shape
    place = torch.zeros((batch, live), dtype=torch.long, device=stay.device)
    place[:, 1::2] = kept + torch.arange(live // 2, device=stay.device)
    ranks = torch.arange(kept, device=stay.device).expand(batch, kept)
    return place.scatter(1, stay * 2, ranks).scatter(1, gone * 2, kept + into)
