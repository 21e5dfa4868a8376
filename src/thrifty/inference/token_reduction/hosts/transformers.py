"""ViT, DeiT, DINOv2, DINOv3, CLIP and SigLIP in transformers, version 5 (``q_proj``) or 4 (``query``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from thrifty.inference.token_reduction.hosts.block import (
    Heads,
    all_blocks_have,
    applied,
    either,
    join_heads,
    reached,
    split_heads,
)
from thrifty.inference.token_reduction.hosts.host import Host
from thrifty.inference.token_reduction.rotary import Rotary


class TransformersBlock:
    """A layer of one of these encoders."""

    needs = ("layernorm_before|norm1|layer_norm1", "attention|self_attn", "layernorm_after|norm2|layer_norm2")
    scale_query = False

    def __init__(self, block: Any) -> None:
        self.block = block
        outer = either(block, ("attention", "self_attn"))
        self._old = hasattr(outer, "attention")  # version 4 nests the projections one deeper
        inner = outer.attention if self._old else outer
        self.heads = either(inner, ("num_attention_heads", "num_heads"))
        scale = getattr(inner, "scaling", None) or getattr(inner, "scale", None)
        self.scale = float(scale) if scale else either(inner, ("attention_head_size", "head_dim")) ** -0.5
        self.fused = getattr(getattr(inner, "config", None), "_attn_implementation", "sdpa") != "eager"

    @property
    def _inner(self) -> Any:
        outer = either(self.block, ("attention", "self_attn"))
        return outer.attention if self._old else outer

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return either(self.block, ("layernorm_before", "norm1", "layer_norm1"))(x)  # type: ignore[no-any-return]

    def rotary(self, given: Mapping[str, Any]) -> Rotary | None:  # noqa: D102
        if given.get("position_embeddings") is None:
            return None
        cos, sin = given["position_embeddings"]
        config = self._inner.config  # DINOv3's: a class token and registers in front
        return Rotary(cos, sin, paired=False, prefix=1 + config.num_register_tokens)

    def query_key_value(self, x: Tensor, rotary: Rotary | None = None) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        inner = self._inner
        pairs = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
        q, k, v = (split_heads(either(inner, names)(x), self.heads) for names in pairs)
        return (q, k, v) if rotary is None else (rotary.turn(q), rotary.turn(k), v)

    def dropout(self) -> float:  # noqa: D102
        inner = self._inner
        held = getattr(inner, "attention_dropout", getattr(inner, "dropout_prob", getattr(inner, "dropout", 0.0)))
        return float(getattr(held, "p", held)) if self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        block = self.block
        if self._old:
            y = block.attention.output(join_heads(out), x)
        else:
            y = either(self._inner, ("o_proj", "out_proj"))(join_heads(out))
        if hasattr(block, "layer_scale1"):
            return applied(block, "drop_path", block.layer_scale1(y)) + x
        return applied(block, "dropout", y) + x

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        y = either(block, ("layernorm_after", "norm2", "layer_norm2"))(x)
        if hasattr(block, "intermediate"):  # version 4: the output adds the residual itself
            return block.output(block.intermediate(y), x)  # type: ignore[no-any-return]
        y = block.mlp(y)
        if hasattr(block, "layer_scale2"):
            return applied(block, "drop_path", block.layer_scale2(y)) + x
        return applied(block, "dropout", y) + x


def find(module: Any) -> Host | None:
    """Return a module as a host, if it has the layout of one of these encoders."""
    embeddings = getattr(module, "embeddings", None)
    stacks = (getattr(module, "encoder", None), getattr(module, "model", None), module)
    lists = [reached(stack, "layers|layer") for stack in stacks if stack is not None]
    blocks = next((found for found in lists if all_blocks_have(found, TransformersBlock.needs)), None)
    conv = reached(embeddings, "patch_embeddings.projection|patch_embedding|patch_embeddings")
    if blocks is None or not isinstance(embeddings, nn.Module) or not isinstance(conv, nn.Conv2d):
        return None
    has_class = any(getattr(embeddings, name, None) is not None for name in ("cls_token", "class_embedding"))
    prefix = int(has_class) + int(getattr(embeddings, "distillation_token", None) is not None)
    registers = getattr(embeddings, "register_tokens", None)
    return Host(
        kind="transformers",
        trunk=module,
        blocks=tuple(blocks),
        patches=conv,
        prefix=prefix + (0 if registers is None else registers.shape[1]),
        has_class_token=has_class,
        grid=_configured_grid(module, conv),
        takes_apart=TransformersBlock,
        rotary=getattr(module, "rope_embeddings", None) is not None,
    )


def _configured_grid(module: Any, conv: nn.Conv2d) -> tuple[int, int] | None:
    size = getattr(getattr(module, "config", None), "image_size", None)
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    return int(height) // int(conv.stride[0]), int(width) // int(conv.stride[1])
