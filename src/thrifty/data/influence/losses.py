"""The loss of each example alone: the mean over its own unmasked label tokens, so that length does not weigh."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from thrifty.data.influence.examples import Batch
from thrifty.data.influence.parameters import without_wrappers

#: Model outputs and the batch to one loss an example.
LossFn = Callable[[Any, Batch], Float[Tensor, " batch"]]


def is_causal(model: nn.Module) -> bool:
    """Tell whether a model predicts each token from those before it, by the name of its head."""
    name = type(without_wrappers(model)).__name__
    return name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")) and not _is_seq2seq(model)


def default_loss(model: nn.Module) -> LossFn:
    """Return the loss that the model's head is trained with.

    Next-token cross-entropy for causal models, token by token for other models with token labels (masked language
    models, encoder-decoders, tagging), cross-entropy for class labels, squared error for real ones.
    """
    return causal_loss if is_causal(model) else labelled_loss


def causal_loss(outputs: Any, batch: Batch) -> Float[Tensor, " batch"]:
    """Return the mean next-token cross-entropy of each example; 0 where all labels are masked."""
    return _mean_over_tokens(_logits(outputs)[:, :-1], batch["labels"][:, 1:])


def labelled_loss(outputs: Any, batch: Batch) -> Float[Tensor, " batch"]:
    """Return the loss of each example for labels that stand where their predictions do.

    Raises:
        ValueError: There are no labels, or their shape does not fit the logits.
    """
    logits = _logits(outputs)
    if "labels" not in batch:
        raise ValueError("labels: this model's loss needs them; the examples have none. Give them, or a loss_fn")
    labels = batch["labels"]
    if logits.dim() == labels.dim() + 1 == 3:
        return _mean_over_tokens(logits, labels)
    if logits.dim() == 2 and labels.dim() == 1 and not labels.is_floating_point():
        return functional.cross_entropy(logits.float(), labels, reduction="none", ignore_index=-100)
    if labels.is_floating_point() and logits.numel() == labels.numel():
        return (logits.float().reshape(labels.shape) - labels).square().reshape(len(labels), -1).mean(1)
    raise ValueError(
        f"labels: no loss is known for labels of shape {tuple(labels.shape)} and logits of shape "
        f"{tuple(logits.shape)}; give a loss_fn"
    )


def _mean_over_tokens(logits: Tensor, labels: Tensor) -> Tensor:
    tokens = functional.cross_entropy(logits.float().transpose(1, 2), labels, reduction="none", ignore_index=-100)
    counts = (labels != -100).sum(1)
    return tokens.sum(1) / counts.clamp_min(1)


def _logits(outputs: Any) -> Tensor:
    logits = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if logits is None:
        raise ValueError(f"model: expected outputs with logits, got {type(outputs).__name__}; give a loss_fn")
    return logits


def _is_seq2seq(model: nn.Module) -> bool:
    return bool(getattr(getattr(without_wrappers(model), "config", None), "is_encoder_decoder", False))


def call_model(model: nn.Module, batch: Batch) -> Any:
    """Run a model on those fields of a batch that it takes, without letting it compute a loss of its own."""
    taken = _arguments(type(without_wrappers(model)).forward)
    seq2seq = _is_seq2seq(model)  # an encoder-decoder needs the labels: it shifts them into its decoder
    return model(**{name: value for name, value in batch.items() if name in taken and (seq2seq or name != "labels")})


class Forward(nn.Module):
    """A model behind one positional argument, its batch, for ``torch.func``; names begin with ``inner.``.

    Args:
        inner: The model.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.eval()

    def forward(self, batch: Batch) -> Any:
        """Run it."""
        return call_model(self.inner, batch)


@cache
def _arguments(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def to_device(batch: Batch, device: torch.device | str) -> Batch:
    """Move a batch."""
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
