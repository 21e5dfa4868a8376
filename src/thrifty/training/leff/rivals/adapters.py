"""Low-rank adapters in a model that shares its weights: PEFT's layers, and the algebra that federations do with them.

W + (alpha / r) B A, A of r by inputs, B of outputs by r. Hu et al., ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.training.leff.layers import LayerView, shared_copy

#: A and B of every adapted layer, by the layer's name.
Adapters = dict[str, tuple[Tensor, Tensor]]
#: alpha over r, the same for every rank, so that products of different ranks add up.
SCALE = 2.0


@dataclass
class Adapted:
    """A model with adapters.

    Args:
        model: Sharing its weights with the global model.
        adapters: Its parameters A and B, by the global name of the layer that they adapt.
        extras: What else is trained, by name.
    """

    model: nn.Module
    adapters: dict[str, tuple[nn.Parameter, nn.Parameter]]
    extras: dict[str, nn.Parameter]

    def trained(self) -> dict[str, Tensor]:
        """Return all that is trained."""
        parts = {f"{n}.{letter}": t for n, pair in self.adapters.items() for letter, t in zip("AB", pair, strict=True)}
        return {**parts, **self.extras}

    def values(self) -> Adapters:
        """Return copies of A and B."""
        return {name: (a.detach().clone(), b.detach().clone()) for name, (a, b) in self.adapters.items()}


def targets(view: LayerView, index: int) -> dict[str, nn.Module]:
    """Return the linear layers of one transformer layer, by name within it."""
    return {
        name: module
        for name, module in view.layers[index].named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    }


def weight_of(view: LayerView, name: str) -> Tensor:
    """Return the weight of a linear layer, by its name."""
    weight: Tensor = view.model.get_submodule(name).weight  # type: ignore[assignment]
    return weight


def adapt(view: LayerView, kept: Sequence[int], rank: int, generator: torch.Generator) -> Adapted:
    """Make a copy with some of the layers, in order, whose linear layers have fresh adapters: A Gaussian, B zero."""
    peft = require("peft", extra="federated")
    extras = view.extras()
    model = shared_copy(view, [view.layers[i] for i in kept], kept, own={id(p) for p in extras.values()})
    inside = LayerView(model, view.path)
    names = {f"{view.path}.{place}.{name}": f"{view.path}.{source}.{name}"
             for place, source in enumerate(kept) for name in targets(inside, place)}  # fmt: skip
    settings = peft.LoraConfig(r=rank, lora_alpha=SCALE * rank, target_modules=list(names), bias="none")
    with torch.random.fork_rng(devices=[]):  # PEFT draws A from the global generator; it is drawn again below
        peft.inject_adapter_in_model(settings, model)
    found: dict[str, tuple[nn.Parameter, nn.Parameter]] = {}
    for here, there in names.items():
        layer: Any = model.get_submodule(here)
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        with torch.no_grad():
            a.copy_(torch.randn(a.shape, generator=generator) / rank)
            b.zero_()
        found[there] = (a, b)
    named = dict(model.named_parameters())
    mine = {name: named[name] for name in extras}
    for p in model.parameters():
        p.requires_grad_(False)
    for p in (*mine.values(), *(p for pair in found.values() for p in pair)):
        p.requires_grad_(True)
    return Adapted(model, found, mine)


def load(adapted: Adapted, values: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Set adapters to given values."""
    with torch.no_grad():
        for name, (a, b) in adapted.adapters.items():
            a.copy_(values[name][0])
            b.copy_(values[name][1])


@torch.no_grad()
def merged(view: LayerView, adapters: Mapping[str, tuple[Tensor, Tensor]]) -> nn.Module:
    """Return a copy whose weights are W + scale B A, sharing the rest."""
    weights = [weight_of(view, name) for name in adapters]
    model = shared_copy(view, list(view.layers), range(view.num_layers), own={id(w) for w in weights})
    add(LayerView(model, view.path), {name: SCALE * b @ a for name, (a, b) in adapters.items()})
    return model


@torch.no_grad()
def add(view: LayerView, changes: Mapping[str, Tensor]) -> None:
    """Add changes (outputs by inputs) to weights, in place."""
    for name, change in changes.items():
        module = view.model.get_submodule(name)
        weight_of(view, name).add_(change if isinstance(module, nn.Linear) else change.T)


def factors(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return A' and B' of a lower rank whose product is nearest to B A; exact where the rank suffices.

    The product is never formed: its singular values are those of a small core between two orthogonal bases.
    """
    qb, rb = torch.linalg.qr(b)
    qa, ra = torch.linalg.qr(a.T)
    u, s, v = torch.linalg.svd(rb @ ra.T)
    rank, kept = min(rank, len(s)), s[:rank].sqrt()
    found_a, found_b = kept[:, None] * (v[:rank] @ qa.T), (qb @ u[:, :rank]) * kept
    return found_a, found_b
