"""Federations that train low-rank adapters: FedLoRA, SLoRA, HetLoRA, FlexLoRA, FLoRA, FedRA.

Babakniya et al., 2023 (SLoRA); Cho et al., EMNLP 2024 (HetLoRA); Bai et al., NeurIPS 2024 (FlexLoRA); Wang et al.,
NeurIPS 2024 (FLoRA); Su et al., ECCV 2024 (FedRA). Written from the papers; adapters are PEFT's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from thrifty.training.leff.aggregate import LayerMean
from thrifty.training.leff.capacity import tensor_bytes
from thrifty.training.leff.client import LeffClient, metrics_of
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.local import train_locally
from thrifty.training.leff.rivals.adapters import (
    SCALE,
    Adapted,
    Adapters,
    adapt,
    add,
    factors,
    load,
    merged,
    targets,
    weight_of,
)
from thrifty.training.leff.rivals.averaging import train_copy
from thrifty.training.leff.rivals.harness import Sent
from thrifty.training.leff.streams import stream, torch_stream


class FedLoRA:
    """Everyone trains an adapter of one rank on every linear layer; A and B are averaged apart.

    The mean of products is not the product of means: that is the method's known bias.

    Args:
        model: The global model; its weights stay, its extras are trained in place.
        config: Of local training.
        rank: Of the adapters.
        layers: Path of the layers, where they are not found.
    """

    def __init__(self, model: nn.Module, config: LeffConfig, rank: int = 8, *, layers: str | None = None) -> None:
        self.view, self.config, self.rank = LayerView(model, layers), config, rank
        start = adapt(self.view, range(self.view.num_layers), rank, torch_stream(config.seed, "adapters"))
        self.adapters: Adapters = start.values()
        self._reached: set[str] = set()

    def begin(self, clients: Sequence[LeffClient], round_: int) -> None:
        """Nothing has to be planned."""

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train one client's adapter, and the extras."""
        adapted = self.receive(client, round_)
        metrics = train_adapter(self.view, adapted, client, self.config, round_)
        state = {name: t.detach() for name, t in adapted.trained().items()}
        down = self._down(client, adapted)
        payload = (adapted.values(), {name: p.detach() for name, p in adapted.extras.items()})
        return Sent(payload, client.examples, down, tensor_bytes(state), metrics)

    def receive(self, client: LeffClient, round_: int) -> Adapted:
        """Make the model that a client gets."""
        rank = self.rank_of(client, round_)
        adapted = adapt(
            self.view,
            range(self.view.num_layers),
            rank,
            torch_stream(self.config.seed, "adapters", round_, client.name),
        )
        load(adapted, self.truncated(rank))
        return adapted

    def rank_of(self, client: LeffClient, round_: int) -> int:
        """Return the rank of a client's adapter."""
        return self.rank

    def truncated(self, rank: int) -> Adapters:
        """Return the server's adapters at a client's rank."""
        return self.adapters

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average A, B and the extras."""
        self.merge_extras(sent)
        weights = _shares([one.weight for one in sent])
        self.adapters = {
            name: (
                sum_of(weights, [one.payload[0][name][0] for one in sent]),
                sum_of(weights, [one.payload[0][name][1] for one in sent]),
            )
            for name in self.adapters
        }

    @torch.no_grad()
    def merge_extras(self, sent: Sequence[Sent]) -> None:
        """Average what is behind the layers, in place."""
        mean = LayerMean()
        for one in sent:
            mean.add(one.payload[1], one.weight)
        named = dict(self.view.model.named_parameters())
        for name, tensor in mean.result().items():
            named[name].copy_(tensor)

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return the global model with its adapters merged."""
        return [(merged(self.view, self.adapters), 1.0)]

    def _down(self, client: LeffClient, adapted: Adapted) -> int:
        state: dict[str, Tensor] = adapted.trained()
        if client.name not in self._reached:
            state = state | dict(self.view.model.named_parameters())
        self._reached.add(client.name)
        return tensor_bytes(state)


class _RanksByCapacity(FedLoRA):
    """Adapters whose ranks are clients' shares of the model's layers."""

    def rank_of(self, client: LeffClient, round_: int) -> int:
        """Return ceil(r L_i / L)."""
        capacity = client.report(round_).capacity or self.view.num_layers
        return max(1, math.ceil(self.rank * capacity / self.view.num_layers))


