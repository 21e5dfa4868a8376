"""The settings of layer streaming, as one frozen dataclass that travels as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from thrifty._common.checks import flag, one_of, whole
from thrifty._common.settings import Settings
from thrifty.training.streambp.chunks import ChunkSize, check_chunk_size

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class StreamBPConfig(Settings):
    """How a model's backward pass is streamed.

    Args:
        layer_chunk_size: Tokens of a layer's chunk; ``"auto"`` is a third of the sequence, or, with
            ``memory_budget_bytes``, the largest chunk that the planner fits into it.
        head_chunk_size: Tokens whose logits exist at the same time; ``"auto"`` balances them against the hidden states.
        kv_policy: ``"recompute"`` a layer's keys and values when its backward pass begins (norm and projection again),
            or ``"store"`` them from the forward pass on.
        chunk_forward: Also run the forward pass in chunks. Needed for dropout.
        accum_dtype: In which gradients of 16-bit weights, keys and values are summed: ``"float32"`` or ``"float64"``.
        grad_mode: ``"local"`` sums a layer's gradients and hands each out once, so that hooks, DDP and FSDP see what
            they always see; ``"inplace"`` adds every chunk to ``.grad`` at once, which saves one layer's gradients in a
            single process without hooks.
        preserve_rng_state: Give the recomputation the random numbers of the forward pass.
        memory_budget_bytes: What a training step may allocate beside weights and optimiser.
        every_n_layers: Stream each n-th layer, and keep the activations of the others.
        offload: Keep the inputs of the layers in host memory between forward and backward pass.

    Raises:
        ValueError: A setting is out of range; the message names it.

    Example:
        >>> config = StreamBPConfig(layer_chunk_size=500, offload=True)
        >>> StreamBPConfig.from_json(config.to_json()) == config
        True

    Source:
        arXiv 2506.03077, section 3; ``kv_policy``, ``grad_mode`` and ``offload`` are ours.
    """

    schema, file = "thrifty.streambp", "streambp.json"

    layer_chunk_size: ChunkSize = "auto"
    head_chunk_size: ChunkSize = "auto"
    kv_policy: Literal["recompute", "store"] = "recompute"
    chunk_forward: bool = True
    accum_dtype: Literal["float32", "float64"] = "float32"
    grad_mode: Literal["local", "inplace"] = "local"
    preserve_rng_state: bool = True
    memory_budget_bytes: int | None = None
    every_n_layers: int = 1
    offload: bool = False

    def __post_init__(self) -> None:
        check_chunk_size("layer_chunk_size", self.layer_chunk_size)
        check_chunk_size("head_chunk_size", self.head_chunk_size)
        one_of("kv_policy", self.kv_policy, ("recompute", "store"))
        one_of("grad_mode", self.grad_mode, ("local", "inplace"))
        one_of("accum_dtype", self.accum_dtype, _DTYPES)
        for name in ("chunk_forward", "preserve_rng_state", "offload"):
            flag(name, getattr(self, name))
        for name in ("memory_budget_bytes", "every_n_layers"):
            if getattr(self, name) is not None or name == "every_n_layers":
                whole(name, getattr(self, name))

    @property
    def torch_accum_dtype(self) -> torch.dtype:
        """``accum_dtype`` as torch knows it."""
        return _DTYPES[self.accum_dtype]
