"""Multiply-accumulates of a vision transformer, plain or reduced, from its shapes alone.

Counted: every matrix product, the patch convolution and the head; not counted: norms, softmax, activations, gathers.
A block costs 4 N D² (projections) + 2 N² D (attention) + 2 N D H (MLP of width H); the MLP of a block that drops tokens
between attention and MLP runs on what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from thrifty._common.checks import number, whole
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, PoolConfig, ToMeConfig, tokens_kept
from thrifty.inference.token_reduction.hosts import Host, find_host
from thrifty.inference.token_reduction.rivals.pool import pooled_grid


@dataclass(frozen=True)
class ViTDims:
    """The shapes that a count needs.

    Args:
        depth: Blocks.
        width: Of a token, D.
        mlp: Weights of the MLP, as a multiple of D (2 for a hidden layer as wide as D; 8 for the usual four times).
        heads: Of attention.
        patch: Pixels of a patch, rows and columns.
        prefix: Class, distillation and register tokens.
        channels: Of the image.
        classes: Outputs of the head; 0 for none.

    Raises:
        ValueError: One is no whole number, or negative.

    Example:
        >>> deit_base = ViTDims(width=768, heads=12)
        >>> round(count_macs(deit_base, config=FreqReduceConfig()) / 1e9, 2)  # published: 11.6
        11.62
    """

    depth: int = 12
    width: int = 384
    mlp: float = 8.0
    heads: int = 6
    patch: tuple[int, int] = (16, 16)
    prefix: int = 1
    channels: int = 3
    classes: int = 1000

    def __post_init__(self) -> None:
        for name in ("depth", "width", "heads", "channels"):
            whole(name, getattr(self, name))
        for name in ("prefix", "classes"):
            whole(name, getattr(self, name), least=0)
        number("mlp", self.mlp, "a multiple of the squared width, of at least 0", least=0)
        _pair("patch", self.patch)

    @classmethod
    def of(cls, model: nn.Module) -> ViTDims:
        """Read the shapes from a model.

        Raises:
            TypeError: No plain vision transformer is in it.
        """
        host = find_host(model)
        linear = [part for name, part in host.blocks[0].named_modules() if _is_mlp(name, part)]
        return cls(
            depth=len(host.blocks),
            width=host.width,
            mlp=sum(part.in_features * part.out_features for part in linear) / host.width**2,
            heads=host.part(0).heads,
            patch=host.patch_size,
            prefix=host.prefix,
            channels=int(host.patches.in_channels),
            classes=_classes(model, host),
        )


def token_counts(dims: ViTDims, image_size: tuple[int, int], config: Config | None = None) -> list[tuple[int, int]]:
    """Return, for each block, the tokens that its attention and its MLP see.

    Args:
        dims: The shapes of the model.
        image_size: Pixels, rows and columns.
        config: The setting; ``None``: all tokens stay.

    Raises:
        ValueError: The schedule does not fit the depth, or the image is smaller than a patch.

    Example:
        >>> token_counts(ViTDims(depth=3), (224, 224), FreqReduceConfig((2,), 0.5))
        [(197, 197), (197, 103), (103, 103)]

    Source:
        arXiv 2511.21477, which reduces between attention and MLP: so its published MACs come out.
    """
    if not isinstance(dims, ViTDims):
        raise TypeError(f"dims: expected ViTDims, got {type(dims).__name__}")
    if config is not None and not isinstance(config, Config):
        raise TypeError(f"config: expected a setting such as FreqReduceConfig, or None, got {type(config).__name__}")
    _pair("image_size", image_size)
    grid = (image_size[0] // dims.patch[0], image_size[1] // dims.patch[1])
    if min(grid) < 1:
        raise ValueError(f"image_size: {image_size} is smaller than a patch of {dims.patch}")
    live, extra = grid[0] * grid[1], 0
    layers: Sequence[int] = () if config is None else (config.layers or range(1, dims.depth + 1))
    if layers and layers[-1] > dims.depth:
        raise ValueError(f"layers: the model has {dims.depth} blocks, got {tuple(layers)}")
    counts = []
    for layer in range(1, dims.depth + 1):
        before = dims.prefix + live + extra
        if config is not None and layer in layers:
            live, extra, grid = _after(config, list(layers).index(layer), live, extra, grid)
        after = dims.prefix + live + extra
        counts.append((before, before if getattr(config, "where", "mid") == "end" else after))
    return counts


def count_macs(
    model: nn.Module | ViTDims, image_size: tuple[int, int] = (224, 224), config: Config | None = None
) -> int:
    """Return the multiply-accumulates of one image.

    Args:
        model: A vision transformer, or its shapes.
        image_size: Pixels, rows and columns.
        config: A reduction; ``None``: the one in force on the model, or none.

    Raises:
        TypeError: No plain vision transformer is in the model.
        ValueError: The schedule does not fit it.

    Example:
        >>> deit_small = ViTDims(width=384, heads=6)
        >>> round(count_macs(deit_small) / 1e9, 3), round(count_macs(deit_small, config=FreqReduceConfig()) / 1e9, 3)
        (4.599, 3.032)

    Source:
        arXiv 2511.21477, section 4 (published: DeiT-S 4.6 and 3.0 GMACs).
    """
    if isinstance(model, nn.Module):
        from thrifty.inference.token_reduction.patch import reduction_of

        reduction = reduction_of(model)
        config = reduction.config if config is None and reduction is not None else config
        model = ViTDims.of(model)
    if not isinstance(model, ViTDims):
        raise TypeError(f"model: expected a vision transformer or its ViTDims, got {type(model).__name__}")
    counts = token_counts(model, image_size, config)
    width = model.width
    patches = (image_size[0] // model.patch[0]) * (image_size[1] // model.patch[1])
    total = patches * width * model.patch[0] * model.patch[1] * model.channels + width * model.classes
    for attended, fed in counts:
        total += 4 * attended * width**2 + 2 * attended**2 * width + round(model.mlp * fed * width**2)
    if isinstance(config, ToMeConfig):  # similarities of the two sets, on the keys' mean over heads
        layers = config.layers or range(1, model.depth + 1)
        for layer in layers:
            tokens = counts[layer - 1][0] - model.prefix
            total += (tokens // 2) * (tokens - tokens // 2) * width // model.heads
    if isinstance(config, FreqReduceConfig):  # means of cells
        windows: Any = config.window
        for layer, window in zip(config.layers, windows, strict=True):
            total += window**2 * (counts[layer - 1][0] - model.prefix) * width
    return int(total)


def _pair(name: str, value: Any) -> None:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{name}: expected two numbers of pixels, rows and columns, got {value!r}")
    for side in value:
        whole(name, side, least=None, what="two whole numbers of pixels")


def _after(
    config: Config, stage: int, live: int, extra: int, grid: tuple[int, int]
) -> tuple[int, int, tuple[int, int]]:
    """Return live tokens, summaries and grid after a stage."""
    if isinstance(config, PoolConfig):
        share: Any = config.keep
        grid = pooled_grid(grid, share[stage])
        return grid[0] * grid[1], 0, grid
    if isinstance(config, ToMeConfig) and config.r is not None:
        return live - min(config.r, live // 2), 0, grid
    shares: Any = config.keep
    if isinstance(config, FreqReduceConfig):
        kept = tokens_kept(shares[stage], live, config.rounding)
        window: Any = config.window
        return (live, extra, grid) if kept >= live else (kept, window[stage] ** 2, grid)
    kept = tokens_kept(shares[stage], live)
    if isinstance(config, ToMeConfig):
        return live - min(live - kept, live // 2), 0, grid
    return (live, 0, grid) if kept >= live else (kept + int(config.fuse), 0, grid)


def _is_mlp(name: str, part: Any) -> bool:
    inside = name.split(".", maxsplit=1)[0]
    return isinstance(part, nn.Linear) and inside in {"mlp", "intermediate", "output"}


def _classes(model: nn.Module, host: Host) -> int:
    """Return outputs of the classification head: a linear layer on the pooled token."""
    for owner in (model, host.trunk):
        for name in ("head", "classifier", "head_dist"):
            head = getattr(owner, name, None)
            if isinstance(head, nn.Linear):
                return int(head.out_features)
    return 0
