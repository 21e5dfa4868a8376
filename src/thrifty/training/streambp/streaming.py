"""One layer, streamed: the forward pass chunk by chunk, the backward pass chunk by chunk from the last to the first.

Algorithm 1 of arXiv 2506.03077, with keys and values computed once a backward pass (the paper says so; its code
computes them again for every chunk). Walking backwards, the gradients of a chunk's keys and values are complete when
the chunk's turn comes, so that its output, keys and values are differentiated together and no graph outlives its chunk.
The sums of the parameters' gradients are *returned* to autograd, so that accumulation, hooks, DDP and FSDP meet each
parameter once a backward pass, as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.training.streambp.chunks import bounds, layer_chunk
from thrifty.training.streambp.config import StreamBPConfig
from thrifty.training.streambp.gradient_sums import GradientSums, accumulator
from thrifty.training.streambp.replay import Autocast, Randomness, first_order_only

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ChunkOutput:
    """What a layer makes of a chunk.

    Args:
        hidden: [batch, chunk, hidden].
        key: Keys of the chunk, [batch, kv heads, chunk, dim].
        value: Values of the chunk.
        extras: Further outputs that someone may differentiate (router logits), each [batch, chunk, ...].
    """

    hidden: Tensor
    key: Tensor
    value: Tensor
    extras: tuple[Tensor, ...] = ()


class Body(Protocol):
    """A layer that can be run on a chunk."""

    def parameters(self) -> Sequence[Tensor]:
        """Return the parameters that are trained."""

    def keys_and_values(self, hidden: Tensor, start: int, stop: int) -> Pair:
        """Return keys and values of positions ``start ... stop - 1``, at the cost of norm and projection."""

    def run(self, hidden: Tensor, start: int, stop: int, prefix: Pair | None) -> ChunkOutput:
        """Run the layer on positions ``start ... stop - 1``, given keys and values of the earlier ones."""


@dataclass
class Tally:
    """How often layers were run on chunks."""

    forward_chunks: int = 0
    backward_chunks: int = 0


@dataclass
class _Plan:
    body: Body
    config: StreamBPConfig
    chunks: list[tuple[int, int]]
    length: int
    tally: Tally
    randomness: Randomness
    autocast: Autocast
    wants: bool = True


def stream_layer(
    body: Body,
    hidden: Float[Tensor, "batch length hidden"],
    config: StreamBPConfig,
    tally: Tally | None = None,
    chunk_size: int | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a layer so that its backward pass needs the memory of a chunk.

    Args:
        body: The layer.
        hidden: Its input.
        config: The settings.
        tally: Counts the chunks.
        chunk_size: Tokens of a chunk, in place of the setting's.

    Returns:
        The layer's output, and its further outputs.

    Raises:
        ValueError: The layer draws random numbers (dropout) and ``chunk_forward`` is off.
    """
    length = hidden.shape[1]
    size = chunk_size or layer_chunk(config.layer_chunk_size, length)
    plan = _Plan(
        body,
        config,
        bounds(length, size),
        length,
        tally or Tally(),
        Randomness(hidden.device, config.preserve_rng_state or not config.chunk_forward),
        Autocast.now(hidden.device),
    )
    parameters = body.parameters()
    plan.wants = torch.is_grad_enabled() and (hidden.requires_grad or bool(parameters))
    kept = torch.autograd.graph.save_on_cpu(pin_memory=hidden.is_cuda) if config.offload else nullcontext()
    with kept:
        output, *extras = _StreamedLayer.apply(hidden, plan, *parameters)
    return output, tuple(extras)


class _StreamedLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, plan: _Plan, *parameters: Tensor) -> tuple[Tensor, ...]:
        with plan.autocast.replayed():
            output, extras, keys, values = _forward(hidden, plan)
        ctx.plan = plan
        if plan.wants:
            stored = (keys, values) if plan.config.kv_policy == "store" and len(plan.chunks) > 1 else ()
            ctx.save_for_backward(hidden, *stored)
        ctx.set_materialize_grads(False)
        return (output, *extras)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, grad: Tensor | None, *extra_grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, *stored = ctx.saved_tensors
        with ctx.plan.autocast.replayed():
            grad_hidden, grads = _backward(
                ctx.plan, hidden, grad, extra_grads, tuple(stored) or None, ctx.needs_input_grad[0]
            )
        return (grad_hidden, None, *grads)


