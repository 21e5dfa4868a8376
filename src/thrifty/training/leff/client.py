"""A client of a federation, without its transport: its data, its capacity, and what it does with an order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from thrifty._common.checks import number
from thrifty.training.leff.client_model import ClientModel
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import LossFn, layer_importance
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.local import Data, LocalRun, count_examples, epoch, privatise, train_locally
from thrifty.training.leff.rounds import Report, Update
from thrifty.training.leff.streams import torch_stream


class LeffClient:
    """One participant.

    Args:
        name: The same in every round.
        data: Columns of examples (name to tensor), or batches, or a function from a generator to an epoch's batches.
        capacity: Layers that it can train; or a function from the round (from 1) to that.
        memory: Bytes that it can use, in place of layers.
        examples: The size of its data, where ``data`` is a function.
        loss_fn: ``loss_fn(model, batch)``; the model's own by default.
        speed: Steps of full fine-tuning a second, as it declares; for simulated times only.

    Raises:
        ValueError: Neither capacity nor memory is given, or ``examples`` is needed and missing.

    Example:
        >>> ids = torch.arange(12).reshape(4, 3)
        >>> LeffClient("phone", {"input_ids": ids, "labels": ids}, capacity=1).report(1)
        Report(client='phone', examples=4, capacity=1, memory=None)

    Source:
        Shen et al., NeurIPS 2025, section 3 (steps 1, 5 and 6 of a round).
    """

    def __init__(
        self,
        name: str,
        data: Data,
        capacity: int | Callable[[int], int] | None = None,
        *,
        memory: float | None = None,
        examples: int | None = None,
        loss_fn: LossFn | None = None,
        speed: float = 1.0,
    ) -> None:
        self.name, self.data, self.loss_fn = str(name), data, loss_fn
        self.capacity, self.memory = capacity, memory
        self.speed = number("speed", speed, "a positive number of steps a second", least=1e-12)
        counted = examples if examples is not None else count_examples(data)
        if counted is None:
            raise ValueError("examples: expected the number of examples where data is a function, got None")
        self.examples = counted
        if capacity is None and memory is None:
            raise ValueError(f"capacity: expected layers, or bytes as memory, of client {self.name!r}, got neither")

    def report(self, round_: int) -> Report:
        """Say what it can do in a round."""
        capacity = self.capacity(round_) if callable(self.capacity) else self.capacity
        return Report(self.name, self.examples, capacity, self.memory)

    def train(self, client: ClientModel, round_: int, config: LeffConfig, *, secret: int | None = None) -> Update:
        """Train the block of a model that was handed out, and return what became of it.

        Args:
            client: Its model; trained in place.
            round_: This one.
            config: Of the federation.
            secret: What noise is drawn from, if any is added; ``None``: the federation's seed, for simulations.
        """
        trained = client.trained() if config.clip_norm is not None else {}
        before = {name: t.detach().clone() for name, t in trained.items() if isinstance(t, nn.Parameter)}
        client.train_mode()
        run = train_locally(
            client.model, client.trained(), self.data, config, round_=round_, client=self.name, loss_fn=self.loss_fn,
            extras=client.extras,
        )  # fmt: skip
        after = {name: tensor.detach() for name, tensor in client.trained().items()}
        state = privatise(before, after, config, round_=round_, client=self.name, secret=secret)
        return Update(self.name, round_, state, self.examples, metrics_of(run, client.model))

    def importance(self, model: nn.Module, round_: int, config: LeffConfig, layers: str | None = None) -> Tensor:
        """Measure the importance of every layer of the whole model on its own data, ``max_steps`` batches at most.

        Args:
            model: The global model: only for a client that can hold it.
            round_: This one.
            config: Of the federation.
            layers: Path of the layers, where they are not found.
        """
        everything = epoch(self.data, config.batch_size, torch_stream(config.seed, "order", round_, self.name))
        batches = islice(everything, config.max_steps)
        return layer_importance(model, batches, self.loss_fn, estimator=config.estimator, layers=layers)


def measured_by_clients(
    clients: Mapping[str, LeffClient], reports: Sequence[Report], view: LayerView, round_: int, config: LeffConfig
) -> Tensor | None:
    """Return the importance that clients with room for the whole model measure; ``None`` where nobody is to.

    Args:
        clients: By name.
        reports: Of those who take part.
        view: The global model.
        round_: This one.
        config: Of the federation.

    Raises:
        ValueError: Somebody is to measure it, and nobody can.
    """
    if config.importance != "clients" or config.sampler not in ("importance", "proportional"):
        return None
    able = [report for report in reports if report.capacity == view.num_layers and report.examples]
    return mean_importance(
        {r.client: (clients[r.client].importance(view.model, round_, config, view.path), r.examples) for r in able}
    )


def mean_importance(measured: Mapping[str, tuple[Tensor, int]]) -> Tensor:
    """Return the importance of every layer over clients, weighted by the sizes of their data.

    Args:
        measured: By client: what it measured, and its number of examples.

    Raises:
        ValueError: Nobody measured it.
    """
    if not measured:
        raise ValueError(
            "importance: expected a client that can hold the whole model with importance='clients', got none; "
            "choose importance='server' or another sampler"
        )
    total = sum(count for _, count in measured.values())
    return torch.stack([measured[name][0] * (measured[name][1] / total) for name in sorted(measured)]).sum(0)


def metrics_of(run: LocalRun, model: nn.Module) -> dict[str, float]:
    """Return the numbers that a client reports of its training."""
    weights = sum(
        t.numel() * t.element_size() for t in {id(t): t for t in (*model.parameters(), *model.buffers())}.values()
    )
    steps = len(run.losses)
    return {
        "steps": steps,
        "loss": sum(run.losses) / steps if steps else 0.0,
        "step_seconds": sorted(run.seconds)[steps // 2] if steps else 0.0,
        "peak_bytes": weights + run.gradient_bytes + run.optimizer_bytes + run.kept_bytes,
        "trained_bytes": run.gradient_bytes + run.optimizer_bytes,
    }
