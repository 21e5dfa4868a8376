"""A head that must be called as a module, because it is more than a weight: adapters, hooks, quantised weights.

Its rows are scored in chunks under ordinary checkpointing: each chunk's logits are computed twice, and never kept.
"""

from __future__ import annotations

from dataclasses import fields

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from thrifty.training.streambp.chunks import slices
from thrifty.training.streambp.inputs import Rows
from thrifty.training.streambp.logits import LogitShape, picked
from thrifty.training.streambp.token_logps import TokenStatistics


def module_statistics(
    head: nn.Module, hidden: Float[Tensor, "batch length hidden"], rows: Rows, shape: LogitShape, chunk: int
) -> TokenStatistics:
    """Score rows of hidden states, as :func:`~thrifty.training.streambp.token_logps.token_statistics` does.

    Args:
        head: Maps hidden states to logits.
        hidden: Hidden states; their leading dimensions are flattened.
        rows: Which rows, and the token of each.
        shape: What follows the head.
        chunk: Rows at a time.
    """

    def score(h: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        z = shape.applied(head(h))
        lse = z.logsumexp(-1)
        logps = z - lse[:, None]
        p = logps.exp()
        with torch.no_grad():
            unmoved = z.argmax(-1) == ids, z.mean(-1), torch.linalg.vector_norm(p, dim=-1).square().log()
        return picked(logps, ids), -(p * logps).sum(-1), logps.mean(-1), lse, *unmoved

    flat = hidden.flatten(0, -2)
    pieces: list[tuple[Tensor, ...]] = [
        checkpoint(score, flat[rows.index[some]], rows.ids[some], use_reentrant=False)
        for some in slices(len(rows), chunk)
    ]
    if not pieces:  # nothing counts: still connected
        none = linear(flat[:0], flat[:1]).sum(-1)
        pieces = [tuple(none for _ in fields(TokenStatistics))]
    return TokenStatistics(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))