class HetLoRA(_RanksByCapacity):
    """Truncated on the way down, padded with zeros on the way up, weighted by the norm of what a client learnt."""

    def truncated(self, rank: int) -> Adapters:
        """Return the first rows of A and columns of B."""
        return {name: (a[:rank], b[:, :rank]) for name, (a, b) in self.adapters.items()}

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Pad, and average by the norms of the products."""
        self.merge_extras(sent)
        norms = [math.sqrt(sum(_product_norm(a, b) ** 2 for a, b in one.payload[0].values())) for one in sent]
        weights = _shares(norms if sum(norms) else [one.weight for one in sent])
        for name in self.adapters:
            pairs = [one.payload[0][name] for one in sent]
            self.adapters[name] = (
                sum_of(weights, [_padded(a, self.rank, 0) for a, _ in pairs]),
                sum_of(weights, [_padded(b, self.rank, 1) for _, b in pairs]),
            )


class FlexLoRA(_RanksByCapacity):
    """The server averages products, and sends each client its best factors at the client's rank."""

    def __init__(self, model: nn.Module, config: LeffConfig, rank: int = 8, *, layers: str | None = None) -> None:
        super().__init__(model, config, rank, layers=layers)
        self._fresh = True

    def truncated(self, rank: int) -> Adapters:
        """Return the leading singular directions; at first, where there are none, rows of A."""
        if self._fresh:
            return {name: (a[:rank], b[:, :rank]) for name, (a, b) in self.adapters.items()}
        return {name: factors(a, b, rank) for name, (a, b) in self.adapters.items()}

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average products: stacked factors hold their mean exactly."""
        self.merge_extras(sent)
        self._fresh = False
        self.adapters = stacked(sent, self.adapters)


class FLoRA(_RanksByCapacity):
    """Stacked factors are sent to all, merged into the weights, and everyone starts with a fresh adapter."""

    def receive(self, client: LeffClient, round_: int) -> Adapted:
        """Make a model with a fresh adapter."""
        generator = torch_stream(self.config.seed, "adapters", round_, client.name)
        return adapt(self.view, range(self.view.num_layers), self.rank_of(client, round_), generator)

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Add the mean of products to the weights."""
        self.merge_extras(sent)
        self.adapters = stacked(sent, self.adapters)
        add(self.view, {name: SCALE * b @ a for name, (a, b) in self.adapters.items()})

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return the global model, into which everything is merged."""
        return [(self.view.model, 1.0)]

    def _down(self, client: LeffClient, adapted: Adapted) -> int:
        """Everything at first; then the stack of all clients' factors, and the extras."""
        if client.name not in self._reached:
            return super()._down(client, adapted)
        stack = {f"{n}.{i}": t for n, pair in self.adapters.items() for i, t in enumerate(pair)}
        return tensor_bytes({**stack, **adapted.extras})


class SLoRA(FedLoRA):
    """A few rounds of sparse full fine-tuning, whose change of each weight then gives the adapters their start.

    Args:
        model: The global model.
        config: Of local training.
        rank: Of the adapters.
        sparse_rounds: Of the first stage.
        density: Share of each weight that is trained in it.
        layers: Path of the layers, where they are not found.
    """

    def __init__(
        self, model: nn.Module, config: LeffConfig, rank: int = 8, sparse_rounds: int = 2, density: float = 0.1, *,
        layers: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model, config, rank, layers=layers)
        self.sparse_rounds = sparse_rounds
        names = {f"{self.view.path}.{i}.{n}" for i in range(self.view.num_layers) for n in targets(self.view, i)}
        self._origin = {n: weight_of(self.view, n).detach().clone() for n in sorted(names)}
        generator = torch_stream(config.seed, "adapters", 0, "mask")
        self._mask = {n: torch.rand(w.shape, generator=generator) < density for n, w in self._origin.items()}

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train masked weights in the first stage, adapters in the second."""
        if round_ > self.sparse_rounds:
            return super().local(client, round_)
        names = {f"{n}.weight" for n in self._origin} | set(self.view.extras())
        masks = {f"{name}.weight": mask for name, mask in self._mask.items()}
        model, trained, metrics = train_copy(self.view, names, client, self.config, round_, masks)
        before = dict(self.view.model.named_parameters())
        state = {}
        for name, tensor in trained.items():
            mask = self._mask.get(name.removesuffix(".weight"))
            state[name] = tensor.detach() if mask is None else torch.where(mask, tensor.detach(), before[name].detach())
        up = sum(
            4 * int(self._mask[n.removesuffix(".weight")].sum())
            if n.removesuffix(".weight") in self._mask
            else 4 * t.numel()
            for n, t in state.items()
        )
        down = up if client.name in self._reached else tensor_bytes(dict(model.named_parameters()))
        self._reached.add(client.name)
        return Sent(({}, state), client.examples, down, up, metrics)

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average; at the end of the first stage, take what changed into the adapters and the weights back."""
        if round_ > self.sparse_rounds:
            super().merge(sent, round_)
            return
        self.merge_extras(sent)
        if round_ < self.sparse_rounds:
            return
        for name, origin in self._origin.items():
            module = self.view.model.get_submodule(name)
            change = weight_of(self.view, name).detach() - origin
            change = change if isinstance(module, nn.Linear) else change.T
            u, s, v = torch.linalg.svd(change / SCALE, full_matrices=False)
            kept = s[: self.rank].sqrt()
            self.adapters[name] = (kept[:, None] * v[: self.rank], u[:, : self.rank] * kept)
            weight_of(self.view, name).copy_(origin)


