"""Where streaming takes hold of a Hugging Face model: the model inside its wrappers, its decoder, and the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from thrifty.training.streambp.decoder_layer import UnstreamableError


def base_model(model: nn.Module) -> Any:
    """Return the Hugging Face model inside adapters and wrappers.

    Raises:
        ValueError: There is none.
    """
    from transformers import PreTrainedModel

    inner: Any = model
    while True:
        if hasattr(inner, "get_base_model"):
            inner = inner.get_base_model()
        elif not isinstance(inner, PreTrainedModel) and isinstance(getattr(inner, "module", None), nn.Module):
            inner = inner.module
        else:
            break
    if not isinstance(inner, PreTrainedModel):
        raise ValueError(
            f"model: expected a Hugging Face causal language model, got {type(model).__name__}; for decoder stacks of "
            "your own there is stream_block"
        )
    return inner


@dataclass(frozen=True)
class Decoder:
    """The part of a causal language model that streams.

    Args:
        model: The backbone, without its head.
        layers: Its layers.
    """

    model: Any
    layers: Sequence[nn.Module]


def find_decoder(model: Any) -> Decoder:
    """Return a causal language model's decoder and its layers.

    Raises:
        ValueError: It is no decoder, it is not causal, its layers take no checkpoint function, or its attention is a
            kernel that cannot be given chunks.
    """
    from transformers import PreTrainedModel
    from transformers.modeling_layers import GradientCheckpointingLayer

    name = type(model).__name__
    if model.config.is_encoder_decoder or not hasattr(model, "get_decoder"):
        raise UnstreamableError(f"{name} cannot be streamed: it is no decoder-only model")
    decoder = model.get_decoder()
    if not isinstance(decoder, PreTrainedModel) or decoder is model:
        decoder = model.base_model
    if decoder is model:  # a text model cut out of a larger one names the larger one's parts
        decoder = next((child for child in model.children() if isinstance(child, PreTrainedModel)), model)
    if not getattr(decoder.config, "is_causal", True):
        raise UnstreamableError(f"{name} cannot be streamed: its attention is bidirectional")
    layers = [m for m in decoder.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise UnstreamableError(f"{name} cannot be streamed: its layers take no gradient-checkpoint function")
    implementation = decoder.config._attn_implementation
    if implementation not in {"sdpa", "eager"}:
        raise ValueError(
            f'model: its attention must be "sdpa" or "eager", got {implementation!r}; call '
            'model.set_attn_implementation("sdpa") first'
        )
    return Decoder(decoder, layers)
