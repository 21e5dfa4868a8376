"""Gradients summed over chunks, in float32 (or more) where they come in 16 bits, and rounded once at the end."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thrifty.training.streambp.config import StreamBPConfig


def hand_out_once(ctx: Any, upstream: Tensor | None, instead: str) -> tuple[Tensor | None, ...]:
    """Return the gradients that a forward pass left in ``ctx.grads``, times ``upstream``.

    Raises:
        RuntimeError: They were handed out before; ``instead`` says what to do.
    """
    if ctx.grads is None:
        raise RuntimeError(instead)
    grads, ctx.grads = ctx.grads, None  # no reference stays behind, so that .grad takes the buffers over
    if upstream is None:
        return (None,) * len(grads)
    if upstream.item() == 1.0:
        return tuple(grads)
    return tuple(grad if grad is None else grad.mul_(upstream.to(grad.dtype)) for grad in grads)


class GradientSums:
    """The gradients of a layer's parameters, summed over its chunks.

    Args:
        parameters: Those that are trained.
        config: Says where and in which precision they are summed.
    """

    def __init__(self, parameters: list[Tensor], config: StreamBPConfig) -> None:
        self._parameters = parameters
        self._in_place = config.grad_mode == "inplace"
        self._config = config
        self._sums: list[Tensor | None] = [None] * len(parameters)

    def add(self, targets: list[tuple[Tensor, Tensor]], leaves: list[Tensor]) -> list[Tensor | None]:
        """Back-propagate through one chunk; return the gradients of ``leaves``."""
        targets = [(output, grad) for output, grad in targets if output.requires_grad]
        if not targets:
            return [None] * len(leaves)
        outputs, grads = zip(*targets, strict=True)
        if self._in_place:
            torch.autograd.backward(outputs, grads, inputs=[*leaves, *self._parameters])
            return [leaf.grad for leaf in leaves]
        inputs = [*leaves, *self._parameters]
        found: list[Tensor | None] = list(torch.autograd.grad(outputs, inputs, grads, allow_unused=True))
        own = found[: len(leaves)]
        del found[: len(leaves)]
        for place, part in enumerate(found):
            found[place] = None
            if part is None:
                continue
            total = self._sums[place]
            if total is None:
                low = part.dtype in {torch.bfloat16, torch.float16}
                self._sums[place] = part.to(self._config.torch_accum_dtype) if low else part
            else:
                self._sums[place] = total.add_(part)
        return own

    def results(self) -> list[Tensor | None]:
        """Return one gradient a parameter, in its own precision, and let go of them."""
        sums, self._sums = self._sums, []
        if self._in_place:
            return [None] * len(self._parameters)
        return [
            None if total is None else total.to(parameter.dtype)
            for total, parameter in zip(sums, self._parameters, strict=True)
        ]


def accumulator(like: Tensor, config: StreamBPConfig) -> Tensor:
    """Return zeros in which 16-bit gradients are summed in more bits."""
    low = like.dtype in {torch.bfloat16, torch.float16}
    return torch.zeros(like.shape, dtype=config.torch_accum_dtype if low else like.dtype, device=like.device)
