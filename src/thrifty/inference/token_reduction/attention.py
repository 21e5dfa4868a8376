"""Attention split by frequency: its low- and high-pass parts, what a token contributes, and how parts are weighted.

A row-softmax matrix A (rows are queries) has the low-pass part A_LP = (1/N) 1 1ᵀ, which broadcasts the mean token, and
the high-pass part A_HP = A - A_LP. The equations are those of arXiv 2511.21477, sections 3.1 to 3.3.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

#: Queries at a time where the whole matrix of attention would be large; on a CPU, what its caches hold.
CHUNK, CHUNK_ON_CPU = 1024, 128


def split_frequencies(
    attention: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch n n"]]:
    """Return attention's low-pass and high-pass parts, which add up to it.

    Source:
        arXiv 2511.21477, section 3.1.
    """
    low = torch.full_like(attention, 1 / attention.shape[-1])
    return low, attention - low


def high_frequency_score(attention: Float[Tensor, "batch head n n"]) -> Float[Tensor, "batch n"]:
    """Return how much each token feeds the high-frequency part of the output: (1/(N h)) Σ A_HP over heads and queries.

    A_LP is constant, so this is the mean attention that a token receives, less 1/N: it ranks tokens exactly as that
    does. It is cheap, and an attention sink ranks high.

    Source:
        arXiv 2511.21477, equations 7 to 9.
    """
    return attention.float().mean(dim=(1, 2)) - 1 / attention.shape[-1]


def reweighted(
    attention: Float[Tensor, "batch head n n"],
    w1: Float[Tensor, " head"],
    beta: Float[Tensor, " head"] | None = None,
    dc: int = 0,
) -> Float[Tensor, "batch head n n"]:
    """Return A_LP + (1 + w1) A_HP + beta A_DC, where A_DC holds the last ``dc`` columns of A; rows need not sum to 1.

    Source:
        arXiv 2511.21477, equation 12. The fused form is :func:`reweight_values`.
    """
    low, high = split_frequencies(attention)
    out = low + (1 + w1)[:, None, None] * high
    if beta is None or not dc:
        return out
    columns = torch.zeros_like(attention)
    columns[..., -dc:] = attention[..., -dc:]
    return out + beta[:, None, None] * columns


def reweight_values(
    values: Float[Tensor, "batch head n d"],
    w1: Float[Tensor, " head"],
    beta: Float[Tensor, " head"] | None = None,
    dc: int = 0,
) -> Float[Tensor, "batch head n d"]:
    """Return values whose plain attention is that of :func:`reweighted` attention on the given ones.

    The rows of A sum to 1, so what A_LP subtracts can be subtracted from every value beforehand:
    (A_LP + (1 + w1) A_HP + beta A_DC) V = A V', where V' = (1 + w1) V - w1 mean(V), with beta V more in the DC rows.
    Any fused kernel will do, nothing is divided by, and w1 = beta = 0 leaves every bit as it was.
    """
    w1 = w1.to(values.dtype)[:, None, None]
    factor = 1 + w1
    if beta is not None and dc:
        summary = (factor + beta.to(values.dtype)[:, None, None]).expand(-1, dc, -1)
        factor = torch.cat((factor.expand(-1, values.shape[-2] - dc, -1), summary), dim=1)
    # One pass over the values; with w1 = beta = 0 it is V 1 - 0.
    return torch.addcmul(-w1 * values.mean(dim=-2, keepdim=True), values, factor)


def attend_and_score(
    query: Float[Tensor, "batch head n d"],
    key: Float[Tensor, "batch head n d"],
    values: Float[Tensor, "batch head n d"],
    scale: float,
    *,
    bias: Float[Tensor, "batch 1 1 n"] | None = None,
    dropout: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, "batch head n d"], Float[Tensor, "batch n"]]:
    """Return attention's output and the high-frequency score of every token, with A computed once.

    Beyond ``chunk`` tokens (1024; 128 on a CPU, a third faster there) A is made for so many queries at a time, so that
    memory grows with chunk x N, not N². The score is in float32, comes from the raw softmax, and has no gradient: it
    only ranks.
    """
    tokens = query.shape[-2]
    chunk = chunk or (CHUNK_ON_CPU if query.device.type == "cpu" else CHUNK)
    query, key, values = (x.contiguous() for x in (query, key, values))  # else every chunk would copy its heads
    outputs, received = [], None
    for start in range(0, tokens, chunk):
        attention = probabilities(query[..., start : start + chunk, :], key, scale, bias)
        total = attention.detach().float().sum(dim=(1, 2))
        received = total if received is None else received + total
        if dropout:
            attention = functional.dropout(attention, dropout)
        outputs.append(attention @ values)
    assert received is not None
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-2)
    return out, received / (query.shape[1] * tokens) - 1 / tokens


def probabilities(
    query: Float[Tensor, "batch head q d"],
    key: Float[Tensor, "batch head n d"],
    scale: float,
    bias: Float[Tensor, "batch 1 1 n"] | None = None,
) -> Float[Tensor, "batch head q n"]:
    """Return the softmax of scaled products, computed in float32 at least, in the precision of the query."""
    logits = (query * scale) @ key.transpose(-2, -1)
    if bias is not None:
        logits = logits + bias.to(logits.dtype)
    if logits.dtype in (torch.float16, torch.bfloat16):
        return logits.softmax(dim=-1, dtype=torch.float32).to(logits.dtype)
    return logits.softmax(dim=-1)


def query_mean_score(
    query: Float[Tensor, "batch head n d"], key: Float[Tensor, "batch head n d"]
) -> Float[Tensor, "batch n"]:
    """Return (Σ_i Q_i) · K_j, averaged over heads: a ranking without any attention matrix.

    Source:
        arXiv 2511.21477, appendix J.
    """
    summed = query.detach().float().sum(dim=-2, keepdim=True)
    return (summed * key.detach().float()).sum(dim=-1).mean(dim=1)


def class_token_score(
    query: Float[Tensor, "batch head n d"],
    key: Float[Tensor, "batch head n d"],
    scale: float,
    bias: Float[Tensor, "batch 1 1 n"] | None = None,
) -> Float[Tensor, "batch n"]:
    """Return the attention that the first token pays to each token, averaged over heads."""
    row = probabilities(query.detach()[..., :1, :].float(), key.detach().float(), scale, bias)
    return row.mean(dim=(1, 2))


def difference_score(x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n"]:
    """Return how little each token is like the mean token: minus their cosine."""
    x = x.detach().float()
    return -functional.cosine_similarity(x, x.mean(dim=1, keepdim=True), dim=-1)
