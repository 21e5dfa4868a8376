"""The harness: rounds in which every client trains what a method gives it, and the method merges what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import nn

from thrifty.training.leff.client import LeffClient, measured_by_clients
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import Batch
from thrifty.training.leff.rounds import Order, Report
from thrifty.training.leff.server import LeffServer

Evaluate = Callable[[nn.Module], Mapping[str, float]]


@dataclass
class Sent:
    """What a client gave back, and what that cost.

    Args:
        payload: For the method's ``merge``.
        weight: The size of the client's data.
        down: Bytes sent to it.
        up: Bytes that it sent.
        metrics: Its losses, seconds and bytes.
    """

    payload: Any
    weight: int
    down: int
    up: int
    metrics: dict[str, float] = field(default_factory=dict)


class Method(Protocol):
    """A way to federate."""

    def begin(self, clients: Sequence[LeffClient], round_: int) -> None:
        """Plan a round."""

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train one client."""

    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Take what all clients sent."""

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return the models that are evaluated, and their weights: one, but for clients on their own."""


@dataclass
class Trace:
    """What a run of the harness saw, round by round.

    Args:
        scores: Of the evaluation.
        down: Bytes, all clients together.
        up: Bytes, likewise.
        clients: The metrics of each client in the last round.
    """

    scores: list[dict[str, float]] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    up: list[int] = field(default_factory=list)
    clients: dict[str, dict[str, float]] = field(default_factory=dict)


def federate(
    method: Method, clients: Sequence[LeffClient], rounds: int, evaluate: Evaluate, *, every: int = 1
) -> Trace:
    """Run a method for some rounds; evaluate behind every n-th, and behind the last."""
    trace = Trace()
    ordered = sorted((client for client in clients if client.examples), key=lambda client: client.name)
    for round_ in range(1, rounds + 1):
        method.begin(ordered, round_)
        sent = []
        for client in ordered:
            one = method.local(client, round_)
            trace.clients[client.name] = one.metrics
            sent.append(one)
        method.merge(sent, round_)
        trace.down.append(sum(one.down for one in sent))
        trace.up.append(sum(one.up for one in sent))
        if round_ % every == 0 or round_ == rounds:
            scores: dict[str, float] = {}
            for model, weight in method.models():
                for name, value in evaluate(model.eval()).items():
                    scores[name] = scores.get(name, 0.0) + weight * float(value)
            trace.scores.append(scores)
    return trace


class Leff:
    """LEFF itself, in the harness.

    Args:
        model: The global model; trained in place.
        config: Of the federation.
        proxy: As :class:`LeffServer` takes it.
        layers: Path of the layers, where they are not found.
    """

    def __init__(
        self, model: nn.Module, config: LeffConfig, proxy: Sequence[Batch] | None, *, layers: str | None = None
    ) -> None:
        self.server = LeffServer(model, config, proxy, layers=layers)
        self._orders: dict[str, Order] = {}

    def begin(self, clients: Sequence[LeffClient], round_: int) -> None:
        """Plan a round."""
        reports: list[Report] = [client.report(round_) for client in clients]
        by_name = {client.name: client for client in clients}
        measured = measured_by_clients(by_name, reports, self.server.view, round_, self.server.config)
        self._orders = {order.client: order for order in self.server.plan(reports, measured)}

    def local(self, client: LeffClient, round_: int) -> Sent:
        """Train one client's block."""
        order = self._orders[client.name]
        model = self.server.client_model(order)
        self.server.sending(order, model)
        update = client.train(model, round_, self.server.config)
        down = self.server.ledger(client.name).down
        up = sum(t.numel() * t.element_size() for t in update.state.values())
        return Sent(update, client.examples, down, up, update.metrics)

    def merge(self, sent: Sequence[Sent], round_: int) -> None:
        """Average layer by layer."""
        for one in sent:
            self.server.receive(one.payload)
        self.server.finish()

    def models(self) -> list[tuple[nn.Module, float]]:
        """Return the global model."""
        return [(self.server.model, 1.0)]
