"""Methods that average whole tensors: FedAvg, FedProx, FedBitFit, the head alone; and those that do not average.

McMahan et al., AISTATS 2017; Li et al., MLSys 2020; Ben Zaken et al., ACL 2022. As in the paper's table, embeddings are
frozen everywhere, and "FedAvg" trains all layers and what is behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thrifty.training.leff.aggregate import LayerMean
from thrifty.training.leff.capacity import tensor_bytes
from thrifty.training.leff.client import LeffClient, metrics_of
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.layers import LayerView, set_modes, shared_copy
from thrifty.training.leff.local import train_locally
from thrifty.training.leff.rivals.harness import Sent

What = Literal["all", "biases", "head"]


class Averaging:
    """FedAvg and its kin: every client trains the same tensors, which are averaged by the sizes of data.

    Args:
        model: The global model; trained in place.
        config: Of local training; ``proximal`` above 0 makes it FedProx.
        what: ``"all"`` layers and extras; ``"biases"`` and the head (BitFit); the ``"head"`` and what else is behind
            the layers.
        layers: Path of the layers, where they are not found.

    Raises:
        ValueError: The model has no biases to train.
    """

    def __init__(self, model: nn.Module, config: LeffConfig, what: What = "all", *, layers: str | None = None) -> None:
        self.view, self.config, self.what = LayerView(model, layers), config, what
        self._reached: set[str] = set()
        if what == "biases" and not any(
            name.endswith("bias") for name in names_of(self.view, "biases") - set(self.view.extras())
        ):
            raise ValueError("what: expected a model with biases for 'biases', got one without: not applicable")

    def begin(self, clients: Sequence[LeffClient], round_: int) -> None:
        """Nothing has to be planned."""

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train one client's copy."""
        model, trained, metrics = train_copy(self.view, names_of(self.view, self.what), client, self.config, round_)
        state = {name: tensor.detach() for name, tensor in trained.items()}
        return Sent(state, client.examples, self._down(client, model), tensor_bytes(state), metrics)

    @torch.no_grad()
    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average."""
        mean = LayerMean()
        for one in sent:
            mean.add(one.payload, one.weight)
        named = dict(self.view.model.named_parameters())
        for name, tensor in mean.result().items():
            named[name].copy_(tensor)

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return the global model."""
        return [(self.view.model, 1.0)]

    def _down(self, client: LeffClient, model: nn.Module) -> int:
        """Everything the first time; then what has changed."""
        named = dict(model.named_parameters())
        wanted = set(named) if client.name not in self._reached else names_of(self.view, self.what)
        self._reached.add(client.name)
        return tensor_bytes({name: named[name] for name in wanted})


class LocalOnly(Averaging):
    """Every client keeps its own model; nothing is averaged."""

    def __init__(self, model: nn.Module, config: LeffConfig, *, layers: str | None = None) -> None:
        super().__init__(model, config, "all", layers=layers)
        self._own: dict[str, tuple[LayerView, int]] = {}

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train one client's own model, and send nothing."""
        view = self._own[client.name][0] if client.name in self._own else self.view
        model, _, metrics = train_copy(view, names_of(view, "all"), client, self.config, round_)
        self._own[client.name] = (LayerView(model, view.path), client.examples)
        return Sent({}, client.examples, 0, 0, metrics)

    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Nothing is merged."""

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return each client's model, weighted alike."""
        return [(view.model, 1 / len(self._own)) for view, _ in self._own.values()]


class Centralised(Averaging):
    """One party has all the data: give it one client with everything."""


def names_of(view: LayerView, what: What) -> set[str]:
    """Return the names of what is trained."""
    inside = {name for name, _ in view.model.named_parameters() if name.startswith(view.path + ".")}
    chosen = {"all": inside, "biases": {n for n in inside if n.endswith("bias")}, "head": set[str]()}[what]
    return chosen | set(view.extras())


def train_copy(
    view: LayerView,
    names: Collection[str],
    client: LeffClient,
    config: LeffConfig,
    round_: int,
    masks: Mapping[str, Tensor] | None = None,
) -> tuple[nn.Module, dict[str, Tensor], dict[str, float]]:
    """Train some tensors of a copy that shares the others; return it, them, and the client's metrics."""
    named = dict(view.model.named_parameters())
    model = shared_copy(view, list(view.layers), range(view.num_layers), own={id(named[name]) for name in names})
    mine = dict(model.named_parameters())
    trained: dict[str, Tensor] = {name: mine[name] for name in sorted(names)}
    for name, mask in (masks or {}).items():  # sparse: only where the mask is does the loss reach
        hooked: Any = trained[name]
        hooked.register_hook(mask.mul)
    copy = LayerView(model, view.path)
    touched = {i for i in range(copy.num_layers) if any(n.startswith(f"{view.path}.{i}.") for n in names)}
    set_modes(copy, touched)
    run = train_locally(
        model, trained, client.data, config, round_=round_, client=client.name, loss_fn=client.loss_fn,
        extras=view.extras(),
    )  # fmt: skip
    return model, trained, metrics_of(run, model)