class FedRA(FedLoRA):
    """Random layers for every client: its model is those layers alone, in order; each is averaged over its holders."""

    def __init__(self, model: nn.Module, config: LeffConfig, rank: int = 8, *, layers: str | None = None) -> None:
        super().__init__(model, config, rank, layers=layers)
        self.kept: dict[str, list[int]] = {}

    def begin(self, clients: Sequence[LeffClient], round_: int) -> None:
        """Draw who gets which layers."""
        sizes = {c.name: c.report(round_).capacity or self.view.num_layers for c in clients}
        self.kept = allocation(sizes, self.view.num_layers, stream(self.config.seed, "blocks", round_))

    def receive(self, client: LeffClient, round_: int) -> Adapted:
        """Make a model of the client's layers."""
        adapted = adapt(
            self.view,
            self.kept[client.name],
            self.rank,
            torch_stream(self.config.seed, "adapters", round_, client.name),
        )
        load(adapted, self.adapters)
        return adapted

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average every layer's adapters over the clients that held it."""
        self.merge_extras(sent)
        for name in self.adapters:
            holders = [one for one in sent if name in one.payload[0]]
            if holders:
                weights = _shares([one.weight for one in holders])
                self.adapters[name] = (
                    sum_of(weights, [one.payload[0][name][0] for one in holders]),
                    sum_of(weights, [one.payload[0][name][1] for one in holders]),
                )

    def _down(self, client: LeffClient, adapted: Adapted) -> int:
        """Layers change from round to round, so that their weights travel too; embeddings do so once."""
        state: dict[str, Tensor] = adapted.trained()
        for index in self.kept[client.name]:
            state = state | {f"{index}.{n}": p for n, p in self.view.layers[index].named_parameters()}
        if client.name not in self._reached:
            state = state | self.view.embeddings()
        self._reached.add(client.name)
        return tensor_bytes(state)


def allocation(sizes: dict[str, int], layers: int, rng: np.random.Generator) -> dict[str, list[int]]:
    """Draw L_i layers for every client, so that each layer has a holder where there are enough places."""
    held = {name: set(map(int, rng.choice(layers, size, replace=False))) for name, size in sorted(sizes.items())}
    if sum(sizes.values()) < layers:
        return {name: sorted(own) for name, own in held.items()}
    counts = [sum(layer in own for own in held.values()) for layer in range(layers)]
    while 0 in counts:
        missing = counts.index(0)
        spare = [(name, layer) for name, own in sorted(held.items()) for layer in sorted(own) if counts[layer] > 1]
        name, layer = spare[int(rng.integers(len(spare)))]
        held[name] = held[name] - {layer} | {missing}
        counts[layer] -= 1
        counts[missing] += 1
    return {name: sorted(own) for name, own in held.items()}


def train_adapter(
    view: LayerView, adapted: Adapted, client: LeffClient, config: LeffConfig, round_: int
) -> dict[str, float]:
    """Train adapters and extras of a client's model, and return its metrics."""
    adapted.model.train()
    for module in LayerView(adapted.model, view.path).embedding_modules():
        module.eval()
    run = train_locally(
        adapted.model, adapted.trained(), client.data, config, round_=round_, client=client.name,
        loss_fn=client.loss_fn, extras=adapted.extras,
    )  # fmt: skip
    return metrics_of(run, adapted.model)


def stacked(sent: Sequence[Sent], names: Adapters) -> Adapters:
    """Return factors whose product is the weighted mean of all clients' products, exactly."""
    weights = _shares([one.weight for one in sent])
    return {
        name: (
            torch.cat([one.payload[0][name][0] for one in sent]),
            torch.cat([w * one.payload[0][name][1] for w, one in zip(weights, sent, strict=True)], 1),
        )
        for name in names
    }


def sum_of(weights: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    """Return a weighted sum."""
    return torch.stack([w * t for w, t in zip(weights, tensors, strict=True)]).sum(0)


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values]


def _padded(tensor: Tensor, rank: int, dim: int) -> Tensor:
    missing = list(tensor.shape)
    missing[dim] = rank - tensor.shape[dim]
    return torch.cat([tensor, tensor.new_zeros(missing)], dim)


def _product_norm(a: Tensor, b: Tensor) -> float:
    """Return the norm of B A without forming it: trace of (B'B)(A A')."""
    return math.sqrt(max(0.0, float(((b.T @ b) * (a @ a.T)).sum())))
