"""How far a client's gradients are from those of the global model: the approximation error of the theory.

    Delta_i^2 = || gradient of the block under the client's model - under the global model ||^2

The average gradient of T rounds is O(1/sqrt(T)) down to a floor that grows with this error, with the differences
between clients and with the noise of gradients; it does not vanish. Shen et al., NeurIPS 2025, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thrifty.training.leff.client_model import ClientModel
from thrifty.training.leff.importance import Batch, LossFn, model_loss
from thrifty.training.leff.layers import LayerView, on_device


@dataclass(frozen=True)
class GradientGap:
    """The error of a block's gradient under a stand-in.

    Args:
        squared: Delta^2, averaged over batches.
        relative: Over the square of the true gradient's norm.
    """

    squared: float
    relative: float


def gradient_gap(
    model: nn.Module, client: ClientModel, batches: Sequence[Batch], loss_fn: LossFn | None = None
) -> GradientGap:
    """Return the error of a block's gradient that its stand-in causes, in evaluation mode.

    Args:
        model: The global model.
        client: Made out of it.
        batches: To measure on, with labels.
        loss_fn: ``loss_fn(model, batch)``; the model's own by default.

    Raises:
        ValueError: There is no batch.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from thrifty.training.leff.client_model import compress_context
        >>> from thrifty.training.leff.config import LeffConfig
        >>> tiny = GPT2Config(n_embd=8, n_layer=4, n_head=2)
        >>> model, ids = GPT2LMHeadModel(tiny), torch.arange(16).reshape(2, 8)
        >>> whole = compress_context(model, 1, 1, config=LeffConfig(compression="none"))
        >>> gradient_gap(model, whole, [{"input_ids": ids, "labels": ids}]).relative < 1e-10
        True

    Source:
        Shen et al., NeurIPS 2025, section 4 (assumption on the approximation error).
    """
    if not batches:
        raise ValueError("batches: expected at least one batch, got none")
    loss_fn = loss_fn or model_loss
    view = LayerView(model, client.path)
    names = [name for index in client.layout.block for name, _ in _parameters(view, index)]
    error = norm = 0.0
    for batch in batches:
        true = _gradient(model, {n: p for i in client.layout.block for n, p in _parameters(view, i)}, batch, loss_fn)
        mine = _gradient(client.model, {n: client.trained()[n] for n in names}, batch, loss_fn)
        error += sum(float((true[n] - mine[n]).double().square().sum()) for n in names)
        norm += sum(float(true[n].double().square().sum()) for n in names)
    return GradientGap(error / len(batches), error / norm if norm else 0.0)


def _parameters(view: LayerView, index: int) -> list[tuple[str, Tensor]]:
    return [(f"{view.path}.{index}.{name}", p) for name, p in view.layers[index].named_parameters()]


def _gradient(model: nn.Module, wanted: dict[str, Tensor], batch: Batch, loss_fn: LossFn) -> dict[str, Tensor]:
    flags = {p: p.requires_grad for p in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    try:
        model.requires_grad_(False)
        for tensor in wanted.values():
            tensor.requires_grad_(True)
        model.eval()
        loss = loss_fn(model, on_device(batch, next(model.parameters()).device))
        found: Sequence[Tensor | None] = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    finally:
        for p, flag in flags.items():
            p.requires_grad_(flag)
        for module, mode in modes.items():
            module.training = mode
    return {n: torch.zeros_like(t) if g is None else g for (n, t), g in zip(wanted.items(), found, strict=True)}
