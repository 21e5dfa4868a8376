"""What the code that StreamBP was published with holds on a GPU, rehearsed from its description of itself.

It streams as the paper says, and holds more than the paper counts and than ``thrifty.training.streambp`` does, in three
places (its repository, with the versions that it pins: torch 2.6, transformers 4.51, peft 0.15):

- the forward pass is not in chunks: the last layer's feed-forward part runs over the whole sequence;
- a chunk's graph begins at the layer's input: the norm of the whole sequence, keys and values of the whole prefix,
  their norms, rotations and copies for grouped queries are in it, and so are their gradients;
- adapters are float32 (what peft does unless told otherwise, and TRL now tells it): every layer's input is copied to
  float32, and sums with the adapter's output are float32.

This is rehearsed operator by operator, as everything else: nothing in it is fitted to a published number.
"""

from __future__ import annotations

from typing import Any

from thrifty._common.extras import require
from thrifty.advise.model import Decoder
from thrifty.advise.rehearsal import Storages, build, decoder_layers, without_values


def peak(model: Decoder, length: int, chunk: int, *, lora_rank: int = 0, optimizer: bool = True) -> float:
    """Return bytes at the peak of a bfloat16 step, weights included.

    Args:
        model: A Llama or Qwen3.
        length: Tokens of the one sequence.
        chunk: Tokens that are differentiated together.
        lora_rank: Of adapters on all linear layers; 0: all weights are trained.
        optimizer: A training step with AdamW; else a backward pass alone, onto gradients that are there.
    """
    forward, backward = _layer(model.config, length, chunk, lora_rank)
    one = 2 * length * model.config.hidden_size  # a layer's input
    inputs = model.layers * one
    head = 2.0 * model.config.vocab_size * model.config.hidden_size  # its gradient is allocated, trained or not
    if lora_rank:  # adapters in float32, with gradients and two moments
        sides = sum((rows + columns) * count for (rows, columns), count in model.matrices.items())
        always, gradients = 2.0 * model.parameters + 16.0 * lora_rank * sides, 0.0
    else:
        always, gradients = (6.0 if optimizer else 2.0) * model.parameters, 2.0 * model.parameters - head
    early = 0.0 if optimizer else gradients + head
    ends = 4 * one  # of the decoder's output and its gradient, and the gradients of the layer's output and input
    moments = (
        early + inputs + forward,
        max(early, head) + inputs + ends + backward,
        head + gradients + one + ends + backward,
    )
    return float(always + max(moments))


def _layer(config: Any, length: int, chunk: int, lora_rank: int) -> tuple[int, int]:
    """Return what one layer adds to its input at most: in the forward pass, and in the last chunk's backward."""
    torch = require("torch", extra="llm")
    with without_values():
        model = build(config, layers=1)
        if lora_rank:
            peft = require("peft", extra="llm")
            model = peft.get_peft_model(model, peft.LoraConfig(r=lora_rank, target_modules="all-linear"))
        layer = decoder_layers(model)[0]
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

        def new(*shape: int) -> Any:
            return torch.empty(*shape, device="meta", dtype=torch.bfloat16)

        hidden, above = new(1, length, config.hidden_size), new(1, chunk, config.hidden_size)
        turns = new(2, length, dim)
        known = [*model.parameters(), *model.buffers(), hidden, above, turns]
        with Storages(known) as forward, torch.no_grad():
            _through(layer, hidden, turns, 0, length)
        hidden.requires_grad_(True)
        hidden.grad = new(1, length, config.hidden_size)  # earlier chunks have begun it
        known.append(hidden.grad)
        with Storages(known) as backward:
            torch.autograd.backward(_through(layer, hidden, turns, length - chunk, length), above)
    return forward.most, backward.most


def _through(layer: Any, hidden: Any, turns: Any, start: int, end: int) -> Any:
    """Return a chunk of a layer's output, computed from the whole of its input."""
    after = hidden[:, start:end] + _attend(layer.self_attn, layer.input_layernorm(hidden), turns, start, end)
    return after + layer.mlp(layer.post_attention_layernorm(after))


def _attend(attention: Any, normed: Any, turns: Any, start: int, end: int) -> Any:
    torch = require("torch", extra="llm")
    dim = turns.shape[-1]

    def heads(flat: Any) -> Any:
        return flat.view(1, flat.shape[1], -1, dim).transpose(1, 2)

    def turned(heads: Any, since: int) -> Any:
        cosine, sine = turns[:, None, since:end]
        half = torch.cat((-heads[..., dim // 2 :], heads[..., : dim // 2]), -1)
        return heads * cosine + half * sine

    key, value = heads(attention.k_proj(normed[:, :end])), heads(attention.v_proj(normed[:, :end]))
    query = heads(attention.q_proj(normed[:, start:end]))
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    query, key = turned(query, start), turned(key, 0)
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    mask = torch.zeros(end - start, end, device="meta", dtype=query.dtype) if start else None
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out = kernel(query, key, value, 0.0, mask is None, attn_mask=mask)[0]
    return attention.o_proj(out.transpose(1, 2).reshape(1, end - start, -1))
