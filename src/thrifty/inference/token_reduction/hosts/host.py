"""A vision transformer that can be reduced: where its blocks are, and what comes before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from thrifty.inference.token_reduction.hosts.block import Block


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
        takes_apart: Makes a :class:`Block` of a block.
        rotary: Whether attention turns queries and keys by their place.
    """

    kind: str
    trunk: nn.Module
    blocks: tuple[nn.Module, ...]
    patches: nn.Conv2d
    prefix: int
    has_class_token: bool
    grid: tuple[int, int] | None
    takes_apart: Callable[[Any], Block]
    rotary: bool = False

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
        return self.takes_apart(self.blocks[index])
