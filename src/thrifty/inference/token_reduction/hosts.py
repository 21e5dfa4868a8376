"""The vision transformers that can be reduced: where their blocks are, and what is in a block.

Hosts are told by the attributes that they have, never by their class, so that neither timm nor open_clip is imported
and a model of one's own with the same layout will do. A block is taken apart into its attention (queries, keys, values
and what is done with the output) and its feed-forward half; every part that is called is the host's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Heads = Float[Tensor, "batch head n d"]


class Block(Protocol):
    """One pre-norm transformer block, taken apart."""

    block: nn.Module
    heads: int
    scale: float
    fused: bool
    scale_query: bool  # q scaled before the product (timm) or the product scaled (transformers): they round differently

    def query_key_value(self, x: Tensor) -> tuple[Heads, Heads, Heads]:
        """Return what attention is made of, for a normalised sequence."""

    def dropout(self) -> float:
        """Return the dropout of attention's weights, 0 outside training."""

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:
        """Return x plus the projected attention output."""

    def first_norm(self, x: Tensor) -> Tensor:
        """Return the sequence as attention sees it."""

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return x plus the MLP half."""


def _split(x: Tensor, heads: int) -> Heads:
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).transpose(1, 2)


def _join(x: Heads) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class TimmBlock:
    """``timm.models.vision_transformer.Block``, and blocks of one's own that have its attributes."""

    needs = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp")
    scale_query = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.heads, self.scale = block.attn.num_heads, float(block.attn.scale)
        self.fused = bool(getattr(block.attn, "fused_attn", True))

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.block.norm1(x)  # type: ignore[no-any-return]

    def query_key_value(self, x: Tensor) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        attn = self.block.attn
        joined = attn.qkv(x)
        width = joined.shape[-1] // (3 * self.heads)
        q, k, v = joined.reshape(*x.shape[:2], 3, self.heads, width).permute(2, 0, 3, 1, 4).unbind(0)
        return _optional(attn, "q_norm", q), _optional(attn, "k_norm", k), v

    def dropout(self) -> float:  # noqa: D102
        drop = getattr(self.block.attn, "attn_drop", None)
        return float(drop.p) if drop is not None and self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        block, attn = self.block, self.block.attn
        y = _optional(attn, "norm", _join(out))
        if getattr(attn, "gate", None) is not None:
            y = y * attn.gate(normed).sigmoid()
        y = _optional(attn, "proj_drop", attn.proj(y))
        return x + _optional(block, "drop_path1", _optional(block, "ls1", y))

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        return x + _optional(block, "drop_path2", _optional(block, "ls2", block.mlp(block.norm2(x))))


