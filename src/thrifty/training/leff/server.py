"""The server of a federation, without its transport: plans rounds, hands out models, takes replies, averages.

The simulator and the Flower strategy both drive it, so that they compute the same.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.training.leff.aggregate import LayerMean, ServerOptimizer
from thrifty.training.leff.capacity import capacity_for_memory, compute_share, tensor_bytes
from thrifty.training.leff.client_model import ClientModel, assemble
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.context import lay_out
from thrifty.training.leff.importance import Batch, LossFn, layer_importance
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.rounds import ClientRecord, History, Order, Report, RoundRecord, Update, finite
from thrifty.training.leff.sampling import (
    block_layers,
    block_probabilities,
    check_capacity,
    draw_start,
    effective_entropy,
    warn_if_uniform,
)
from thrifty.training.leff.stand_ins import StandIns
from thrifty.training.leff.streams import stream

_log = logging.getLogger(__name__)


class LeffServer:
    """Plans rounds and averages what comes back; the model that it was given is the global model, trained in place.

    Args:
        model: A transformer; see :class:`LayerView`.
        config: How blocks are drawn, contexts made and layers averaged.
        proxy: Batches of public data: importance is measured on them (with labels), stand-ins are distilled on them
            (without).
        loss_fn: ``loss_fn(model, batch)`` for importance; the model's own by default.
        layers: Path of the layers, where they are not found.

    Raises:
        ValueError: Stand-ins are to be distilled, or importance is to be measured here, and there is no proxy set.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=8, n_layer=4, n_head=2)
        >>> server = LeffServer(GPT2LMHeadModel(tiny), LeffConfig(sampler="random", compression="drop"))
        >>> [order] = server.plan([Report("a", examples=10, capacity=1)])
        >>> len(order.layout.block), len(order.layout.places) < 4
        (1, True)

    Source:
        Shen et al., NeurIPS 2025, section 3.
    """

    def __init__(
        self,
        model: nn.Module,
        config: LeffConfig | None = None,
        proxy: Sequence[Batch] | None = None,
        loss_fn: LossFn | None = None,
        *,
        layers: str | None = None,
    ) -> None:
        self.config = config or LeffConfig()
        self.model, self.view = model, LayerView(model, layers)
        self.proxy, self.loss_fn = proxy, loss_fn
        self.stand_ins = StandIns(self.config)
        self.optimizer = ServerOptimizer(self.config.server_optimizer, self.config.server_lr)
        self.history = History(self.view.num_layers)
        self._mean, self._orders = LayerMean(), dict[str, Order]()
        self._record: RoundRecord | None = None
        self._places: dict[str, int] = {}
        self._has_embeddings: set[str] = set()
        if self.config.compression == "distill" and self.config.compression_rate < 1 and not proxy:
            raise ValueError(
                "proxy: expected batches with compression='distill', got none; "
                "pass some, or choose compression='drop' or 'none'"
            )
        if self.measures_importance and self.config.importance == "server" and not proxy:
            raise ValueError(
                f"proxy: expected labelled batches with sampler={self.config.sampler!r}, got none; "
                "pass some, or choose sampler='random' or importance='clients'"
            )

        _check_tokens(model, proxy or [])

    @property
    def round(self) -> int:
        """Rounds that are finished."""
        return self.history.rounds[-1].round if self.history.rounds else 0

    @property
    def measures_importance(self) -> bool:
        """Whether the sampler looks at importance."""
        return self.config.sampler in ("importance", "proportional")

    def participants(self, clients: Sequence[str]) -> list[str]:
        """Draw who takes part in the next round, in sorted order; at least one."""
        names = sorted(clients)
        count = max(1, round(self.config.participation * len(names))) if names else 0
        rng = stream(self.config.seed, "participants", self.round + 1)
        return sorted(names[i] for i in rng.choice(len(names), count, replace=False)) if names else []

    def plan(self, reports: Sequence[Report], importance: Tensor | None = None, *, strict: bool = True) -> list[Order]:
        """Begin a round: measure importance, draw blocks, and distil what their contexts need.

        Args:
            reports: Of those who take part, with the capacities that they have now.
            importance: Of every layer, where clients measured it.
            strict: A capacity that the model has not is an error; else that client is left out of the round, and noted.

        Returns:
            One order a client that has data, in the order of their names.

        Raises:
            ValueError: A client reports twice or a capacity that the model has not, or importance is missing.
        """
        names = [report.client for report in reports]
        if len(set(names)) < len(names):
            raise ValueError(
                f"reports: expected one a client, got several of {sorted(n for n in set(names) if names.count(n) > 1)}"
            )
        record = RoundRecord(self.round + 1)
        began = time.perf_counter()
        scores = self._importance(importance)
        record.seconds["importance"] = time.perf_counter() - began
        record.importance = scores.tolist() if self.measures_importance else []
        orders = []
        for report in sorted(reports, key=lambda r: r.client):
            try:
                orders += [self._order(report, scores, record)] if report.examples else []
            except ValueError as error:
                if strict:
                    raise ValueError(f"{error} (client {report.client!r})") from None
                _log.warning("client %s is left out: %s", report.client, error)
                record.refused.append(f"{report.client}: {error}")
        began = time.perf_counter()
        segments = {segment for order in orders for segment in order.layout.segments}
        record.distill_steps = self.stand_ins.refresh(self.view, segments, self.proxy, record.round)
        record.seconds["distillation"] = time.perf_counter() - began
        self._orders, self._record = {order.client: order for order in orders}, record
        self._mean = LayerMean()
        return orders

    def client_model(self, order: Order) -> ClientModel:
        """Return the model of an order; it shares what is frozen with the global one."""
        return assemble(self.view, order.layout, self.stand_ins, self.config)

    def sending(self, order: Order, client: ClientModel) -> dict[str, Tensor]:
        """Return the tensors that travel to a client, and note their bytes; embeddings travel once, if so set."""
        state = client.state()
        if self.config.embeddings_once and order.client in self._has_embeddings:
            state = {name: tensor for name, tensor in state.items() if name not in self.view.embeddings()}
        self._has_embeddings.add(order.client)
        self._current.clients[order.client].down = tensor_bytes(state)
        return state

    def ledger(self, client: str) -> ClientRecord:
        """Return what is noted of a client in the round under way."""
        return self._current.clients[client]

    def note(self, remark: str) -> None:
        """Note something that was refused in the round under way."""
        _log.warning("refused: %s", remark)
        self._current.refused.append(remark)

    def forget_embeddings(self, client: str | None = None) -> None:
        """Send a client its embeddings again, because it lost them; ``None``: everybody."""
        self._has_embeddings -= {client} if client is not None else set(self._has_embeddings)

    def receive(self, update: Update) -> str | None:
        """Take a reply; return why it is refused, or ``None``.

        Replies are averaged in the order in which they are given: give them in one that does not depend on who came
        first, as the simulator and the strategy do.
        """
        reason = self._refusal(update)
        held = self._current.clients.get(update.client)
        if reason is None and held is not None:
            self._mean.add(update.state, update.examples)
            held.status, held.up = "averaged", tensor_bytes(update.state)
            held.metrics = finite(update.metrics)
            return None
        _log.warning("reply of client %s refused: %s", update.client, reason)
        if held is not None and held.status == "lost" and update.round == self._current.round:
            held.status = f"refused: {reason}"
        else:
            self._current.refused.append(f"{update.client}: {reason}")
        return reason

    @torch.no_grad()
    def finish(self, evaluation: Mapping[str, float] | None = None) -> RoundRecord:
        """End a round: average what came, layer by layer, into the global model.

        Where nobody's update counts the model is left as it was, and the round is marked.

        Args:
            evaluation: Numbers of the global model for the ledger; may be added to the record later.
        """
        record = self._current
        current = self._targets()
        means = {name: mean.to(current[name].device) for name, mean in self._mean.result().items()}
        for name in [name for name, mean in means.items() if not bool(torch.isfinite(mean).all())]:
            record.refused.append(f"{name}: its mean is not finite")  # sums of finite numbers may overflow
            del means[name]
        weights = {name: mean for name, mean in means.items() if isinstance(current[name], nn.Parameter)}
        stepped = self.optimizer.step({name: current[name] for name in weights}, weights)
        for name, mean in means.items():  # statistics of batch norm are averaged, whatever the optimiser
            current[name].copy_(stepped.get(name, mean))
        record.failed = not record.averaged
        record.evaluation = dict(evaluation or {})
        self.history.rounds.append(record)
        self._record, self._orders, self._mean = None, {}, LayerMean()
        return record

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a checkpoint of the whole server; ``model/`` in it is a plain ``save_pretrained``.

        Raises:
            RuntimeError: A round has begun and not ended.
        """
        if self._record is not None:
            raise RuntimeError(f"save: expected a finished round, got round {self._record.round} under way")
        folder = Path(folder)
        self.save_pretrained(folder / "model")
        save_file = require("safetensors.torch", extra="federated").save_file
        for name, state in (("stand_ins", self.stand_ins.state_dict()), ("optimizer", self.optimizer.state_dict())):
            save_file({key: t.contiguous().clone() for key, t in state.items()}, folder / f"{name}.safetensors")
        self.config.save_pretrained(folder, force=True)
        known = {"places": self._places, "has_embeddings": sorted(self._has_embeddings)}
        write_whole(folder / "server.json", json.dumps(known) + "\n", force=True)
        self.history.save(folder / "history.json", force=True)  # last: without it the save was cut off
        return folder

    def save_pretrained(self, folder: str | os.PathLike[str]) -> Path:
        """Write the global model alone, as its own class does; a module of no library as safetensors."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        host: Any = self.model
        if hasattr(self.model, "save_pretrained"):
            host.save_pretrained(folder)
        else:
            save_file = require("safetensors.torch", extra="federated").save_model
            save_file(self.model, str(folder / "model.safetensors"))
        return folder

    @torch.no_grad()
    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of :meth:`save`, into a server made with the same model class and settings.

        Raises:
            ValueError: The checkpoint is of other settings, or of a model that does not fit.
            OSError: There is none.
        """
        folder = Path(folder)
        history = History.load(folder / "history.json")
        theirs = LeffConfig.from_pretrained(folder)
        if theirs != self.config:
            differ = [n for n in vars(theirs) if getattr(theirs, n) != getattr(self.config, n)]
            raise ValueError(
                f"folder: expected a run with the same settings, got other {', '.join(differ)} in {folder}"
            )
        safetensors = require("safetensors.torch", extra="federated")
        try:
            if hasattr(self.model, "save_pretrained"):  # names in its files are its class's business
                host: Any = type(self.model)
                saved = host.from_pretrained(folder / "model", local_files_only=True)
                self.model.load_state_dict(saved.state_dict())
            else:
                safetensors.load_model(self.model, folder / "model" / "model.safetensors")
        except RuntimeError as error:
            raise ValueError(f"folder: expected the tensors of this model, got others in {folder}: {error}") from None
        self.stand_ins.load_state_dict(self.view, safetensors.load_file(folder / "stand_ins.safetensors"))
        self.optimizer.load_state_dict(safetensors.load_file(folder / "optimizer.safetensors"))
        known = json.loads((folder / "server.json").read_text())
        self._places, self._has_embeddings = known["places"], set(known["has_embeddings"])
        self.history = history

    @property
    def _current(self) -> RoundRecord:
        if self._record is None:
            raise RuntimeError("server: expected a round that plan() began, got none")
        return self._record

    def _importance(self, given: Tensor | None) -> Tensor:
        if not self.measures_importance:
            return torch.zeros(self.view.num_layers)
        if self.config.importance == "clients":
            if given is None or given.shape != (self.view.num_layers,):
                shape = None if given is None else tuple(given.shape)
                raise ValueError(
                    f"importance: expected {self.view.num_layers} numbers that clients measured, got {shape}"
                )
            return given
        return layer_importance(
            self.model, self.proxy or [], self.loss_fn, estimator=self.config.estimator, layers=self.view.path
        )

    def _order(self, report: Report, scores: Tensor, record: RoundRecord) -> Order:
        count = self.view.num_layers
        capacity = (
            check_capacity(report.capacity, count)
            if report.capacity is not None
            else capacity_for_memory(self.model, report.memory or 0, self.config, layers=self.view.path)
        )
        chances = block_probabilities(
            scores, capacity, self.config.importance_normalization, self.config.temperature,
            sampler=self.config.sampler, edge=self.config.edge,
        )  # fmt: skip
        if str(capacity) not in record.entropy:
            record.entropy[str(capacity)] = effective_entropy(chances)
            if self.config.sampler == "importance":
                warn_if_uniform(chances)
        place = self._places.setdefault(report.client, len(self._places))
        rng = stream(self.config.seed, "blocks", record.round, report.client)
        start = draw_start(chances, rng, sampler=self.config.sampler, round_=record.round, place=place)
        layout = lay_out(block_layers(start, capacity, count), count, self.config)
        record.clients[report.client] = ClientRecord(layout.block, len(layout.places), compute=compute_share(layout))
        return Order(report.client, record.round, layout, report.examples)

    def _refusal(self, update: Update) -> str | None:
        order = self._orders.get(update.client)
        if update.round != self._current.round:
            return f"stale: a reply to round {update.round} in round {self._current.round}"
        if order is None:
            return "nobody asked it"
        if self._current.clients[update.client].status != "lost":
            return "a second reply to one order"
        if update.examples != order.examples:  # what it weighs was said before it trained
            return f"it says that it has {update.examples} examples, and reported {order.examples}"
        wanted = self.view.trained(order.layout.block, self.config.train_extras)
        lacking, unknown = sorted(set(wanted) - set(update.state)), sorted(set(update.state) - set(wanted))
        if lacking or unknown:
            what = f"lacks {lacking[0]}" if lacking else f"has {unknown[0]}, which it was not given to train"
            return f"it {what}"
        for name, tensor in update.state.items():
            if not tensor.is_floating_point():
                return f"{name} is {tensor.dtype}, not floating-point"
            if tensor.shape != wanted[name].shape:
                return f"{name} has the shape {tuple(tensor.shape)}, not {tuple(wanted[name].shape)}"
            if not bool(torch.isfinite(tensor).all()):
                return f"{name} is not finite"
        return None

    def _targets(self) -> dict[str, Any]:
        return self.view.trained(range(self.view.num_layers), self.config.train_extras)


def _check_tokens(model: nn.Module, proxy: Sequence[Batch]) -> None:
    """Refuse token ids of another tokenizer's."""
    known = getattr(getattr(model, "config", None), "vocab_size", None)
    for batch in proxy:
        ids = batch.get("input_ids")
        if known is not None and isinstance(ids, Tensor) and ids.numel() and int(ids.max()) >= known:
            raise ValueError(
                f"proxy: expected token ids below {known}, the model's vocabulary, got {int(ids.max())}; "
                "tokenize it with the model's own tokenizer"
            )
