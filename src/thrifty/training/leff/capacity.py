"""What a client's step costs, and so how many layers it can train: parameters, bytes, arithmetic.

A layer's forward pass is F; a trained layer's backward pass is 2 F, that of a frozen layer which gradients pass through
F, and of one below the lowest trained layer 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from thrifty._common.checks import number, whole
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import Layout, lay_out
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.sampling import block_layers

#: Bytes of gradient and AdamW's two moments for a trained number, in float32.
TRAINED_BYTES = 12
#: Bytes of a frozen number.
FROZEN_BYTES = {"model": 4.0, "float32": 4.0, "bfloat16": 2.0, "int8": 1.0}


@dataclass(frozen=True)
class ClientMemory:
    """Bytes that a client holds while it trains.

    Args:
        weights: Of everything that it holds.
        gradients: Of what it trains.
        optimizer: AdamW's moments of what it trains.
        activations: Kept for the backward pass.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def trained_parameters(model: nn.Module, block: int = 1, *, extras: str = "auto", layers: str | None = None) -> int:
    """Return how many numbers a client trains: the largest block of that length, and the extras.

    Args:
        model: May be on the meta device: only shapes are looked at.
        block: Layers that are trained.
        extras: As in the settings.
        layers: Path of the layers, where they are not found.

    Example:
        >>> from transformers import AutoModelForCausalLM, GPT2Config
        >>> with torch.device("meta"):
        ...     gpt2 = AutoModelForCausalLM.from_config(GPT2Config())
        >>> trained_parameters(gpt2), trained_parameters(gpt2, 12)
        (7089408, 85056000)

    Source:
        Shen et al., NeurIPS 2025: the numbers are those of its table of trained parameters.
    """
    view = LayerView(model, layers)
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in view.block(0, view.num_layers)]
    most = max(sum(sizes[k : k + block]) for k in range(view.num_layers - block + 1))
    return most + sum(p.numel() for p in view.extras(extras).values())


def compute_share(layout: Layout) -> float:
    """Return a client's arithmetic in a step over that of full fine-tuning.

    Args:
        layout: Of the client's model.

    Example:
        >>> from thrifty.training.leff.config import LeffConfig
        >>> round(compute_share(lay_out((2,), 6, LeffConfig())), 2)
        0.44

    Source:
        Shen et al., NeurIPS 2025, counted as in the module's docstring; embeddings and head left out.
    """
    places = layout.places
    trained = [segment is None for _, segment in places]
    lowest = trained.index(True)
    passing = sum(not own for own in trained[lowest:])
    return (len(places) + 2 * sum(trained) + passing) / (3 * layout.num_layers)


def client_memory(
    view: LayerView, layout: Layout, config: LeffConfig, *, tokens: int = 0, activation_bytes: float = 0.0
) -> ClientMemory:
    """Predict what a client holds in a step.

    Args:
        view: The global model; only shapes are looked at.
        layout: Of the client's model.
        config: What is trained, and the precision of what is not.
        tokens: In a batch.
        activation_bytes: That one layer keeps of one token for its backward pass; 0 leaves activations out.

    Returns:
        Bytes. Below the lowest trained layer nothing is kept.
    """
    sizes, _, embeddings = view.sizes()
    itemsize = next(view.model.parameters()).element_size()
    extras = sum(p.numel() for p in view.extras(config.train_extras).values())
    outside = sum(p.numel() for p in view.extras().values()) + embeddings
    block = sum(sizes[index] for index in layout.block)
    context = sum(sizes[source] for source, segment in layout.places if segment is not None)
    frozen = itemsize if config.context_dtype == "model" else FROZEN_BYTES[config.context_dtype]
    lowest = min(layout.trained_places)
    kept = 1 if config.gradient_checkpointing else len(layout.places) - lowest
    return ClientMemory(
        weights=itemsize * (block + outside) + frozen * context,
        gradients=itemsize * (block + extras),
        optimizer=8 * (block + extras) if config.optimizer == "adamw" else 0,
        activations=tokens * activation_bytes * kept,
    )


def capacity_for_memory(
    model: nn.Module,
    budget: float,
    config: LeffConfig | None = None,
    *,
    tokens: int = 0,
    activation_bytes: float = 0.0,
    layers: str | None = None,
) -> int:
    """Return how many layers a client can train within so many bytes, wherever its block is.

    Args:
        model: The global model; may be on the meta device.
        budget: Bytes for weights, gradients, optimiser and activations.
        config: Of the federation.
        tokens: In a batch.
        activation_bytes: That one layer keeps of one token.
        layers: Path of the layers, where they are not found.

    Raises:
        ValueError: Not even one layer fits; the message has the least that would do.

    Example:
        >>> from transformers import AutoModelForCausalLM, GPT2Config
        >>> with torch.device("meta"):
        ...     gpt2 = AutoModelForCausalLM.from_config(GPT2Config())
        >>> capacity_for_memory(gpt2, 600e6)
        2

    Source:
        Shen et al., NeurIPS 2025, section 3: L_i is the number of layers that client i can train.
    """
    number("budget", budget, "a positive number of bytes", least=1)
    config, view = config or LeffConfig(), LayerView(model, layers)

    def need(length: int) -> float:
        starts = range(view.num_layers if config.edge == "wrap" else view.num_layers - length + 1)
        layouts = {lay_out(block_layers(k, length, view.num_layers), view.num_layers, config) for k in starts}
        return max(
            client_memory(view, layout, config, tokens=tokens, activation_bytes=activation_bytes).total
            for layout in layouts
        )

    fitting = [length for length in range(1, view.num_layers + 1) if need(length) <= budget]
    if not fitting:
        raise ValueError(f"budget: expected at least {need(1):.0f} bytes, which one layer needs, got {budget:.0f}")
    return max(fitting)


def capacity_for_deadline(
    full_step_seconds: float, steps: int, deadline: float, num_layers: int, config: LeffConfig | None = None
) -> int:
    """Return how many layers a client can train so that its steps end before a deadline.

    Args:
        full_step_seconds: That a step of full fine-tuning takes on the client.
        steps: Of a round.
        deadline: Seconds of a round.
        num_layers: L.
        config: Of the federation.

    Raises:
        ValueError: Not even one layer is fast enough; the message has the least deadline that would do.

    Example:
        >>> capacity_for_deadline(1.0, 10, 7.0, 6)
        2

    Source:
        Shen et al., NeurIPS 2025, section 3 (capacity), with the arithmetic of :func:`compute_share`.
    """
    number("full_step_seconds", full_step_seconds, "a positive number of seconds", least=1e-12)
    number("deadline", deadline, "a positive number of seconds", least=1e-12)
    whole("steps", steps)
    config = config or LeffConfig()

    def seconds(length: int) -> float:
        shares = [
            compute_share(lay_out(block_layers(k, length, num_layers), num_layers, config))
            for k in range(num_layers - length + 1)
        ]
        return max(shares) * full_step_seconds * steps

    fitting = [length for length in range(1, num_layers + 1) if seconds(length) <= deadline]
    if not fitting:
        raise ValueError(f"deadline: expected at least {seconds(1):.3g} s, which one layer needs, got {deadline:g}")
    return max(fitting)


def tensor_bytes(state: Mapping[str, Any]) -> int:
    """Return the bytes of tensors."""
    return sum(t.numel() * t.element_size() for t in state.values() if isinstance(t, torch.Tensor))
