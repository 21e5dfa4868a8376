"""What a reduction needs of one transformer block, whichever host it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty.inference.token_reduction.rotary import Rotary

Heads = Float[Tensor, "batch head n d"]


class Block(Protocol):
    """One pre-norm transformer block, taken apart; every part that is called is the host's own."""

    block: nn.Module
    heads: int
    scale: float
    fused: bool
    scale_query: bool  # q scaled before the product (timm) or the product scaled (transformers): they round differently

    def first_norm(self, x: Tensor) -> Tensor:
        """Return the sequence as attention sees it."""

    def rotary(self, given: Mapping[str, Any]) -> Rotary | None:
        """Return the rotary positions among the keyword arguments that the host calls the block with, if any."""

    def query_key_value(self, x: Tensor, rotary: Rotary | None = None) -> tuple[Heads, Heads, Heads]:
        """Return what attention is made of, for a normalised sequence (and the rotary rows of its tokens)."""

    def dropout(self) -> float:
        """Return the dropout of attention's weights, 0 outside training."""

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:
        """Return x plus the projected attention output."""

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return x plus the MLP half."""


def attend(part: Block, query: Heads, key: Heads, value: Heads, bias: Tensor | None = None) -> Heads:
    """Return plain attention as the host computes it, fused or by an explicit matrix."""
    drop = part.dropout()
    if part.fused:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=drop, scale=part.scale
        )
    if part.scale_query:
        logits = (query * part.scale) @ key.transpose(-2, -1)
    else:
        logits = query @ key.transpose(-2, -1) * part.scale
    if bias is not None:
        logits = logits + bias
    weights = logits.softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32)).to(query.dtype)
    return functional.dropout(weights, drop) @ value if drop else weights @ value


def split_heads(x: Tensor, heads: int) -> Heads:
    """Return batch x tokens x width as batch x head x tokens x width of a head."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


def join_heads(x: Heads) -> Tensor:
    """Return the heads side by side again."""
    return x.transpose(1, 2).flatten(2)


def either(owner: Any, names: tuple[str, ...]) -> Any:
    """Return the first attribute that is there."""
    for name in names:
        if hasattr(owner, name):
            return getattr(owner, name)
    raise AttributeError(f"{type(owner).__name__} has none of {', '.join(names)}")


def reached(owner: Any, path: str) -> Any:
    """Return what a path with dots leads to, or ``None``; ``a|b`` is the first of two that leads somewhere."""
    for option in path.split("|"):
        found = owner
        for name in option.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return found
    return None


def applied(owner: Any, name: str, x: Tensor) -> Tensor:
    """Apply a part that not every version of a host has."""
    part = getattr(owner, name, None)
    return x if part is None else part(x)


def scaled(owner: Any, name: str, x: Tensor) -> Tensor:
    """Multiply by a parameter that not every version of a host has."""
    factor = getattr(owner, name, None)
    return x if factor is None else factor * x


def all_blocks_have(blocks: Any, needs: tuple[str, ...]) -> bool:
    """Tell whether these are blocks, in a list of torch, that have all that is needed."""
    listed = isinstance(blocks, (nn.Sequential, nn.ModuleList)) and len(blocks) > 0
    return listed and all(reached(block, path) is not None for block in blocks for path in needs)
