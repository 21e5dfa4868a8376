"""What a training step allocates, phase by phase, found by running two layers of the model on tensors without storage.

The configuration's own class is built on the ``meta`` device and differentiated there: its operators, its masks, what
autograd keeps for the backward pass are those of the real step, only the numbers are missing. Every storage is counted
from its birth to its death. Further layers are added by arithmetic: each adds its input (or its whole graph) to what
waits, and its gradients to what is done.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

from thrifty._common.extras import require

Mode = Literal["none", "checkpoint"]

#: Layers that are run: the first and one that differs from it where only the first is special.
LAYERS = 2
#: Tokens whose logits a fused head computes together (TRL's and Liger's are of this order).
FUSED_TOKENS = 256


@dataclass(frozen=True)
class Phases:
    """The most bytes that a rehearsed step holds above its weights, in the order in which a step goes through them.

    Args:
        head: In the forward pass and while the loss is differentiated.
        last: While the last layer is differentiated; every layer's input waits.
        first: While the first layer and the embedding are; the gradients of all layers are there.
        kept: Bytes that one layer leaves for its backward pass.
        layer: Bytes that differentiating one layer adds at most to what is there when its turn comes.
        written: Bytes that all operators of the step write.
        written_layer: Of these, those of one layer.
    """

    head: int
    last: int
    first: int
    kept: int
    layer: int
    written: int
    written_layer: int


def rehearse(
    config: Any,
    batch: int,
    length: int,
    *,
    mode: Mode = "checkpoint",
    dtype: str = "bfloat16",
    lora_rank: int = 0,
    fused_head: bool = False,
) -> Phases:
    """Run a forward and a backward pass of the model's first two layers on the ``meta`` device.

    Args:
        config: A Hugging Face configuration of a decoder; it is not changed.
        batch: Sequences.
        length: Tokens of each.
        mode: ``"none"`` keeps all activations, ``"checkpoint"`` recomputes layers in the backward pass.
        dtype: Of weights and activations.
        lora_rank: Train adapters of this rank on all linear layers, and nothing else; 0: train all weights.
        fused_head: Logits and loss are computed, and recomputed, for a few hundred tokens at a time.

    Returns:
        Bytes by phase.

    Raises:
        ValueError: The model cannot be run without numbers (it branches on values).
        ImportError: transformers is not installed (or PEFT, for adapters).

    Example:
        >>> from transformers import LlamaConfig
        >>> tiny = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=4,
        ...     num_attention_heads=4)
        >>> full, spared = (rehearse(tiny, 1, 64, mode=mode, dtype="float32") for mode in ("none", "checkpoint"))
        >>> full.kept > 5 * spared.kept == 5 * 64 * 32 * 4
        True
    """
    torch = require("torch", extra="llm")
    require("transformers", extra="llm")
    with without_values():
        model = build(config, dtype=dtype, layers=LAYERS)
        if lora_rank:
            model = _with_adapters(model, lora_rank)
        if mode == "checkpoint":
            model.activation_checkpointing_enable({"use_reentrant": False})
            if lora_rank:
                model.enable_input_require_grads()
        model.train()
        ids = torch.zeros(batch, length, dtype=torch.long, device="meta")
        storages = Storages([*model.parameters(), *model.buffers(), ids])
        try:
            return _run(model, ids, storages, _fused_loss if fused_head else _loss)
        except (RuntimeError, NotImplementedError) as error:
            kind = type(config).__name__
            raise ValueError(f"model: a {kind} cannot be run without numbers: {str(error)[:200]}") from error


def build(config: Any, *, dtype: str = "bfloat16", layers: int | None = None) -> Any:
    """Build a causal language model on the ``meta`` device: shapes without memory.

    Args:
        config: A Hugging Face configuration; a copy of it is used.
        dtype: Of the weights.
        layers: Build only that many; ``None``: all of them.
    """
    torch, transformers = require("torch", extra="llm"), require("transformers", extra="llm")
    attention = getattr(config, "_attn_implementation", None)
    config = _shortened(config, config.get_text_config().num_hidden_layers if layers is None else layers)
    kinds = {"experts_implementation": "grouped_mm"} if _experts(config) else {}
    if attention:
        kinds["attn_implementation"] = attention
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), **kinds)


def decoder_layers(model: Any) -> list[Any]:
    """Return the decoder's layers, in order."""
    layer = require("transformers.modeling_layers", extra="llm").GradientCheckpointingLayer
    return [module for module in model.modules() if isinstance(module, layer)]


def _loss(model: Any, ids: Any) -> Any:
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def _fused_loss(model: Any, ids: Any) -> Any:
    """Return the loss without ever holding the logits of all tokens."""
    torch, recomputed = require("torch", extra="llm"), require("torch.utils.checkpoint", extra="llm").checkpoint
    model = getattr(model, "get_base_model", lambda: model)()
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state.flatten(0, 1)
    head = model.get_output_embeddings()

    def loss(rows: Any, targets: Any) -> Any:
        return torch.nn.functional.cross_entropy(head(rows).float(), targets, reduction="sum")

    few = 4 * FUSED_TOKENS  # further chunks come and go like these
    chunks = zip(hidden[:few].split(FUSED_TOKENS), ids.flatten()[:few].split(FUSED_TOKENS), strict=True)
    rest = hidden[few:].sum() if len(hidden) > few else 0.0
    return sum((recomputed(loss, rows, targets, use_reentrant=False) for rows, targets in chunks), rest)


