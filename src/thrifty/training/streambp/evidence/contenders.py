"""The training steps that are compared: one model, one batch, one gradient each, by different means."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear_cross_entropy

from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp import enable_streambp, streamed_linear_cross_entropy
from thrifty.training.streambp.evidence.batches import Batch
from thrifty.training.streambp.rivals import tile_feed_forward

NONE, CHECKPOINT, NATIVE = "no checkpointing", "checkpointing", "checkpointing + torch's fused head"
TRL, MST, TILED = "checkpointing + TRL's fused head", "MsT-style", "TiledMLP-style + torch's fused head"
OURS, LAYERS_ONLY = "StreamBP", "StreamBP layers + torch's fused head"
#: Checkpointing with our head: what E2 compares layers against.
SAME_HEAD = "checkpointing + streamed head"
TILES = 8

#: E1: the head dominates. E2: the layers do.
E1: dict[str, Any] = {
    "vocab_size": 16384, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
E2: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 1,
}  # fmt: skip


def make_model(settings: dict[str, Any], seed: int, device: str = "cpu") -> Any:
    """Return a Llama of these settings with random weights, in float32 and training mode."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(LlamaConfig(**settings, max_position_embeddings=1 << 20))
    return model.to(device).train()


def _hidden(model: Any, batch: Batch) -> Tensor:
    found: Tensor = model.get_decoder()(
        input_ids=batch.ids, attention_mask=batch.mask, use_cache=False
    ).last_hidden_state
    return found


def _own_loss(model: Any, batch: Batch) -> Tensor:
    loss: Tensor = model(input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels, use_cache=False).loss
    return loss


def _native_loss(model: Any, batch: Batch) -> Tensor:
    hidden = _hidden(model, batch)[:, :-1].flatten(0, 1)
    options = torch.nn.LinearCrossEntropyOptions()
    return linear_cross_entropy(hidden, model.lm_head.weight, batch.labels[:, 1:].flatten(), options=options)


def _streamed_head_loss(model: Any, batch: Batch) -> Tensor:
    loss = streamed_linear_cross_entropy(_hidden(model, batch), model.lm_head.weight, batch.labels)
    assert isinstance(loss, Tensor)
    return loss


def _trl_loss(model: Any, batch: Batch) -> Tensor:
    found = model(
        input_ids=batch.ids, attention_mask=batch.mask, labels=batch.labels, fused_lm_head=True, use_cache=False
    )
    loss: Tensor = found.loss
    return loss


@contextmanager
def prepared(name: str, model: Any, chunk: int | str = "auto", **settings: Any) -> Iterator[Callable[[Batch], Tensor]]:
    """Make a model ready for a contender's step inside the block; give the loss function."""
    undo: list[Callable[[], object]] = []
    loss = {NATIVE: _native_loss, TILED: _native_loss, LAYERS_ONLY: _native_loss, TRL: _trl_loss, MST: _native_loss}
    if name in {OURS, LAYERS_ONLY}:
        head = "streambp" if name == OURS else "own"
        handle = enable_streambp(model, layer_chunk_size=chunk, head=head, check=False, **settings)  # type: ignore[arg-type]
        undo.append(handle.remove)
    elif name != NONE:
        model.activation_checkpointing_enable({"use_reentrant": False})
        undo.append(model.activation_checkpointing_disable)
    if name == TRL:
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model)
        undo.append(lambda: model.__dict__.pop("forward"))
    if name in {MST, TILED}:
        undo.append(tile_feed_forward(model, TILES, recompute=name == TILED))
    chosen = _streamed_head_loss if name == SAME_HEAD else loss.get(name, _own_loss)
    try:
        yield lambda batch: chosen(model, batch)
    finally:
        while undo:
            undo.pop()()


def step(model: Any, loss: Callable[[Batch], Tensor], batch: Batch) -> float:
    """Compute one loss and its gradients."""
    found = loss(batch)
    torch.autograd.backward(found)
    return float(found.detach())


def peak(name: str, model: Any, batch: Batch, chunk: int | str = "auto", device: str = "cpu", **settings: Any) -> float:
    """Return the MiB that a contender's step allocates at most; gradients are part of it, weights are not."""
    with prepared(name, model, chunk, **settings) as loss:
        model.zero_grad(set_to_none=True)
        gc.collect()
        found = allocated_peak(lambda: step(model, loss, batch), device=device) / 2**20
        model.zero_grad(set_to_none=True)
    return found


def gradients(name: str, model: Any, batch: Batch, chunk: int | str = "auto") -> dict[str, Tensor]:
    """Return a contender's gradients by name."""
    with prepared(name, model, chunk) as loss:
        model.zero_grad(set_to_none=True)
        step(model, loss, batch)
    found = {key: parameter.grad.clone() for key, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return found


def gradient_error(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return the largest relative error of a parameter's gradient."""
    return max(float((got[key] - wanted[key]).norm() / wanted[key].norm()) for key in wanted)
