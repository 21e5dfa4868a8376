"""A federation on Flower: a strategy for the server, an app for the clients.

Three things in Flower's ``FedAvg`` would be wrong here, so that the strategy does them itself: replies need not hold
the same tensors; a tensor's mean is over the clients that trained it, not over all; and the whole state is returned
every round, since Flower goes on with what it is given. Messages differ from node to node: each has its own layers.

Written for Flower 1.42 (message API).
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from thrifty._common.checks import number
from thrifty._common.extras import require
from thrifty._common.runs import device_of
from thrifty.training.leff.client import LeffClient, mean_importance
from thrifty.training.leff.client_model import Shape
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.rounds import Order, Report, Update
from thrifty.training.leff.server import LeffServer
from thrifty.training.leff.simulation import keep_checkpoint, last_checkpoint

require("flwr", extra="federated")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg, Result  # noqa: E402

_log = logging.getLogger(__name__)

#: Names of records, and of what a client keeps.
ARRAYS, CONFIG, METRICS, KEPT = "arrays", "config", "metrics", "leff-embeddings"
#: The weight of a reply, as Flower calls it.
EXAMPLES = "num-examples"
#: In place of a capacity, or a memory, that a client does not say.
UNSAID = -1
#: What a client says that was not sent its embeddings and has none.
LACKS_EMBEDDINGS = "it has no embeddings any more"


class LeffStrategy(FedAvg):
    """Flower's strategy for LEFF: drives a :class:`LeffServer`.

    Args:
        server: With the global model, the settings and the proxy set.
        min_available_nodes: Nodes that must be connected before a round begins.
        connect_timeout: Seconds in which so many nodes must connect.
        query_timeout: Seconds in which a node must say what it can do; those that do not are left out of the round.
        out: A folder for checkpoints, one a round.
        **options: Others of Flower's ``FedAvg`` (``fraction_evaluate``, by default 0: weak clients cannot hold the
            whole model; ``train_metrics_aggr_fn``, ...).

    Raises:
        ValueError: The model is none of transformers', which a client could not build.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=2, n_head=2))
        >>> strategy = LeffStrategy(LeffServer(tiny, LeffConfig(sampler="random", compression="drop")))
        >>> len(strategy.initial_arrays()) == len(tiny.state_dict()) - 1  # the head is tied
        True

    Source:
        Shen et al., NeurIPS 2025, section 3; Flower 1.42, ``flwr.serverapp.strategy``.
    """

    def __init__(
        self,
        server: LeffServer,
        *,
        min_available_nodes: int = 2,
        query_timeout: float = 60.0,
        connect_timeout: float = 3600.0,
        out: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        if not hasattr(server.model, "config"):
            raise ValueError(
                "server: expected a model of transformers, which a client can build anew, got "
                f"{type(server.model).__name__}"
            )
        self.server = server
        self.query_timeout = number("query_timeout", query_timeout, "a positive number of seconds", least=1e-3)
        self.connect_timeout = number("connect_timeout", connect_timeout, "a positive number of seconds", least=1e-3)
        self.out = Path(out) if out is not None else None
        self._given: ArrayRecord | None = None
        self._halves: list[str] = []
        self._nodes: dict[int, str] = {}
        self._remarks: list[str] = []
        super().__init__(
            **{
                "fraction_train": server.config.participation,
                "fraction_evaluate": 0.0,
                "min_train_nodes": 1,
                "min_available_nodes": min_available_nodes,
                **options,
            }
        )

    def initial_arrays(self) -> ArrayRecord:
        """Return the whole state of the global model, tied tensors once, as ``start`` wants it."""
        self._given, self._halves = to_record(_full_state(self.server.model))
        return self._given

    def start(self, grid: Grid, initial_arrays: ArrayRecord | None = None, *args: Any, **options: Any) -> Result:
        """Run the federation, as Flower's ``start``; the arrays are by default those of the server's model."""
        given = self.initial_arrays() if initial_arrays is None else initial_arrays
        return super().start(grid, given, *args, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node what it can do, plan the round, and write each participant its own message."""
        self._take(arrays)
        nodes = self._wait(grid)
        reports = self._ask(grid, nodes)
        chosen = set(self.server.participants([report.client for _, report in reports]))
        reports = [(node, report) for node, report in reports if report.client in chosen]
        importance = self._measure(grid, reports)
        orders = self.server.plan([report for _, report in reports], importance, strict=False)
        for remark in self._remarks:
            self.server.note(remark)
        self._nodes = {node: report.client for node, report in reports}
        config["server-round"] = server_round
        of = {report.client: node for node, report in reports}
        return [self._message(order, of[order.client], config) for order in orders]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average layer by layer what came in time; return the complete state."""
        valid, _ = self._check_and_log_replies(list(replies), is_train=True, validate=False)
        accepted = []
        for reply in sorted(valid, key=self._client):  # whoever came first
            try:
                if reply.content.config_records[CONFIG].get("lacks"):
                    self.server.forget_embeddings(self._client(reply))
                    self.server.note(f"{self._client(reply)}: {LACKS_EMBEDDINGS}")
                    continue
                update = _update(reply.content)
            except (KeyError, ValueError, TypeError) as error:
                self.server.note(f"{self._client(reply)}: its reply cannot be read ({type(error).__name__}: {error})")
                continue
            if update.client != self._client(reply):  # nobody answers for another
                self.server.note(f"{self._client(reply)}: its reply is in the name of {update.client!r}")
            elif self.server.receive(update) is None:
                accepted.append(reply.content)
        self.server.finish()
        if self.out is not None:
            keep_checkpoint(self.server, self.out)
        metrics = self.train_metrics_aggr_fn(accepted, self.weighted_by_key) if accepted else None
        return self.initial_arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send the whole model to be evaluated, where ``fraction_evaluate`` is above 0."""
        shape = Shape.full(self.server.view)
        config.update(self._settings() | {"shape": shape.to_json(), "bfloat16": self._halves, "round": server_round})
        return super().configure_evaluate(server_round, arrays, config, grid)

    def _take(self, arrays: ArrayRecord) -> None:
        if arrays is not self._given:
            state = from_record(arrays, self._halves)
            lacking, unknown = self.server.model.load_state_dict(state, strict=False)
            if unknown or set(lacking) & {name for name, _ in self.server.model.named_parameters()}:
                raise ValueError(
                    f"initial_arrays: expected the state of the server's model, got no {lacking[:3]} "
                    f"and unknown {unknown[:3]}"
                )

    def _wait(self, grid: Grid) -> list[int]:
        deadline = time.monotonic() + self.connect_timeout
        while len(nodes := list(grid.get_node_ids())) < self.min_available_nodes:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"min_available_nodes: expected {self.min_available_nodes} nodes within "
                    f"{self.connect_timeout:g} s, got {len(nodes)}"
                )
            _log.info("waiting for nodes: %d of %d are connected", len(nodes), self.min_available_nodes)
            time.sleep(0.2)
        return sorted(nodes)

    def _ask(self, grid: Grid, nodes: list[int]) -> list[tuple[int, Report]]:
        asked = ConfigRecord({"round": self.server.round + 1})
        messages = [
            Message(content=RecordDict({CONFIG: asked}), message_type="query", dst_node_id=node) for node in nodes
        ]
        replies = [m for m in grid.send_and_receive(messages, timeout=self.query_timeout) if not m.has_error()]
        if len(replies) < len(nodes):
            _log.warning("%d of %d nodes did not say what they can do", len(nodes) - len(replies), len(nodes))
        found: dict[str, tuple[int, Report]] = {}
        self._remarks = []
        for message in sorted(replies, key=lambda m: m.metadata.src_node_id):
            node = message.metadata.src_node_id
            try:
                report = _report(message.content)
            except (KeyError, ValueError, TypeError) as error:
                self._remarks.append(f"node {node}: what it says cannot be read ({type(error).__name__}: {error})")
                continue
            if report.client in found:
                self._remarks.append(f"node {node}: there is a client {report.client!r} already")
            else:
                found[report.client] = (node, report)
        return [found[name] for name in sorted(found)]

    def _client(self, reply: Message) -> str:
        """Return the client that a node is in this round."""
        node = reply.metadata.src_node_id
        return self._nodes.get(node, f"node {node}")

    def _measure(self, grid: Grid, reports: list[tuple[int, Report]]) -> Tensor | None:
        if not (self.server.measures_importance and self.server.config.importance == "clients"):
            return None
        full = self.server.view.num_layers
        settings = self._settings()
        arrays, halves = to_record(_full_state(self.server.model))
        whole = Shape.full(self.server.view)
        settings |= {"shape": whole.to_json(), "bfloat16": halves, "round": self.server.round + 1}
        messages = [
            Message(
                content=RecordDict({ARRAYS: arrays, CONFIG: ConfigRecord(settings)}),
                message_type="query.importance",
                dst_node_id=node,
            )
            for node, report in reports
            if report.capacity == full and report.examples
        ]
        measured: dict[str, tuple[Tensor, int]] = {}
        for reply in grid.send_and_receive(messages, timeout=self.query_timeout) if messages else []:
            if not reply.has_error():
                metrics = reply.content.metric_records[METRICS]
                scores = torch.tensor(cast(list[float], metrics["importance"]), dtype=torch.float32)
                measured[str(reply.content.config_records[CONFIG]["client"])] = (
                    scores,
                    int(cast(int, metrics[EXAMPLES])),
                )
        return mean_importance(measured)

    def _message(self, order: Order, node: int, config: ConfigRecord) -> Message:
        client = self.server.client_model(order)
        shape = Shape.of(client, self.server.model, self.server.config)
        arrays, halves = to_record(self.server.sending(order, client))
        settings = self._settings() | dict(config)
        settings |= {"shape": shape.to_json(), "bfloat16": halves, "round": order.round, "client": order.client}
        settings["embeddings"] = [name for name in self.server.view.embeddings() if name in client.state()]
        return Message(
            content=RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: ConfigRecord(settings)}),
            message_type="train",
            dst_node_id=node,
        )

    def _settings(self) -> dict[str, Any]:
        return {"leff": self.server.config.to_json()}


