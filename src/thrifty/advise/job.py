"""A training job as its ledger needs it: sizes that follow from a model, a device and a plan."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from thrifty._common.ledger import Task
from thrifty.advise.hardware import Device, Optimizer
from thrifty.advise.model import WIDTH, Decoder

Objective = Literal["sft", "dpo", "grpo"]
OBJECTIVES: dict[Objective, Task] = {
    "sft": Task.LM_FINETUNING,
    "dpo": Task.LM_PREFERENCE,
    "grpo": Task.LM_REINFORCEMENT,
}
#: Sequences that an example becomes: chosen and rejected; a group of answers.
SEQUENCES: dict[Objective, int] = {"sft": 1, "dpo": 2, "grpo": 8}
#: The most of each that is asked about; beyond them an answer would be arithmetic about nothing.
MOST = {"length": 1 << 24, "batch": 1 << 16, "gpus": 1 << 16, "context_parallel": 1 << 16, "rank": 1 << 16}
#: What can be kept in the host's memory.
OFFLOADED = ("checkpoints", "optimizer", "weights")


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
        fused_head: Logits are never there for all tokens (TRL's and Liger's heads).
        offload: Which of :data:`OFFLOADED` are in the host's memory; with the optimizer go the gradients.
        context_parallel: Devices that share a sequence, each with its own slice of tokens.
        generated: Tokens of an answer that the model generates before it is trained on them; 0: none.
        layers: Take so many layers in place of the model's own; 0: its own.
        asked: (length, batch) to be rehearsed as they are; all others are interpolated. ``None``: rehearse any.
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
    fused_head: bool = False
    offload: Set[str] = frozenset()
    context_parallel: int = 1
    generated: int = 0
    layers: int = 0
    asked: tuple[int, int] | None = None

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
    def tokens(self) -> float:
        """Tokens of a sequence that one device holds."""
        return self.length / self.context_parallel

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return WIDTH[self.dtype]

    @property
    def reference(self) -> float:
        """Weights of the frozen model that preferences are measured against (adapters are switched off instead)."""
        return self.parameters if self.objective == "dpo" and not self.lora_rank else 0.0

    @property
    def matrix_state(self) -> float:
        """Bytes of optimizer state of the layers' matrices, or of adapters."""
        if self.lora_rank:
            numbers = self.optimizer.numbers(round(self.adapters), 1, 1)
        else:
            shapes = self.model.matrices.items()
            numbers = sum(self.optimizer.numbers(*shape, self.rank) * count for shape, count in shapes)
            numbers *= self.depth / self.model.layers
        return numbers * (self.optimizer.bytes or self.width)

    @property
    def others(self) -> float:
        """Weights that are trained and are no matrices of layers."""
        matrices = sum(rows * columns * count for (rows, columns), count in self.model.matrices.items())
        return 0.0 if self.lora_rank else self.trained - matrices * self.depth / self.model.layers

    @property
    def other_state(self) -> float:
        """Bytes of optimizer state of those, and of copies of all weights in higher precision."""
        kept = self.optimizer.others * self.others * (self.optimizer.bytes or self.width)
        return kept + self.optimizer.copies * self.trained

    @property
    def largest(self) -> float:
        """Numbers of the largest weight that is trained."""
        if self.lora_rank:
            return float(self.lora_rank * max(max(shape) for shape in self.model.matrices))
        words = self.model.text.vocab_size * self.model.text.hidden_size
        return float(max(words, *(rows * columns for rows, columns in self.model.matrices)))

    @property
    def gathered(self) -> float:
        """Weights that are whole on the device although they are sharded or offloaded: those in use, and the next."""
        apart = self.gpus > 1 or "weights" in self.offload
        return self.model.outside + 2 * self.model.layer_parameters if apart else 0.0

    @property
    def a_token(self) -> float:
        """Bytes of keys and values of one token of every sequence, all layers."""
        each = self.model.shape.kv_bytes_per_token * self.width / 2  # counted there in 16 bits
        return self.sequences * each * self.depth / self.model.layers
