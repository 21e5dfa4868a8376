"""The ledger of a training step: bytes at the peak by part, FLOPs, traffic, and seconds at best.

Weights, gradients and optimizer state are counted from shapes; what a step allocates beyond them is rehearsed at three
lengths and interpolated (every tensor of a step grows with the tokens or with their pairs). FLOPs are two a weight and
token, three times that with the backward pass, four with recomputation (Kaplan et al., arXiv 2001.08361, section 2.1),
and 4 · length · width a token and layer for attention, half of it where kernels skip what is masked.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from thrifty._common.ledger import Resource, Task
from thrifty.advise.account import Account, Part
from thrifty.advise.hardware import Device, Optimizer
from thrifty.advise.model import WIDTH, Decoder
from thrifty.advise.rehearsal import LAYERS, Mode, Phases

Objective = Literal["sft", "dpo", "grpo"]
OBJECTIVES: dict[Objective, Task] = {
    "sft": Task.LM_FINETUNING,
    "dpo": Task.LM_PREFERENCE,
    "grpo": Task.LM_REINFORCEMENT,
}
#: Sequences that an example becomes: chosen and rejected; a group of answers.
SEQUENCES: dict[Objective, int] = {"sft": 1, "dpo": 2, "grpo": 8}


@dataclass(frozen=True)
class Training:
    """A training workload.

    Args:
        model: The decoder.
        device: What it trains on.
        optimizer: What it is trained with.
        length: Tokens of a sequence.
        batch: Examples a step and device.
        dtype: Of weights and activations.
        gpus: Devices over which weights, gradients and state are sharded.
        objective: ``"sft"``, ``"dpo"`` (twice the sequences, and a frozen reference) or ``"grpo"`` (eight answers).
        lora_rank: Of adapters on all linear layers; 0: all weights are trained.
        checkpointing: Layers are recomputed in the backward pass.
        rank: Of a low-rank optimizer.
        accumulated: Gradients of earlier batches are there throughout the step.
        layers: Take so many layers in place of the model's own; 0: its own.
        anchor: The longest rehearsal, whose results other lengths are computed from; 0: ``length``, at most 4096.
    """

    model: Decoder
    device: Device
    optimizer: Optimizer
    length: int
    batch: int = 1
    dtype: str = "bfloat16"
    gpus: int = 1
    objective: Objective = "sft"
    lora_rank: int = 0
    checkpointing: bool = True
    rank: int = 128
    accumulated: bool = False
    layers: int = 0
    anchor: int = 0

    @property
    def depth(self) -> int:
        """Layers."""
        return self.layers or self.model.layers

    @property
    def parameters(self) -> float:
        """All weights, adapters apart."""
        return self.model.outside + self.depth * self.model.layer_parameters

    @property
    def adapters(self) -> float:
        """Weights of adapters, rank · (rows + columns) of each matrix."""
        sides = sum((rows + columns) * count for (rows, columns), count in self.model.matrices.items())
        return self.lora_rank * sides * self.depth / self.model.layers

    @property
    def trained(self) -> float:
        """Weights that get a gradient."""
        return self.adapters if self.lora_rank else self.parameters

    @property
    def sequences(self) -> int:
        """Sequences a step and device."""
        return self.batch * SEQUENCES[self.objective]

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return WIDTH[self.dtype]


def allocated(job: Training) -> Phases:
    """Return what a step of this job's length and batch allocates, by phase, with the layers that are rehearsed.

    Three rehearsals of one sequence are interpolated: bytes = a + batch · (b · length + c · length²).
    """
    anchor = max(32, job.anchor or min(job.length, 4096))
    lengths = (anchor // 4, anchor // 2, anchor)
    mode: Mode = "checkpoint" if job.checkpointing else "none"
    seen = [job.model.phases(1, n, mode=mode, dtype=job.dtype, lora_rank=job.lora_rank) for n in lengths]
    powers = np.vander(np.array(lengths, float), 3, increasing=True)
    found = {}
    for field in fields(Phases):
        a, b, c = np.linalg.solve(powers, [float(getattr(phases, field.name)) for phases in seen])
        found[field.name] = round(a + job.sequences * (b * job.length + c * job.length**2))
    return Phases(**found)


def account(job: Training) -> Account:
    """Return the ledger of a training step."""
    weights, memory, moment = _memory(job)
    parts = [*weights, *memory, *_flops(job), *_transfer(job)]
    rate = job.device.flops["float32" if job.dtype == "float32" else "bfloat16"]
    total = {resource: sum(p.amount for p in parts if p.resource is resource) for resource in Resource}
    written = 3 * _written(job)
    state = total[Resource.OPTIMIZER_STATE]
    moved = 3 * total[Resource.WEIGHTS] + 2 * state + 3 * job.trained * job.width / job.gpus
    seconds = {
        "arithmetic": total[Resource.FLOPS] / rate,
        "memory traffic": (written + moved) / job.device.bandwidth,
    }
    if job.gpus > 1:
        seconds["communication"] = total[Resource.TRANSFER] / job.device.link
    return Account(tuple(parts), seconds, job.device.memory, rate, moment)


def _memory(job: Training) -> tuple[list[Part], list[Part], str]:
    """Return what is always there, what the step adds at its fullest moment, and when that is."""
    width, n = job.width, job.gpus
    layer = job.model.layer_parameters * width
    state = job.optimizer
    share = job.depth / job.model.layers
    held = sum(state.numbers(r, c, job.rank) * count for (r, c), count in job.model.matrices.items()) * share
    matrix_numbers = sum(r * c * count for (r, c), count in job.model.matrices.items()) * share
    if job.lora_rank:
        held, matrix_numbers = state.numbers(round(job.adapters), 1, 1), job.adapters
    others = state.others * (job.trained - matrix_numbers)
    reference = job.parameters if job.objective == "dpo" and not job.lora_rank else 0
    always = [
        Part(
            "weights",
            Resource.WEIGHTS,
            (job.parameters + job.adapters + reference) * width / n + (layer if n > 1 else 0),
            "parameters · bytes"
            + (" / gpus + one layer gathered" if n > 1 else "")
            + (", twice: policy and reference" if reference else ""),
        ),
        Part(
            "optimizer state",
            Resource.OPTIMIZER_STATE,
            ((held + others) * (state.bytes or width) + state.copies * job.trained) / n,
            f"{state.name}: Σ numbers of each matrix, {state.others:g} of every other weight, times bytes",
        ),
    ]
    phases = allocated(job)
    rehearsed = min(LAYERS, job.model.layers)
    more = job.depth - rehearsed
    gradient = job.trained * width / n
    of_layer = (gradient - (job.model.outside * width / n if not job.lora_rank else 0)) / job.depth
    # Where gradients are accumulated they are all there, and new ones are added and freed one weight at a time.
    held_on, of_head, of_all = 0.0, 0.0, 0.0
    if job.accumulated:
        held_on = gradient
        of_head = 0.0 if job.lora_rank else job.model.text.vocab_size * job.model.text.hidden_size * width
        of_all = (rehearsed - 1) * of_layer * n + of_head
    moments = {
        "the loss is computed": held_on + phases.head + more * phases.kept,
        "the last layer is differentiated": held_on + phases.last + more * phases.kept - of_head,
        "the first layer is differentiated": phases.first + (held_on - of_all if job.accumulated else more * of_layer),
        "the optimizer steps": gradient + 2 * max(job.model.outside / 2, 1) * width * (state.others > 0),
    }
    moment = max(moments, key=lambda name: moments[name])
    peak = moments[moment]
    kept = job.depth * phases.kept if moment.startswith(("the loss", "the last")) else 0
    done = {"the loss": 0.0, "the last": 0.0, "the first": max(0, more) * of_layer, "the optim": gradient}
    gradients = held_on or next(value for start, value in done.items() if moment.startswith(start))
    rest = peak - kept - gradients
    what = {
        "the loss": "logits, loss and their gradients",
        "the last": "layer working set, with its gradients",
        "the first": "layer working set, with its gradients",
        "the optim": "the optimizer's temporaries",
    }
    name = next(value for start, value in what.items() if moment.startswith(start))
    kind = "checkpoints" if job.checkpointing else "activations of all layers"
    step = [
        Part("gradients", Resource.GRADIENTS, gradients, "trained · bytes, of the layers that are done"),
        Part(kind, Resource.ACTIVATIONS, kept, "layers · what one leaves for its backward pass"),
        Part(name, Resource.ACTIVATIONS, rest, "rehearsed on the meta device with two layers"),
    ]
    return always, [part for part in step if part.amount], moment


def _flops(job: Training) -> list[Part]:
    tokens = job.sequences * job.length
    weights = job.model.active * job.depth / job.model.layers  # embedding apart; the head is small beside the layers
    forward = 2.0 * weights * tokens
    attention = 2.0 * job.depth * job.sequences * job.length**2 * job.model.attention_width
    backward = (1.0 if job.lora_rank else 2.0) * forward + 2.5 * attention
    parts = [
        Part("forward pass", Resource.FLOPS, forward, "2 · active weights · tokens"),
        Part("attention", Resource.FLOPS, attention, "2 · layers · sequences · length² · width, causal"),
        Part(
            "backward pass", Resource.FLOPS, backward, "twice the forward pass (once for frozen weights), 2.5 attention"
        ),
    ]
    if job.checkpointing:
        parts.append(Part("recomputation", Resource.FLOPS, forward + attention, "the layers' forward pass again"))
    if job.objective == "dpo":
        parts.append(Part("reference model", Resource.FLOPS, forward + attention, "its forward pass"))
    return parts


def _transfer(job: Training) -> list[Part]:
    if job.gpus == 1:
        return []
    share = (job.gpus - 1) / job.gpus
    amount = (2 * job.parameters + job.trained) * job.width * share
    return [
        Part(
            "communication", Resource.TRANSFER, amount, "(2 · weights gathered + gradients scattered) · (gpus − 1)/gpus"
        )
    ]


def _written(job: Training) -> float:
    """Return bytes that operators write in a step, from the rehearsal."""
    phases = allocated(job)
    return float(phases.written + (job.depth - min(LAYERS, job.model.layers)) * phases.written_layer)