def leff_client_app(
    make_client: Callable[[Context], LeffClient],
    evaluate: Callable[[nn.Module, Context], Mapping[str, float]] | None = None,
    *,
    threads: int | None = None,
    device: str = "auto",
    mods: list[Any] | None = None,
) -> ClientApp:
    """Return Flower's app of a client: says what it can do, trains the block that it is sent, answers.

    The client never sees the whole model: it builds the shorter one that the message describes. Frozen embeddings
    that travelled once are kept in the node's state.

    Args:
        make_client: From the node's context (``context.node_config`` has what ``--node-config`` said) to the client.
        evaluate: From the whole model and the context to numbers, if clients are to evaluate it.
        threads: That torch may use; ``None``: all.
        device: That the client trains on: ``"cpu"``, ``"cuda"``, or ``"auto"``, an accelerator where there is one.
        mods: Flower's modifiers of messages.

    Raises:
        ValueError: In the app: clients are asked to evaluate, and there is no function for it.

    Example:
        >>> ids = torch.arange(12).reshape(4, 3)
        >>> def make_client(context):
        ...     name = str(context.node_config["partition-id"])
        ...     return LeffClient(name, {"input_ids": ids, "labels": ids}, capacity=context.node_config["capacity"])
        >>> type(leff_client_app(make_client)).__name__
        'ClientApp'

    Source:
        Shen et al., NeurIPS 2025, section 3; Flower 1.42, ``flwr.clientapp``.
    """
    app = ClientApp(mods=mods)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        client = make_client(context)
        report = client.report(int(cast(int, message.content.config_records[CONFIG]["round"])))
        capacity = UNSAID if report.capacity is None else report.capacity
        memory = float(UNSAID if report.memory is None else report.memory)
        metrics = {EXAMPLES: report.examples, "capacity": capacity, "memory": memory}
        content = RecordDict({METRICS: MetricRecord(metrics), CONFIG: ConfigRecord({"client": report.client})})  # type: ignore[arg-type]
        return Message(content, reply_to=message)

    @app.query("importance")
    def importance(message: Message, context: Context) -> Message:
        client, (model, config, round_) = make_client(context), _whole(message.content)
        scores = client.importance(model, round_, config)
        metrics = MetricRecord({EXAMPLES: client.examples, "importance": scores.tolist()})
        return Message(RecordDict({METRICS: metrics, CONFIG: ConfigRecord({"client": client.name})}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        if threads is not None:
            torch.set_num_threads(threads)
        client = make_client(context)
        settings = _one(message.content.config_records)
        told = {"client": client.name, "round": settings["round"]}
        state = from_record(_one(message.content.array_records), cast(list[str], settings["bfloat16"]))
        if not _with_embeddings(state, cast(list[str], settings["embeddings"]), context):
            told["lacks"] = LACKS_EMBEDDINGS
            empty = RecordDict({CONFIG: ConfigRecord(told), METRICS: MetricRecord({EXAMPLES: client.examples})})
            return Message(empty, reply_to=message)
        config = LeffConfig.from_json(str(settings["leff"]))
        model = Shape.from_json(str(settings["shape"])).build(state, recompute=config.gradient_checkpointing)
        model.model.to(device_of(device))
        round_, secret = int(cast(int, settings["round"])), secrets.randbits(63)  # noise that the server cannot redraw
        update = client.train(model, round_, config, secret=secret)
        arrays, halves = to_record(update.state)
        metrics = MetricRecord({EXAMPLES: update.examples, **update.metrics})
        content = RecordDict({ARRAYS: arrays, METRICS: metrics, CONFIG: ConfigRecord({**told, "bfloat16": halves})})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluation(message: Message, context: Context) -> Message:
        if evaluate is None:
            raise ValueError("evaluate: expected a function where clients are asked to evaluate, got None")
        client, (model, _, _) = make_client(context), _whole(message.content)
        found = {name: float(value) for name, value in evaluate(model.eval(), context).items()}
        return Message(RecordDict({METRICS: MetricRecord({EXAMPLES: client.examples, **found})}), reply_to=message)

    return app


def leff_server_app(
    make_server: Callable[[Context], LeffServer],
    rounds: int,
    *,
    timeout: float = 3600.0,
    finished: Callable[[LeffStrategy], object] | None = None,
    **options: Any,
) -> ServerApp:
    """Return Flower's app of the server.

    Args:
        make_server: From the run's context to the server, with the global model.
        rounds: Of the federation.
        timeout: Seconds in which replies must come; a round then goes on without the others.
        finished: Called with the strategy at the end: ``strategy.server.history`` is the ledger.
        **options: Of :class:`LeffStrategy`.

    Example:
        >>> type(leff_server_app(lambda context: None, rounds=3)).__name__
        'ServerApp'

    Source:
        Flower 1.42, ``flwr.serverapp``.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = LeffStrategy(make_server(context), **options)
        if strategy.out is not None and (last := last_checkpoint(strategy.out)) is not None:
            strategy.server.load(last)  # an interrupted run goes on
            strategy.server.forget_embeddings()  # what nodes keep, they keep for a run
        if left := max(0, rounds - strategy.server.round):
            strategy.start(grid, num_rounds=left, timeout=timeout)
        if finished is not None:
            finished(strategy)

    return app


def to_record(state: Mapping[str, Tensor]) -> tuple[ArrayRecord, list[str]]:
    """Return tensors as Flower carries them, and the names of those in bfloat16, which travel as int16."""
    halves = [name for name, tensor in state.items() if tensor.dtype == torch.bfloat16]
    arrays = {}
    for name, tensor in state.items():
        held = tensor.detach().cpu().contiguous()
        arrays[name] = Array((held.view(torch.int16) if name in halves else held).numpy())
    return ArrayRecord(arrays), halves


def from_record(arrays: ArrayRecord, halves: Iterable[str] = ()) -> dict[str, Tensor]:
    """Return what :func:`to_record` was given."""
    state = {name: torch.from_numpy(array.numpy()) for name, array in arrays.items()}
    return state | {name: state[name].view(torch.bfloat16) for name in halves}


def _full_state(model: nn.Module) -> dict[str, Tensor]:
    """Return every tensor of a model once."""
    found, seen = {}, set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def _with_embeddings(state: dict[str, Tensor], names: list[str], context: Context) -> bool:
    """Keep embeddings that came, add those that were kept; tell whether they are all there."""
    if all(name in state for name in names):
        if names:
            kept, halves = to_record({name: state[name] for name in names})
            context.state[KEPT] = kept
            context.state[f"{KEPT}-bfloat16"] = ConfigRecord({"names": halves})
        return True
    if KEPT not in context.state:
        return False
    halves = cast(list[str], context.state.config_records[f"{KEPT}-bfloat16"]["names"])
    state.update(from_record(context.state.array_records[KEPT], halves))
    return all(name in state for name in names)


def _update(content: RecordDict) -> Update:
    told, metrics = content.config_records[CONFIG], dict(content.metric_records[METRICS])
    state = from_record(_one(content.array_records), cast(list[str], told["bfloat16"]))
    examples = int(cast(int, metrics.pop(EXAMPLES)))
    numbers = {name: float(cast(float, value)) for name, value in metrics.items()}
    return Update(str(told["client"]), int(cast(int, told["round"])), state, examples, numbers)


def _report(content: RecordDict) -> Report:
    metrics, told = content.metric_records[METRICS], content.config_records[CONFIG]
    capacity, memory = (cast(int, metrics[name]) for name in ("capacity", "memory"))
    return Report(
        str(told["client"]),
        int(cast(int, metrics[EXAMPLES])),
        None if capacity == UNSAID else capacity,  # what is no whole number is refused when the round is planned
        None if memory == UNSAID else memory,
    )


def _whole(content: RecordDict) -> tuple[nn.Module, LeffConfig, int]:
    settings = _one(content.config_records)
    state = from_record(_one(content.array_records), cast(list[str], settings["bfloat16"]))
    model = Shape.from_json(str(settings["shape"])).build(state).model
    return model, LeffConfig.from_json(str(settings["leff"])), int(cast(int, settings["round"]))


def _one(records: Any) -> Any:
    (record,) = records.values()
    return record