def _forward(hidden: Tensor, plan: _Plan) -> tuple[Tensor, list[Tensor], Tensor | None, Tensor | None]:
    """Run the layer over all chunks without a graph."""
    chunks = plan.chunks if plan.config.chunk_forward else [(0, plan.length)]
    output: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None
    extras: list[Tensor] = []
    for start, stop in chunks:
        plan.randomness.mark()
        prefix = (
            (keys[:, :, :start], values[:, :, :start]) if start and keys is not None and values is not None else None
        )
        found = plan.body.run(hidden[:, start:stop], start, stop, prefix)
        plan.tally.forward_chunks += 1
        if len(chunks) == 1:
            output, extras, keys, values = found.hidden, list(found.extras), found.key, found.value
            break
        if output is None:
            output = _room(found.hidden, 1, plan.length)
            keys, values = (_room(x, 2, plan.length) for x in (found.key, found.value))
            extras = [_room(x, 1, plan.length) for x in found.extras]
        assert keys is not None
        assert values is not None
        output[:, start:stop] = found.hidden
        keys[:, :, start:stop], values[:, :, start:stop] = found.key, found.value
        for whole, part in zip(extras, found.extras, strict=True):
            whole[:, start:stop] = part
    plan.randomness.mark()
    if plan.randomness.drawn and not plan.config.chunk_forward:
        raise ValueError(
            "chunk_forward: the layer draws random numbers (dropout), which can only be drawn again chunk by chunk; "
            "use chunk_forward=True, or set the dropout to 0"
        )
    plan.randomness.settle()
    assert output is not None
    return output, extras, keys, values


def _backward(
    plan: _Plan,
    hidden: Tensor,
    grad: Tensor | None,
    extra_grads: Sequence[Tensor | None],
    stored: Pair | None,
    wants_hidden: bool,
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Walk the chunks from the last to the first."""
    body, parameters = plan.body, list(plan.body.parameters())
    last_start = plan.chunks[-1][0]
    keys, values = _prefix(plan, hidden, last_start) if stored is None and last_start else stored or (None, None)
    grad_keys = None if keys is None else accumulator(keys[:, :, :last_start], plan.config)
    grad_values = None if values is None else accumulator(values[:, :, :last_start], plan.config)
    grad_hidden: Tensor | None = None
    sums = GradientSums(parameters, plan.config)
    for number in reversed(range(len(plan.chunks))):
        start, stop = plan.chunks[number]
        h = hidden[:, start:stop].detach().requires_grad_()
        leaves: list[Tensor] = [h]
        prefix = None
        if start:
            assert keys is not None
            assert values is not None
            prefix = keys[:, :, :start].detach().requires_grad_(), values[:, :, :start].detach().requires_grad_()
            leaves += prefix
        with torch.enable_grad(), plan.randomness.replayed(number):
            found = body.run(h, start, stop, prefix)
        plan.tally.backward_chunks += 1
        targets: list[tuple[Tensor, Tensor]] = []
        if grad is not None:
            targets.append((found.hidden, grad[:, start:stop]))
        if stop < plan.length:
            assert grad_keys is not None
            assert grad_values is not None
            targets.append((found.key, grad_keys[:, :, start:stop].to(found.key.dtype)))
            targets.append((found.value, grad_values[:, :, start:stop].to(found.value.dtype)))
        for extra, extra_grad in zip(found.extras, extra_grads, strict=True):
            if extra_grad is not None:
                targets.append((extra, extra_grad[:, start:stop]))
        del found
        grad_h, *grad_prefix = sums.add(targets, leaves)
        del targets
        if wants_hidden and grad_h is not None:
            if len(plan.chunks) == 1:
                grad_hidden = grad_h
            else:
                grad_hidden = torch.zeros_like(hidden) if grad_hidden is None else grad_hidden
                grad_hidden[:, start:stop] = grad_h
        for total in (grad_keys, grad_values) if start else ():
            part = grad_prefix.pop(0)
            if total is not None and part is not None:
                total[:, :, :start] += part
            del part  # else these, as large as all earlier keys, would wait until the next chunk has run
    return grad_hidden, sums.results()


def _prefix(plan: _Plan, hidden: Tensor, length: int) -> Pair:
    """Compute the keys and values that later chunks look back at: those of all chunks but the last."""
    keys: Tensor | None = None
    values: Tensor | None = None
    for number, (start, stop) in enumerate(plan.chunks[:-1]):
        with torch.no_grad(), plan.randomness.replayed(number):
            key, value = plan.body.keys_and_values(hidden[:, start:stop], start, stop)
        if keys is None or values is None:
            keys, values = _room(key, 2, length), _room(value, 2, length)
        keys[:, :, start:stop], values[:, :, start:stop] = key, value
    assert keys is not None
    assert values is not None
    return keys, values


def _room(like: Tensor, dim: int, length: int) -> Tensor:
    """Return an empty tensor like a chunk's, for the whole sequence."""
    shape = list(like.shape)
    shape[dim] = length
    return torch.empty(shape, dtype=like.dtype, device=like.device)
