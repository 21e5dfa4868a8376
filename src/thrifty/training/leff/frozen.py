"""Frozen layers in fewer bits: bfloat16, or int8 weights with one scale a row.

A frozen layer is never updated, only passed through, so its weights need no more precision than its output does. What
enters and leaves it keeps the precision of the rest of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Int8Linear(nn.Module):
    """A frozen linear layer whose weight is int8 with a scale a row; gradients pass through to the input.

    Args:
        weight: Of ``nn.Linear``: outputs by inputs.
        bias: Or ``None``.
    """

    weight_int8: Tensor
    weight_scale: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        scale = weight.detach().float().abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
        self.register_buffer("weight_int8", (weight.detach().float() / scale).round().to(torch.int8))
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", None if bias is None else bias.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer in the precision of its input."""
        weight = (self.weight_int8.float() * self.weight_scale).to(x.dtype)
        return nn.functional.linear(x, weight, None if self.bias is None else self.bias.to(x.dtype))


def cast_frozen(layers: Sequence[nn.Module], dtype: str) -> None:
    """Hold frozen layers in another precision, in place of this copy of them.

    Args:
        layers: Of a model that shares tensors with another; the tensors themselves are not changed.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"int8"``.
    """
    for layer in layers:
        if dtype == "int8":
            _quantise(layer)
        else:
            _recast(layer, getattr(torch, dtype))


def _quantise(layer: nn.Module) -> None:
    for module in list(layer.modules()):
        child: Any
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child.weight, child.bias))
            elif type(child).__name__ == "Conv1D":  # GPT-2's: inputs by outputs
                setattr(module, name, Int8Linear(child.weight.T, child.bias))


def _recast(layer: nn.Module, dtype: torch.dtype) -> None:
    for module in layer.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(p.detach().to(dtype), requires_grad=False))
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.is_floating_point():
                module.register_buffer(
                    name, buffer.to(dtype), persistent=name not in module._non_persistent_buffers_set
                )

    def cast(value: Any, to: torch.dtype) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value.to(to)
        if isinstance(value, tuple):
            return tuple(cast(part, to) for part in value)
        return value

    def enter(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        hidden = args[0] if args else kwargs["hidden_states"]
        module._outside = hidden.dtype
        return tuple(cast(a, dtype) for a in args), {key: cast(value, dtype) for key, value in kwargs.items()}

    def leave(module: Any, _: Any, output: Any) -> Any:
        return cast(output, module._outside)

    layer.register_forward_pre_hook(enter, with_kwargs=True)
    layer.register_forward_hook(leave)
