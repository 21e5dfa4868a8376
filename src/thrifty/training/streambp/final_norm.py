"""The norm between the last layer and the head, streamed: it works position by position, so any chunk of it is exact.

Left whole, its graph (input, squares, normalised input, their gradients) outweighs a streamed layer on long sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.training.streambp.chunks import bounds, layer_chunk
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.gradient_sums import GradientSums
from thrifty.training.streambp.replay import Autocast, first_order_only

#: What families call it.
NAMES = ("norm", "final_layernorm", "final_layer_norm", "ln_f", "embedding_norm")


def find_final_norm(decoder: nn.Module) -> nn.Module | None:
    """Return a decoder's last norm, if it is a plain module of trained vectors under one of the usual names."""
    for name in NAMES:
        found = getattr(decoder, name, None)
        if isinstance(found, nn.Module) and not list(found.children()) and all(p.ndim < 2 for p in found.parameters()):
            return found
    return None


def stream_positions(
    call: Callable[[Tensor], Tensor],
    hidden: Float[Tensor, "batch length hidden"],
    parameters: Sequence[Tensor],
    config: StreamBPConfig,
) -> Float[Tensor, "batch length hidden"]:
    """Return ``call(hidden)`` for a function of each position alone, at the memory of a chunk's graph.

    Args:
        call: The function; it must keep the shape.
        hidden: Its input.
        parameters: What is trained in it.
        config: The settings.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found: Tensor = _Positions.apply(hidden, call, config, Autocast.now(hidden.device), *trained)
    return found


class _Positions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        call: Callable[[Tensor], Tensor],
        config: StreamBPConfig,
        cast: Autocast,
        *trained: Tensor,
    ) -> Tensor:
        ctx.call, ctx.config, ctx.cast, ctx.trained = call, config, cast, trained
        ctx.save_for_backward(hidden)
        output: Tensor | None = None
        with cast.replayed():
            for start, stop in _chunks(hidden, config):
                part = call(hidden[:, start:stop])
                output = torch.empty(hidden.shape, dtype=part.dtype, device=part.device) if output is None else output
                output[:, start:stop] = part
        assert output is not None
        return output

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (hidden,) = ctx.saved_tensors
        sums = GradientSums(list(ctx.trained), ctx.config)
        grad_hidden = torch.zeros_like(hidden)
        with ctx.cast.replayed():
            for start, stop in _chunks(hidden, ctx.config):
                h = hidden[:, start:stop].detach().requires_grad_()
                with torch.enable_grad():
                    part = ctx.call(h)
                (grad_h,) = sums.add([(part, grad[:, start:stop])], [h])
                if grad_h is not None:
                    grad_hidden[:, start:stop] = grad_h
        return (grad_hidden, None, None, None, *sums.results())


def _chunks(hidden: Tensor, config: StreamBPConfig) -> list[tuple[int, int]]:
    return bounds(hidden.shape[1], layer_chunk(config.layer_chunk_size, hidden.shape[1]))
