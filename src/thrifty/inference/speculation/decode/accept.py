"""Which draft tokens stand: greedy, and by rejection sampling that leaves the target's distribution exactly as it is.

A draft token d, drawn from q, is accepted with probability min(1, p(d)/q(d)); at the first rejection the next token is
drawn from norm((p − q)₊), after full acceptance from p (Leviathan et al., arXiv 2211.17192, Algorithm 1). Rows are
handled together, without a loop over them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def accept_greedy(
    drafts: Int[Tensor, "batch gamma"], logits: Float[Tensor, "batch gamma_1 vocab"]
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Accept the longest prefix that the target itself would have chosen.

    Args:
        drafts: Draft tokens.
        logits: Of the target, after the last token and after each draft token.

    Returns:
        How many draft tokens of each row are accepted, and the token that follows them.

    Example:
        >>> logits = torch.eye(4)[None, [1, 2, 3]]  # the target says 1, 2, 3
        >>> accept_greedy(torch.tensor([[1, 0]]), logits)
        (tensor([1]), tensor([2]))
    """
    choice = logits.argmax(-1)
    accepted = (drafts == choice[:, :-1]).long().cumprod(-1).sum(-1)
    return accepted, choice.gather(1, accepted[:, None]).squeeze(1)


def accept_sampled(
    drafts: Int[Tensor, "batch gamma"],
    q: Float[Tensor, "batch gamma vocab"],
    p: Float[Tensor, "batch gamma_1 vocab"],
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Accept each draft token with probability min(1, p/q), up to the first rejection; draw the token that follows.

    Args:
        drafts: Draft tokens, drawn from ``q``.
        q: The draft's probabilities, exactly as they were drawn from (after temperature, top-k, top-p).
        p: The target's, after the last token and after each draft token, likewise.
        generator: Draws.

    Returns:
        How many draft tokens of each row are accepted, and the token that follows them.
    """
    batch, gamma = drafts.shape
    at_draft = drafts[..., None]
    u = torch.rand(batch, gamma, generator=generator, device=p.device, dtype=p.dtype)
    stands = u * q.gather(-1, at_draft).squeeze(-1) < p[:, :-1].gather(-1, at_draft).squeeze(-1)
    accepted = stands.long().cumprod(-1).sum(-1)
    rows = torch.arange(batch, device=p.device)
    target = p[rows, accepted]
    # After full acceptance there is no draft distribution to subtract.
    other = q[rows, accepted.clamp(max=gamma - 1)] * (accepted < gamma)[:, None]
    residual = (target - other).clamp(min=0)
    empty = residual.sum(-1, keepdim=True) <= 0  # p = q up to rounding: the rejection itself was rounding
    weights = torch.where(empty, target, residual)
    return accepted, torch.multinomial(weights, 1, generator=generator).squeeze(1)
