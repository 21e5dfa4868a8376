"""A client's step: forward, backward, AdamW; the block of one layer beside full fine-tuning and LoRA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.leff.aggregate import aggregate_layers
from thrifty.training.leff.client_model import compress_context
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.evidence import sentences
from thrifty.training.leff.evidence.contenders import FEDAVG, FEDLORA, OURS, RANK, settings
from thrifty.training.leff.importance import Batch, model_loss
from thrifty.training.leff.layers import LayerView
from thrifty.training.leff.local import make_optimizer
from thrifty.training.leff.rivals.adapters import adapt
from thrifty.training.leff.server import LeffServer
from thrifty.training.leff.streams import torch_stream

#: First, middle and last block of one layer: what is below a block is not differentiated, so that times differ.
STARTS = (0, 2, 5)
#: Of a timed step.
SENTENCES = 16


class Stepper:
    """One step of a contender, to be called again and again."""

    def __init__(self, name: str, model: Any, batch: Batch, start: int = 2) -> None:
        self.batch = batch
        self.path = LayerView(model).path
        self.received: dict[str, Tensor] = {}
        if name == FEDLORA:
            adapted = adapt(LayerView(model), range(6), RANK, torch_stream(0, "adapters"))
            self.model, self.trained = adapted.model.train(), adapted.trained()
        else:
            config = LeffConfig(compression="drop")  # a stand-in costs what it costs, distilled or not
            client = compress_context(model, start if name == OURS else 0, 1 if name == OURS else 6, 0.5, config=config)
            client.train_mode()
            self.model, self.trained = client.model, client.trained()
            embeddings = LayerView(model).embeddings()
            self.received = {n: t for n, t in client.state().items() if n not in embeddings}
        learnt = {name: t for name, t in self.trained.items() if t.requires_grad}
        self.optimizer = make_optimizer(learnt, LeffConfig(lr=1e-6))

    def __call__(self) -> None:
        """Make the step."""
        self.optimizer.zero_grad()
        torch.autograd.backward(model_loss(self.model, self.batch))
        self.optimizer.step()

    def block_bytes(self) -> float:
        """Return the bytes of the layers' trained weights, their gradients and moments (after a step)."""
        extras = set(LayerView(self.model).extras()) if not self.adapted else set()
        inside = [t for n, t in self.trained.items() if n not in extras and n.startswith(self.path)]
        held = [t for p in inside for t in self.optimizer.state[p].values() if isinstance(t, Tensor) and t.ndim]
        gradients = [p.grad for p in inside if p.grad is not None]
        return float(sum(t.numel() * t.element_size() for t in (*inside, *gradients, *held)))

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained."""
        return any(name.endswith((".A", ".B")) for name in self.trained)


def steps(ctx: Context, evidence: Evidence, *, quick: float = 4.0) -> dict[str, Measurement]:
    """Time steps interleaved; return LEFF's mean over blocks against full fine-tuning and LoRA."""
    model = sentences.make_model(ctx.seed)
    batch = sentences.labelled_batches(sentences.load(ctx.data)["train"], 1, SENTENCES)[0]
    names = {f"{OURS}, layer {start + 1} of 6": Stepper(OURS, model, batch, start) for start in STARTS}
    rivals = {FEDAVG: Stepper(FEDAVG, model, batch), FEDLORA: Stepper(FEDLORA, model, batch)}
    seconds = ctx.timed(
        evidence, {**names, **rivals}, workload="MiniLM, a step of 16 sentences", quick=quick, full=25.0
    )
    rounds = zip(*(seconds[name].values for name in names), strict=True)
    ours = Measurement.of([sum(values) / len(values) for values in rounds], "s", timed=True)
    return {"full": ours.over(seconds[FEDAVG]), "lora": ours.over(seconds[FEDLORA]), "seconds": ours}


def distillation(ctx: Context, evidence: Evidence, step: Measurement) -> Measurement:
    """Time a round's distillation for all clients; return it over a weak client's pass over its sentences."""
    everyone = sentences.make_clients(1.0, ctx.seed, ctx.data)
    config = settings(OURS, ctx.seed, 4)
    proxy = sentences.proxy_batches(ctx.data)
    seconds = []
    for seed in range(2):
        server = LeffServer(sentences.make_model(ctx.seed), config.with_overrides(seed=seed, sampler="random"), proxy)
        server.plan([client.report(1) for client in everyone])
        seconds.append(server.finish().seconds["distillation"])
    weak = sum(c.examples for c in everyone if c.capacity == 1) / sum(c.capacity == 1 for c in everyone)
    epoch = step.median * weak / SENTENCES
    evidence.row(
        OURS,
        {"distillation": Measurement.of(seconds, "s", timed=True), "a pass": Measurement.of(epoch, "s", timed=True)},
        workload="the server's stand-ins of a round",
    )
    return Measurement.of([value / epoch for value in seconds], "ratio", timed=True)


def aggregation(ctx: Context, evidence: Evidence) -> None:
    """Time the averaging of 16 replies beside Flower's own, on replies that both can take."""
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    from thrifty.training.leff.flower import from_record, to_record

    view = LayerView(sentences.make_model(ctx.seed))
    state = {name: t.detach() for name, t in view.trained(range(1)).items()}
    replies, updates = [], []
    for reply in range(16):
        mine = {name: t + 0.01 * reply for name, t in state.items()}
        arrays = ArrayRecord({name: Array(t.numpy()) for name, t in mine.items()})
        replies.append(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1 + reply})}))
        updates.append(arrays)
    theirs = aggregate_arrayrecords(replies, "num-examples")

    def ours() -> Any:
        received = ((from_record(arrays), 1 + reply) for reply, arrays in enumerate(updates))
        return to_record(aggregate_layers(state, received))[0]

    found = ours()
    error = max(abs(found[name].numpy() - theirs[name].numpy()).max() for name in state)
    seconds = ctx.timed(
        evidence,
        {OURS: ours, "Flower's FedAvg": lambda: aggregate_arrayrecords(replies, "num-examples")},
        workload="averaging 16 replies",
        quick=1.5,
        full=10.0,
    )
    evidence.measured("aggregation-time", seconds[OURS].over(seconds["Flower's FedAvg"]), gate=float(error))