def _run(model: Any, ids: Any, storages: Storages, loss: Callable[[Any, Any], Any]) -> Phases:
    """Step once; a layer's turn in the backward pass begins when the gradient of its output is there."""
    layers = decoder_layers(model)
    if not layers:
        raise ValueError(f"model: {type(model).__name__} has no layers that transformers can checkpoint")
    before, after = [(0, 0)] * len(layers), [(0, 0)] * len(layers)
    for index, layer in enumerate(layers):
        layer.register_forward_pre_hook(_noting(storages, before, index))
        layer.register_forward_hook(_watching(storages, after, index))
    with storages:
        loss(model, ids).backward()
    last = len(layers) - 1
    return Phases(
        head=storages.peaks.get("start", 0),
        last=storages.peaks.get(last, 0),
        first=storages.peaks.get(0, 0),
        kept=after[last][0] - before[last][0],
        layer=storages.peaks.get(last, 0) - storages.entered.get(last, 0),
        written=storages.written,
        written_layer=after[last][1] - before[last][1] + storages.by_phase.get(last, 0),
    )


def _noting(storages: Storages, places: list[tuple[int, int]], index: int) -> Any:
    def hook(module: Any, inputs: Any) -> None:
        if storages.phase == "start":
            places[index] = storages.live, storages.written

    return hook


def _watching(storages: Storages, places: list[tuple[int, int]], index: int) -> Any:
    def hook(module: Any, inputs: Any, output: Any) -> None:
        if storages.phase == "start":
            places[index] = storages.live, storages.written
            hidden = output[0] if isinstance(output, tuple) else output
            hidden.register_hook(lambda _: storages.enter(index))

    return hook


class Storages:
    """Bytes of the storages alive now, and the most in each phase, of everything that torch's operators give."""

    def __init__(self, known: list[Any]) -> None:
        self.live = 0
        self.phase: int | str = "start"
        self.written = 0
        self.peaks: dict[int | str, int] = {"start": 0}
        self.entered: dict[int | str, int] = {}
        self.by_phase: dict[int | str, int] = {"start": 0}
        self._seen = {tensor.untyped_storage()._cdata for tensor in known}
        self._mode = ExitStack()

    def enter(self, phase: int | str) -> None:
        """Begin a phase (the same one again changes nothing)."""
        if phase != self.phase:
            self.phase = phase
            self.entered.setdefault(phase, self.live)
            self.peaks[phase] = max(self.peaks.get(phase, 0), self.live)
            self.by_phase.setdefault(phase, 0)

    def count(self, tensor: Any) -> None:
        """Count a tensor's storage, once."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._seen:
            self._seen.add(key)
            size = storage.nbytes()
            self.live += size
            self.written += size
            self.by_phase[self.phase] += size
            self.peaks[self.phase] = max(self.peaks[self.phase], self.live)
            weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size

    @property
    def most(self) -> int:
        """Bytes that were alive at most."""
        return max(self.peaks.values())

    def __enter__(self) -> Storages:
        self._mode.enter_context(_dispatch(self))
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.close()


def _dispatch(storages: Storages) -> Any:
    """Return the mode under which every operator's results are counted."""
    torch = require("torch", extra="llm")
    leaves = require("torch.utils._pytree", extra="llm").tree_leaves
    base = require("torch.utils._python_dispatch", extra="llm").TorchDispatchMode

    class Count(base):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for tensor in leaves(out):
                if isinstance(tensor, torch.Tensor):
                    storages.count(tensor)
            return out

    return Count()


@contextmanager
def without_values() -> Iterator[None]:
    """Answer what transformers would read from tensors, and attend by the kernel that a real device would choose."""
    masking = require("transformers.masking_utils", extra="llm")
    modeling = require("transformers.modeling_utils", extra="llm")
    functional = require("torch.nn.functional", extra="llm")
    torch = require("torch", extra="llm")
    plain, cast = functional.scaled_dot_product_attention, torch.autocast

    def fused(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
              scale: float | None = None, enable_gqa: bool = False) -> Any:  # fmt: skip
        if query.device.type != "meta" or query.shape[-1] != value.shape[-1]:  # no fused kernel for two widths
            return plain(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # kernels add masks, they do not select by them
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), -1e9)
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]

    def autocast(device_type: str, *arguments: Any, **settings: Any) -> Any:  # torch knows none of the meta device
        return nullcontext() if device_type == "meta" else cast(device_type, *arguments, **settings)

    with (
        mock.patch.object(torch, "autocast", autocast),
        mock.patch.object(masking, "find_packed_sequence_indices", return_value=None),
        mock.patch.object(modeling.PreTrainedModel, "warn_if_padding_and_no_attention_mask", return_value=None),
        mock.patch.object(functional, "scaled_dot_product_attention", fused),
    ):
        yield


def _experts(config: Any) -> bool:
    """Tell whether tokens are routed to experts."""
    return bool(getattr(config.get_text_config(), "num_experts_per_tok", None))


def _with_adapters(model: Any, rank: int) -> Any:
    """Freeze the model and add adapters to all linear layers."""
    peft = require("peft", extra="llm")
    settings = peft.LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM")
    with warnings.catch_warnings():  # of transformers, at what peft asks
        warnings.simplefilter("ignore", FutureWarning)
        return peft.get_peft_model(model, settings, autocast_adapter_dtype=False, low_cpu_mem_usage=True)


def _shortened(config: Any, layers: int) -> Any:
    """Return a copy with so many layers, and whatever is listed layer by layer cut to match."""
    fields = config.to_dict()
    many = config.get_text_config().num_hidden_layers
    wanted = min(layers, many)

    def cut(part: dict[str, Any]) -> dict[str, Any]:
        short = {
            name: value[:wanted] if isinstance(value, list) and len(value) == many and many > wanted else value
            for name, value in part.items()
        }
        for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
            if name in short:
                short[name] = wanted
        return short

    text = fields.get("text_config")
    fields = cut(fields) if not isinstance(text, dict) else fields | {"text_config": cut(text)}
    return type(config)(**fields)
