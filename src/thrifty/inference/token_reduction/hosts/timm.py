"""timm's ``VisionTransformer`` and ``Eva`` (EVA-02, DINOv3, rope ViTs), and models with the same attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from thrifty.inference.token_reduction.hosts.block import (
    Heads,
    all_blocks_have,
    applied,
    join_heads,
    scaled,
    split_heads,
)
from thrifty.inference.token_reduction.hosts.host import Host
from thrifty.inference.token_reduction.rotary import Rotary


class TimmBlock:
    """``timm.models.vision_transformer.Block`` or ``timm.models.eva.EvaBlock``."""

    needs = ("norm1", "attn.qkv|attn.q_proj", "attn.proj", "norm2", "mlp")
    scale_query = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.heads, self.scale = block.attn.num_heads, float(block.attn.scale)
        self.fused = bool(getattr(block.attn, "fused_attn", True))

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.block.norm1(x)  # type: ignore[no-any-return]

    def rotary(self, given: Mapping[str, Any]) -> Rotary | None:  # noqa: D102
        if given.get("rope") is None:
            return None
        attn = self.block.attn
        sin, cos = given["rope"].chunk(2, dim=-1)
        return Rotary(cos, sin, not getattr(attn, "rotate_half", False), attn.num_prefix_tokens)

    def query_key_value(self, x: Tensor, rotary: Rotary | None = None) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        attn = self.block.attn
        if attn.qkv is None:
            q, k, v = (split_heads(project(x), self.heads) for project in (attn.q_proj, attn.k_proj, attn.v_proj))
        else:
            joined = self._joined(x)
            width = joined.shape[-1] // (3 * self.heads)
            q, k, v = joined.reshape(*x.shape[:2], 3, self.heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = applied(attn, "q_norm", q), applied(attn, "k_norm", k)
        return (q, k, v) if rotary is None else (rotary.turn(q).type_as(v), rotary.turn(k).type_as(v), v)

    def _joined(self, x: Tensor) -> Tensor:
        """Return queries, keys and values side by side; EVA's biases are parameters of their own, the keys' zero."""
        attn = self.block.attn
        if getattr(attn, "q_bias", None) is None:
            return attn.qkv(x)  # type: ignore[no-any-return]
        bias = torch.cat((attn.q_bias, attn.k_bias, attn.v_bias))
        return attn.qkv(x) + bias if attn.qkv_bias_separate else functional.linear(x, attn.qkv.weight, bias)

    def dropout(self) -> float:  # noqa: D102
        drop = getattr(self.block.attn, "attn_drop", None)
        return float(drop.p) if drop is not None and self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        block, attn = self.block, self.block.attn
        y = applied(attn, "norm", join_heads(out))
        if getattr(attn, "gate", None) is not None:
            y = y * attn.gate(normed).sigmoid()
        y = applied(attn, "proj_drop", attn.proj(y))
        return x + applied(block, "drop_path1", scaled(block, "gamma_1", applied(block, "ls1", y)))

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        y = applied(block, "ls2", block.mlp(block.norm2(x)))
        return x + applied(block, "drop_path2", scaled(block, "gamma_2", y))


def find(module: Any) -> Host | None:
    """Return a module as a host, if it has timm's layout."""
    blocks, embed = getattr(module, "blocks", None), getattr(module, "patch_embed", None)
    conv = getattr(embed, "proj", None)
    if not isinstance(conv, nn.Conv2d) or not all_blocks_have(blocks, TimmBlock.needs):
        return None
    has_class = getattr(module, "cls_token", None) is not None
    grid = getattr(embed, "grid_size", None)
    return Host(
        kind="timm",
        trunk=module,
        blocks=tuple(blocks),  # type: ignore[arg-type]
        patches=conv,
        prefix=int(getattr(module, "num_prefix_tokens", has_class)),
        has_class_token=has_class,
        grid=None if grid is None else (int(grid[0]), int(grid[1])),
        takes_apart=TimmBlock,
        rotary=getattr(module, "rope", None) is not None,
    )
