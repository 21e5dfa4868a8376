"""The vision tower of open_clip, with its plain blocks, whose attention is torch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from thrifty.inference.token_reduction.hosts.block import Heads, all_blocks_have, applied, join_heads, split_heads
from thrifty.inference.token_reduction.hosts.host import Host
from thrifty.inference.token_reduction.rotary import Rotary


class OpenClipBlock:
    """``open_clip.transformer.ResidualAttentionBlock``."""

    needs = ("ln_1", "attn.in_proj_weight", "attn.out_proj", "ln_2", "mlp")
    fused = True
    scale_query = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.heads = block.attn.num_heads
        self.scale = float(block.attn.head_dim**-0.5)

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.block.ln_1(x)  # type: ignore[no-any-return]

    def rotary(self, given: Mapping[str, Any]) -> Rotary | None:  # noqa: D102
        return None

    def query_key_value(self, x: Tensor, rotary: Rotary | None = None) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        attn = self.block.attn
        q, k, v = functional.linear(x, attn.in_proj_weight, attn.in_proj_bias).chunk(3, dim=-1)
        return split_heads(q, self.heads), split_heads(k, self.heads), split_heads(v, self.heads)

    def dropout(self) -> float:  # noqa: D102
        return float(self.block.attn.dropout) if self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        return x + applied(self.block, "ls_1", self.block.attn.out_proj(join_heads(out)))

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        return x + applied(block, "ls_2", block.mlp(block.ln_2(x)))


def find(module: Any) -> Host | None:
    """Return a module as a host, if it is a tower of open_clip.

    Raises:
        TypeError: It is one that keeps tokens first, or whose blocks are open_clip's custom ones.
    """
    stack, conv = getattr(module, "transformer", None), getattr(module, "conv1", None)
    blocks = getattr(stack, "resblocks", None)
    if not isinstance(conv, nn.Conv2d) or not all_blocks_have(blocks, OpenClipBlock.needs[:1]):
        return None
    if not all_blocks_have(blocks, OpenClipBlock.needs) or any(
        not isinstance(block.attn, nn.MultiheadAttention)
        for block in blocks  # type: ignore[union-attr]
    ):
        raise TypeError(
            f"model: {type(blocks[0]).__name__} is not a plain block of open_clip: it was looked for one with "  # type: ignore[index]
            f"{', '.join(OpenClipBlock.needs)}, whose attn is torch's MultiheadAttention; custom blocks (qk_norm, "
            "scaled_cosine, scale_heads) cannot be reduced"
        )
    if not getattr(stack, "batch_first", True):
        raise TypeError(
            "model: this open_clip tower keeps tokens first (batch_first=False); make it with batch_first=True"
        )
    return Host(
        kind="open_clip",
        trunk=module,
        blocks=tuple(blocks),  # type: ignore[arg-type]
        patches=conv,
        prefix=1,
        has_class_token=True,
        grid=(int(module.grid_size[0]), int(module.grid_size[1])),
        takes_apart=OpenClipBlock,
    )
