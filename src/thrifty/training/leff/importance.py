"""How important each layer is: what the loss would change by if the layer were zero, to first order, squared.

    I_l = sum over m in layer l of (g_m theta_m)^2,    I_k = sum over l = k .. k + n - 1 of I_l

Shen et al., NeurIPS 2025, section 3; the average over batches of squares is that of Molchanov et al., CVPR 2019.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.checks import one_of, whole
from thrifty.training.leff.layers import LayerView, on_device

Batch = Mapping[str, Any]
LossFn = Callable[[nn.Module, Batch], Tensor]


def model_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Return a Hugging Face model's own loss.

    Raises:
        ValueError: The batch has no labels.
    """
    if "labels" not in batch:
        raise ValueError(
            f"batch: expected 'labels' for the model's own loss, got {', '.join(batch)}; label it, pass loss_fn, or "
            "let clients measure importance (importance='clients')"
        )
    loss: Tensor = model(**batch).loss
    return loss


def layer_importance(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: LossFn | None = None,
    *,
    estimator: str = "per_batch",
    layers: str | None = None,
) -> Float[Tensor, " layer"]:
    """Return the first-order importance of every layer: the sum of squares of gradient times weight.

    One forward and backward pass over the batches in evaluation mode; the model is left as it was.

    Args:
        model: As :class:`LayerView` takes it.
        batches: Of the data that importance is measured on.
        loss_fn: ``loss_fn(model, batch)``; the model's own loss by default.
        estimator: ``"per_batch"``: square every batch's, then average; ``"mean_gradient"``: average, then square.
        layers: Path of the layers, where they are not found.

    Returns:
        I, in float32. Weights that two layers share count for the first.

    Raises:
        ValueError: There is no batch, or a loss is not finite.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> tiny = LlamaConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2)
        >>> ids = torch.arange(12).reshape(2, 6)
        >>> layer_importance(LlamaForCausalLM(tiny), [{"input_ids": ids, "labels": ids}]).shape
        torch.Size([3])

    Source:
        Shen et al., NeurIPS 2025, section 3 (layer importance).
    """
    one_of("estimator", estimator, ("per_batch", "mean_gradient"))
    view, loss_fn = LayerView(model, layers), loss_fn or model_loss
    owners = _owners(view)
    parameters = list(owners)
    device = parameters[0].device
    flags = {p: p.requires_grad for p in model.parameters()}
    modes = {module: module.training for module in model.modules()}
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in parameters] if estimator == "mean_gradient" else []
    scores, seen = torch.zeros(view.num_layers), 0
    try:
        model.requires_grad_(False)
        for p in parameters:
            p.requires_grad_(True)
        model.eval()
        for batch in batches:
            loss = loss_fn(model, on_device(batch, device))
            if not bool(torch.isfinite(loss)):
                raise ValueError(f"batches: expected finite losses, got {float(loss)} in batch {seen}")
            gradients: Sequence[Tensor | None] = torch.autograd.grad(loss, parameters, allow_unused=True)
            seen += 1
            for index, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
                if g is None:
                    continue
                if sums:
                    sums[index] += g.float()
                else:
                    scores[owners[p]] += float((g.float() * p.detach().float()).square().sum())
    finally:
        for p, flag in flags.items():
            p.requires_grad_(flag)
        for module, mode in modes.items():
            module.training = mode
    if not seen:
        raise ValueError("batches: expected at least one batch to measure importance on, got none")
    for p, total in zip(parameters, sums, strict=False):
        scores[owners[p]] += float((total / seen * p.detach().float()).square().sum())
    return scores if sums else scores / seen


def block_importance(
    importance: Float[Tensor, " layer"], length: int, *, edge: str = "clip"
) -> Float[Tensor, " start"]:
    """Return the importance of every block of consecutive layers, by its first layer.

    Args:
        importance: Of every layer.
        length: Layers of a block.
        edge: ``"clip"``: L - n + 1 windows; ``"wrap"``: L cyclic ones.

    Raises:
        ValueError: The length is not between 1 and the number of layers.

    Example:
        >>> block_importance(torch.tensor([1.0, 2.0, 3.0, 4.0]), 2)
        tensor([3., 5., 7.])

    Source:
        Shen et al., NeurIPS 2025, section 3 (block importance).
    """
    count = len(importance)
    length = whole("length", length)
    if length > count:
        raise ValueError(f"length: expected at most {count}, the number of layers, got {length}")
    if edge == "wrap" and length < count:
        importance = torch.cat([importance, importance[: length - 1]])
    return importance.unfold(0, length, 1).sum(1)


def _owners(view: LayerView) -> dict[nn.Parameter, int]:
    """Return, for every parameter of the layers, the first layer that has it."""
    owners: dict[nn.Parameter, int] = {}
    for index, layer in enumerate(view.layers):
        for p in layer.parameters():
            owners.setdefault(p, index)
    return owners