class TransformersBlock:
    """A layer of ViT, DeiT, DINOv2, CLIP or SigLIP in transformers, version 5 (``q_proj``) or 4 (``query``)."""

    needs = ("layernorm_before|norm1|layer_norm1", "attention|self_attn", "layernorm_after|norm2|layer_norm2")
    scale_query = False

    def __init__(self, block: Any) -> None:
        self.block = block
        outer = _either(block, ("attention", "self_attn"))
        self._old = hasattr(outer, "attention")  # version 4 nests the projections one deeper
        inner = outer.attention if self._old else outer
        self.heads = _either(inner, ("num_attention_heads", "num_heads"))
        scale = getattr(inner, "scaling", None) or getattr(inner, "scale", None)
        self.scale = float(scale) if scale else _either(inner, ("attention_head_size", "head_dim")) ** -0.5
        self.fused = getattr(getattr(inner, "config", None), "_attn_implementation", "sdpa") != "eager"

    @property
    def _inner(self) -> Any:
        outer = _either(self.block, ("attention", "self_attn"))
        return outer.attention if self._old else outer

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return _either(self.block, ("layernorm_before", "norm1", "layer_norm1"))(x)  # type: ignore[no-any-return]

    def query_key_value(self, x: Tensor) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        inner = self._inner
        pairs = (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"))
        q, k, v = (_split(_either(inner, names)(x), self.heads) for names in pairs)
        return q, k, v

    def dropout(self) -> float:  # noqa: D102
        inner = self._inner
        held = getattr(inner, "attention_dropout", getattr(inner, "dropout_prob", getattr(inner, "dropout", 0.0)))
        return float(getattr(held, "p", held)) if self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        block = self.block
        if self._old:
            y = block.attention.output(_join(out), x)
        else:
            y = _either(self._inner, ("o_proj", "out_proj"))(_join(out))
        if hasattr(block, "layer_scale1"):
            return self._path(block.layer_scale1(y)) + x
        return _optional(block, "dropout", y) + x

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        y = _either(block, ("layernorm_after", "norm2", "layer_norm2"))(x)
        if hasattr(block, "intermediate"):  # version 4: the output adds the residual itself
            return block.output(block.intermediate(y), x)  # type: ignore[no-any-return]
        y = block.mlp(y)
        if hasattr(block, "layer_scale2"):
            return self._path(block.layer_scale2(y)) + x
        return _optional(block, "dropout", y) + x

    def _path(self, y: Tensor) -> Tensor:
        return _optional(self.block, "drop_path", y)


class OpenClipBlock:
    """``open_clip.transformer.ResidualAttentionBlock``, whose attention is torch's."""

    needs = ("ln_1", "attn.in_proj_weight", "attn.out_proj", "ln_2", "mlp")
    fused = True
    scale_query = True

    def __init__(self, block: Any) -> None:
        self.block = block
        self.heads = block.attn.num_heads
        self.scale = float(block.attn.head_dim**-0.5)

    def first_norm(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.block.ln_1(x)  # type: ignore[no-any-return]

    def query_key_value(self, x: Tensor) -> tuple[Heads, Heads, Heads]:  # noqa: D102
        attn = self.block.attn
        q, k, v = functional.linear(x, attn.in_proj_weight, attn.in_proj_bias).chunk(3, dim=-1)
        return _split(q, self.heads), _split(k, self.heads), _split(v, self.heads)

    def dropout(self) -> float:  # noqa: D102
        return float(self.block.attn.dropout) if self.block.training else 0.0

    def add_attention(self, x: Tensor, normed: Tensor, out: Heads) -> Tensor:  # noqa: D102
        return x + _optional(self.block, "ls_1", self.block.attn.out_proj(_join(out)))

    def feed_forward(self, x: Tensor) -> Tensor:  # noqa: D102
        block = self.block
        return x + _optional(block, "ls_2", block.mlp(block.ln_2(x)))


@dataclass(frozen=True)
class Host:
    """A vision transformer that can be reduced.

    Args:
        kind: ``"timm"``, ``"transformers"`` or ``"open_clip"``.
        trunk: The module that owns the blocks (the model itself, or a part of it).
        blocks: Its transformer blocks, in order.
        patches: The convolution that makes patch tokens.
        prefix: Tokens before the patches: class, distillation, registers.
        has_class_token: Whether the first token is a class token.
        grid: Patch rows and columns at the configured image size, if there is one.
        pooler: What turns tokens into the output: ``"token"``, ``"avg"``, ``"map"``, ... as far as it is known.
    """

    kind: str
    trunk: nn.Module
    blocks: tuple[nn.Module, ...]
    patches: nn.Conv2d
    prefix: int
    has_class_token: bool
    grid: tuple[int, int] | None
    pooler: str

    @property
    def patch_size(self) -> tuple[int, int]:
        """Return pixels of a patch: rows and columns."""
        height, width = self.patches.stride[0], self.patches.stride[1]
        return int(height), int(width)

    @property
    def width(self) -> int:
        """Return the width of a token."""
        return int(self.patches.out_channels)

    def part(self, index: int) -> Block:
        """Return a block taken apart."""
        kind = {"timm": TimmBlock, "transformers": TransformersBlock, "open_clip": OpenClipBlock}[self.kind]
        return kind(self.blocks[index])  # type: ignore[return-value]


def find_host(model: nn.Module) -> Host:
    """Return the vision transformer in a model, whichever of the known layouts it has.

    Args:
        model: A timm ``VisionTransformer``, a transformers ViT, DeiT, DINOv2, CLIP or SigLIP vision model (with or
            without a head), an open_clip vision tower, or something that holds exactly one of these as a submodule.

    Raises:
        TypeError: There is none, or more than one; the message lists what was looked for.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch module, got {type(model).__name__}")
    found: list[Host] = []
    inside: set[int] = set()
    for module in model.modules():
        if id(module) in inside:
            continue
        host = _timm(module) or _transformers(module) or _open_clip(module)
        if host is not None:
            found.append(host)
            inside |= {id(part) for part in module.modules()}
    if len(found) == 1:
        _refuse_unfit(found[0])
        return found[0]
    if found:
        raise TypeError(f"model: {type(model).__name__} holds {len(found)} vision transformers; pass the one to reduce")
    raise TypeError(
        f"model: {type(model).__name__} is no plain vision transformer. Looked for timm's (patch_embed.proj, blocks "
        f"with {', '.join(TimmBlock.needs)}), transformers' (embeddings, layers with "
        f"{', '.join(TransformersBlock.needs)}) and open_clip's (conv1, transformer.resblocks with "
        f"{', '.join(OpenClipBlock.needs)}). Hierarchical and windowed models (Swin, ConvNeXt, SAM, ViTDet) have no "
        "constant grid of tokens and cannot be reduced"
    )


def _timm(module: Any) -> Host | None:
    blocks, embed = getattr(module, "blocks", None), getattr(module, "patch_embed", None)
    conv = getattr(embed, "proj", None)
    if not isinstance(blocks, (nn.Sequential, nn.ModuleList)) or not isinstance(conv, nn.Conv2d) or not len(blocks):
        return None
    if not all(_has(block, name) for block in blocks for name in TimmBlock.needs):
        return None
    has_class = getattr(module, "cls_token", None) is not None
    grid = getattr(embed, "grid_size", None)
    pooler = getattr(module, "global_pool", "token" if has_class else "avg")
    return Host(
        "timm", module, tuple(blocks), conv, int(getattr(module, "num_prefix_tokens", has_class)), has_class,
        None if grid is None else (int(grid[0]), int(grid[1])), str(pooler or "none"),
    )  # fmt: skip


def _transformers(module: Any) -> Host | None:
    embeddings = getattr(module, "embeddings", None)
    stack = getattr(module, "encoder", module)
    blocks = getattr(stack, "layers", getattr(stack, "layer", None))
    if not isinstance(embeddings, nn.Module) or not isinstance(blocks, nn.ModuleList) or not len(blocks):
        return None
    if not all(_has(block, name) for block in blocks for name in TransformersBlock.needs):
        return None
    conv = _first(embeddings, ("patch_embeddings.projection", "patch_embedding"))
    if not isinstance(conv, nn.Conv2d):
        return None
    tokens = [getattr(embeddings, name, None) for name in ("cls_token", "class_embedding")]
    has_class = any(token is not None for token in tokens)
    prefix = int(has_class) + int(getattr(embeddings, "distillation_token", None) is not None)
    registers = getattr(embeddings, "register_tokens", None)
    prefix += 0 if registers is None else registers.shape[1]
    return Host(
        "transformers", module, tuple(blocks), conv, prefix, has_class, _configured_grid(module, conv),
        "token" if has_class else "map",
    )  # fmt: skip


def _open_clip(module: Any) -> Host | None:
    stack, conv = getattr(module, "transformer", None), getattr(module, "conv1", None)
    blocks = getattr(stack, "resblocks", None)
    if not isinstance(blocks, (nn.ModuleList, nn.Sequential)) or not isinstance(conv, nn.Conv2d) or not len(blocks):
        return None
    if not all(_has(block, name) and isinstance(block.attn, nn.MultiheadAttention) for block in blocks
               for name in OpenClipBlock.needs):  # fmt: skip
        return None
    if not getattr(stack, "batch_first", True):
        raise TypeError(
            "model: this open_clip tower keeps tokens first (batch_first=False); make it with batch_first=True"
        )
    grid = module.grid_size
    pooler = "map" if getattr(module, "attn_pool", None) is not None else str(getattr(module, "pool_type", "tok"))
    return Host("open_clip", module, tuple(blocks), conv, 1, True, (int(grid[0]), int(grid[1])), pooler)


def _refuse_unfit(host: Host) -> None:
    """Refuse what has the attributes and computes something else."""
    trunk: Any = host.trunk
    if _set(trunk, "rope") or _set(trunk, "rel_pos_bias") or _set(trunk, "shared_rel_pos"):
        raise TypeError(
            f"model: {type(trunk).__name__} is not a plain pre-norm block after another: rotary or relative positions "
            "belong to places in the whole grid and cannot be reduced"
        )
    if _set(getattr(trunk, "patch_embed", None), "backbone"):
        raise TypeError(
            "model: its patches come from a convolutional backbone; Looked for timm's plain patch_embed.proj"
        )
    for index, block in enumerate(host.blocks, start=1):
        name = type(block).__name__
        odd = [part for part in ("rope", "window_size", "cpe", "attn_scale", "diff") if getattr(block, part, None)]
        attn = getattr(block, "attn", None)
        odd += [part for part in ("rope", "rel_pos_h", "relative_position_bias_table", "lambda_q1") if _set(attn, part)]
        if name in {"ResPostBlock", "ParallelScalingBlock", "DiffParallelScalingBlock", "ParallelThingsBlock"} or odd:
            raise TypeError(
                f"model: block {index} ({name}) is not a plain pre-norm block: {', '.join(odd) or name}. Windowed "
                "attention, relative or rotary positions and parallel blocks cannot be reduced"
            )


def _set(owner: Any, name: str) -> bool:
    return getattr(owner, name, None) is not None


def _configured_grid(module: Any, conv: nn.Conv2d) -> tuple[int, int] | None:
    size = getattr(getattr(module, "config", None), "image_size", None)
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
    return int(height) // int(conv.stride[0]), int(width) // int(conv.stride[1])


def _either(owner: Any, names: tuple[str, ...]) -> Any:
    """Return the first attribute that is there."""
    for name in names:
        if hasattr(owner, name):
            return getattr(owner, name)
    raise AttributeError(f"{type(owner).__name__} has none of {', '.join(names)}")


def _first(owner: Any, paths: tuple[str, ...]) -> Any:
    """Return what the first path with dots leads to, or ``None``."""
    for path in paths:
        found = owner
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return found
    return None


def _has(owner: Any, path: str) -> bool:
    """Tell whether a path is there; ``a|b`` asks for either."""
    return any(_first(owner, (option,)) is not None for option in path.split("|"))


def _optional(owner: Any, name: str, x: Tensor) -> Tensor:
    """Apply a part that not every version of a host has."""
    part = getattr(owner, name, None)
    return x if part is None else part(x)


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
