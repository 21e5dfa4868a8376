"""Clean-room rivals that no installed package gives: tiled feed-forward layers, as MsT and ALST have them.

MsT (arXiv 2407.15892) runs the feed-forward layer on pieces of the sequence; ALST's TiledMLP (arXiv 2506.13996) also
recomputes each piece in its own backward pass. Both leave attention and projections whole.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def tile_feed_forward(model: Any, tiles: int, *, recompute: bool) -> Callable[[], None]:
    """Let every layer's ``mlp`` run on ``tiles`` pieces of the sequence; return what undoes it.

    Args:
        model: A Hugging Face decoder whose layers have an ``mlp``.
        tiles: Number of pieces.
        recompute: Compute each piece again in the backward pass (TiledMLP) instead of keeping its activations (MsT).
    """
    patched: list[nn.Module] = []
    for layer in model.get_decoder().layers:
        mlp = layer.mlp
        mlp.forward = partial(_tiled, type(mlp).forward.__get__(mlp), tiles, recompute)
        patched.append(mlp)

    def undo() -> None:
        for mlp in patched:
            del mlp.forward

    return undo


def _tiled(forward: Callable[[Tensor], Tensor], tiles: int, recompute: bool, hidden: Tensor) -> Tensor:
    run = partial(checkpoint, forward, use_reentrant=False) if recompute else forward
    return torch.cat([run(piece) for piece in hidden.chunk(tiles, dim=1)], dim=1)
