"""Jacobian-vector-product embeddings: how the hidden state of the first blocks moves as their weights are nudged.

For V random directions v over the parameters of the first B blocks and the final norm, e_v(x) = ∂/∂ε h(x; θ + εv) at
ε = 0, where h is one pooled hidden state; the V vectors are joined and, if long, projected (arXiv 2505.19051). They
cost forward passes of B blocks alone, and depend on no target, so that they are made once a pool.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, jvp, vmap

from thrifty._common.checks import one_of, whole
from thrifty.data.influence.examples import Batch
from thrifty.data.influence.losses import Forward, to_device
from thrifty.data.influence.parameters import backbone, block_list
from thrifty.data.influence.projection import Projection
from thrifty.data.influence.replica import truncated

#: Finite differences move the weights by this share of their norm.
RELATIVE_STEP = 1e-3

Pooling = Literal["weighted_mean", "last"]


@dataclass(frozen=True)
class JVPEmbedding:
    """How examples are embedded.

    Args:
        num_blocks: B, blocks kept.
        num_tangents: V, random directions.
        dim: Embeddings longer than this are projected to it.
        pooling: ``"weighted_mean"`` of the attended positions, with weights 1, 2, ..., length; or ``"last"``, the last
            attended position (then an end-of-sequence token is appended).
        perturb_embeddings: Whether token and position embeddings are nudged too.
        mode: ``"forward_ad"``, exact, with eager attention; or ``"finite_difference"``, with the model's own kernels:
            for quantised weights, and where fused attention must stay.
        blocks: Dotted name of the list of blocks, where it is not found by itself.
        embed_fn: ``embed_fn(model, batch)`` gives one vector an example, in place of all of the above.

    Example:
        >>> JVPEmbedding(num_blocks=2, mode="finite_difference").pooling
        'weighted_mean'

    Source:
        arXiv 2505.19051, Jacobian-vector-product embeddings; the default pooling is ours.
    """

    num_blocks: int = 4
    num_tangents: int = 2
    dim: int = 4096
    pooling: Pooling = "weighted_mean"
    perturb_embeddings: bool = False
    mode: Literal["forward_ad", "finite_difference"] = "forward_ad"
    blocks: str | None = None
    embed_fn: Callable[[nn.Module, Batch], Tensor] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("num_blocks", "num_tangents", "dim"):
            whole(name, getattr(self, name))
        one_of("pooling", self.pooling, ("weighted_mean", "last"))
        one_of("mode", self.mode, ("forward_ad", "finite_difference"))

    def settings(self) -> dict[str, Any]:
        """Return what a store is keyed by."""
        found = asdict(self)
        found["embed_fn"] = getattr(self.embed_fn, "__qualname__", None) if self.embed_fn else None
        return found


class Embedder:
    """Embeds batches of one model.

    Args:
        model: A Hugging Face model; it is not changed.
        config: How.
        seed: Of the directions and the projection.
    """

    def __init__(self, model: nn.Module, config: JVPEmbedding, seed: int = 0) -> None:
        self.config = config
        self._seed = seed
        self._model = model
        self.device = next(model.parameters()).device
        if config.embed_fn is not None:
            return
        eager = config.mode == "forward_ad"
        depth = len(block_list(backbone(model), config.blocks)[1])
        if config.num_blocks > depth:
            warnings.warn(
                f"embedding: num_blocks = {config.num_blocks} is more than the model's {depth}; all of it is embedded",
                stacklevel=2,
            )
        self._network = truncated(backbone(model), config.num_blocks, blocks=config.blocks, eager=eager)
        self._weights = {name: p.detach() for name, p in self._network.named_parameters()}
        self._tangents = tangents(self._network, config, seed)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Float[Tensor, "b e"]:
        """Return one float32 embedding an example."""
        batch = to_device({name: value for name, value in batch.items() if name != "labels"}, self.device)
        if self.config.embed_fn is not None:
            given: Tensor = self.config.embed_fn(self._model, batch)
            return given.float()
        weights = position_weights(batch, self.config.pooling)

        def pooled(values: Mapping[str, Tensor]) -> Tensor:
            found = functional_call(Forward(self._network), {f"inner.{n}": v for n, v in values.items()}, (batch,))
            hidden: Tensor = getattr(found, "last_hidden_state", found)
            if hidden.dim() == 4:  # images as channels × height × width
                hidden = hidden.flatten(2).transpose(1, 2)
            if weights is None or hidden.shape[1] != weights.shape[1]:
                return hidden.float().mean(1)
            return torch.einsum("bth,bt->bh", hidden.float(), weights.to(hidden.device))

        joined = self._forward(pooled) if self.config.mode == "forward_ad" else self._difference(pooled)
        out = joined.transpose(0, 1).reshape(joined.shape[1], -1)
        return Projection(out.shape[1], self.config.dim, "rademacher", self._seed)(out)

    def _forward(self, pooled: Callable[[Mapping[str, Tensor]], Tensor]) -> Float[Tensor, "v b h"]:
        moved = {name: self._weights[name] for name in self._tangents}
        still = {name: value for name, value in self._weights.items() if name not in moved}

        def along(direction: dict[str, Tensor]) -> Tensor:
            tangent: Tensor = jvp(lambda values: pooled({**still, **values}), (moved,), (direction,))[1]
            return tangent

        moved_states: Tensor = vmap(along)(self._tangents)
        return moved_states

    def _difference(self, pooled: Callable[[Mapping[str, Tensor]], Tensor]) -> Float[Tensor, "v b h"]:
        here = pooled(self._weights)
        out = []
        for i in range(self.config.num_tangents):
            direction = {name: value[i] for name, value in self._tangents.items()}
            size = _norm({name: self._weights[name] for name in direction}.values()) / _norm(direction.values())
            step = RELATIVE_STEP * size
            there = {name: (self._weights[name].float() + step * v.float()) for name, v in direction.items()}
            there = {name: value.to(self._weights[name].dtype) for name, value in there.items()}
            out.append((pooled({**self._weights, **there}) - here) / step)
        return torch.stack(out)


def tangents(network: nn.Module, config: JVPEmbedding, seed: int) -> dict[str, Float[Tensor, "v ..."]]:
    """Draw V standard normal directions over the parameters that are nudged, one generator for all of them.

    Raises:
        ValueError: Nothing is left to nudge.
    """
    name, _ = block_list(network, config.blocks)
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for key, p in network.named_parameters():
        if not p.is_floating_point():
            continue  # packed integers of quantised weights
        if not config.perturb_embeddings and _is_embedding(network, key, name):
            continue
        drawn = torch.randn((config.num_tangents, *p.shape), generator=generator)
        found[key] = drawn.to(device=p.device, dtype=p.dtype)
    if not found:
        raise ValueError("embedding: no floating-point parameter is left to move")
    return found


def position_weights(batch: Batch, pooling: Pooling) -> Float[Tensor, "b t"] | None:
    """Return each position's share in the pooled hidden state; ``None`` for inputs without tokens."""
    mask = batch.get("attention_mask")
    if mask is None:
        return None
    place = mask.cumsum(1) * mask
    if pooling == "last":
        return (place == place.amax(1, keepdim=True)).float() * mask
    return place / place.sum(1, keepdim=True)


def _is_embedding(network: nn.Module, key: str, blocks: str) -> bool:
    if key.startswith(f"{blocks}."):
        return False
    owner = network.get_submodule(key.rpartition(".")[0])
    return isinstance(owner, nn.Embedding) or "embed" in key.lower()


def _norm(tensors: Any) -> float:
    return math.sqrt(sum(float(tensor.float().square().sum()) for tensor in tensors))
