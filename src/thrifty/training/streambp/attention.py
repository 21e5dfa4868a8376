"""Attention of a chunk of queries over all keys up to it, exactly, without copying the keys.

Queries of a chunk see every earlier key, and their own block causally. Both parts are computed by the fused kernel
and merged by their log-sum-exps; given the *merged* output and log-sum-exp, the kernel's own backward pass yields each
part's exact gradient (as in ring attention, arXiv 2310.01889). ``is_causal=True`` on a rectangular chunk would be
wrong: torch aligns that mask with the upper left corner.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from thrifty.training.streambp.masks import ChunkMask, MaskRule

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend_chunk(
    module: torch.nn.Module,
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch kv_heads own dim"],
    value: Float[Tensor, "batch kv_heads own value_dim"],
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch queries heads value_dim"], None]:
    """Be transformers' attention function of a streamed layer (signature of its ``sdpa_attention_forward``)."""
    if not isinstance(attention_mask, ChunkMask):  # a layer that runs as a whole, in a part that trains nothing
        if isinstance(attention_mask, MaskRule):
            attention_mask = None if attention_mask.plain else attention_mask.rows(0, attention_mask.length)
        if kwargs.get("softcap") is not None:
            raise ValueError("attn_logit_softcapping: a layer that runs as a whole among streamed ones would ignore it")
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        whole: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return whole
    if attention_mask.given is not None and key is not attention_mask.given:
        attention_mask.changed = True
    output = attention(query, key, value, attention_mask, dropout, scaling)
    return output.transpose(1, 2), None


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: ChunkMask, dropout: float = 0.0, scale: float | None = None
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Attend from a chunk to the earlier keys in ``mask.prefix`` (or already in ``key``) and to its own.

    Args:
        query: Of the chunk, ``[batch, heads, queries, dim]``.
        key: ``[batch, kv_heads, keys, dim]``.
        value: ``[batch, kv_heads, keys, value_dim]``.
        mask: What the chunk may see, and the keys and values before it.
        dropout: Share of attention weights dropped.
        scale: Of the logits; by default 1/√dim.

    Returns:
        What was attended to.

    Example:
        >>> query = torch.randn(1, 2, 3, 4)
        >>> attention(query, query, query, ChunkMask(MaskRule(batch=1, length=3), start=0, stop=3)).shape
        torch.Size([1, 2, 3, 4])

    Source:
        arXiv 2506.03077, section 3.2.
    """
    prefix = mask.prefix
    if mask.plain and not dropout and query.device.type == "cpu" and key.shape[-1] == value.shape[-1]:
        own = query.shape[2]
        if prefix is None and key.shape[2] > own:  # the cache has put the earlier keys in front
            prefix = key[:, :, :-own], value[:, :, :-own]
            key, value = key[:, :, -own:], value[:, :, -own:]
        pieces = _autocast(query, key, value, *(prefix or (None, None)))
        joined: Tensor = _JoinedAttention.apply(*pieces, scale)
        return joined
    if prefix is not None:
        key, value = torch.cat([prefix[0], key], dim=2), torch.cat([prefix[1], value], dim=2)
    grouped = query.shape[1] != key.shape[1]
    if mask.plain:
        bias: Any = causal_lower_right(query.shape[2], key.shape[2]) if query.shape[2] > 1 else None
        return scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale, enable_gqa=grouped
        )
    rows = mask.rows()
    if rows.dtype == torch.bool and mask.start and rows.shape[-1] > query.shape[2]:
        # Behind a sliding window nothing is seen: those keys need not be looked at.
        first = int(rows.flatten(0, 2).any(0).int().argmax())
        key, value, rows = key[:, :, first:], value[:, :, first:], rows[..., first:]
    if grouped and not query.is_cuda:  # the CPU kernel reads grouped keys as they are
        return scaled_dot_product_attention(
            query, key, value, attn_mask=rows, dropout_p=dropout, scale=scale, enable_gqa=True
        )
    if grouped:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=rows, dropout_p=dropout, scale=scale)


def _autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    """Cast as autocast would, which does not know the kernels that are called here by name."""
    if not torch.is_autocast_enabled("cpu"):
        return list(tensors)
    dtype = torch.get_autocast_dtype("cpu")
    return [tensor if tensor is None or tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors]


class _JoinedAttention(torch.autograd.Function):
    """Earlier keys without a mask, own keys causally, merged by log-sum-exp."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past_key: Tensor | None,
        past_value: Tensor | None,
        scale: float | None,
    ) -> Tensor:
        output, lse = _flash(query, key, value, 0.0, True, scale=scale)
        if past_key is not None:
            past_output, past_lse = _flash(query, past_key, past_value, 0.0, False, scale=scale)
            total = torch.logaddexp(lse, past_lse)
            own_share, past_share = ((part - total).exp().unsqueeze(-1) for part in (lse, past_lse))
            output = (output * own_share + past_output * past_share).to(query.dtype)
            lse = total
        ctx.save_for_backward(query, key, value, past_key, past_value, output, lse)
        ctx.scale = scale
        assert isinstance(output, Tensor)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, past_key, past_value, output, lse = ctx.saved_tensors
        options = {"scale": ctx.scale}
        grad_query, grad_key, grad_value = _flash_backward(grad, query, key, value, output, lse, 0.0, True, **options)
        if past_key is None:
            return grad_query, grad_key, grad_value, None, None, None
        past = _flash_backward(grad, query, past_key, past_value, output, lse, 0.0, False, **options)
        return grad_query + past[0], grad_key, grad_value, past[1], past[2], None
