"""The counts of a model from the fields of its ``config.json``, for classes that transformers does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Fields = Mapping[str, Any]

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")
TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "moe_top_k", "moe_topk", "top_k_experts", "moe_k",
    "num_selected_experts",
)  # fmt: skip
EXPERT_WIDTH = ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size")


@dataclass(frozen=True)
class Counts:
    """Parameters of a model, by when they are read."""

    num_experts: int
    top_k: int
    moe_layers: int
    total: int
    expert: int  # one expert index, over all layers
    dense: int  # read at every step: without routed experts and input embedding
    notes: tuple[str, ...] = ()


def experts_of(fields: Fields) -> tuple[int, int]:
    """Return (E, K); (1, 1) for a dense model.

    Raises:
        ValueError: There are experts, and nothing says how many a token takes; or more than there are.
    """
    experts = _first(fields, EXPERTS)
    if not experts or experts == 1:
        return 1, 1
    top_k = _first(fields, TOP_K)
    if not top_k:
        raise ValueError(f"config: {experts} experts, and none of {', '.join(TOP_K)} says how many a token takes")
    if not 1 <= top_k <= experts:
        raise ValueError(f"config: expected 1 <= experts of a token <= {experts} experts, got {top_k}")
    return int(experts), int(top_k)


def counts(fields: Fields) -> Counts:
    """Compute the counts of a decoder with gated feed-forward layers.

    Raises:
        ValueError: A field is missing; the message names it.
    """
    hidden, layers = _need(fields, "hidden_size"), _need(fields, "num_hidden_layers")
    vocabulary = _need(fields, "vocab_size")
    experts, top_k = experts_of(fields)
    moe = [layer for layer in range(layers) if experts > 1 and _is_moe(fields, layer)]
    width = _first(fields, EXPERT_WIDTH) or _need(fields, "intermediate_size")
    shared = fields.get("shared_expert_intermediate_size")
    if shared is None:
        shared = (fields.get("n_shared_experts") or fields.get("num_shared_experts") or 0) * width
    each = 3 * hidden * width
    outside = layers * (_attention(fields, hidden) + 2 * hidden) + hidden
    gate = hidden if fields.get("shared_expert_intermediate_size") else 0  # Qwen weighs its shared expert by a gate
    outside += len(moe) * (hidden * experts + 3 * hidden * shared + gate)
    if len(moe) < layers:
        outside += (layers - len(moe)) * 3 * hidden * _need(fields, "intermediate_size")
    dense = outside + vocabulary * hidden
    total = dense + len(moe) * experts * each + (0 if fields.get("tie_word_embeddings") else vocabulary * hidden)
    note = f"computed from the fields of the config (model_type {fields.get('model_type')!r}), not counted"
    return Counts(experts, top_k, len(moe), total, len(moe) * each, dense, (note,))


def kv_numbers_per_token(fields: Fields) -> float:
    """Return the numbers that a token leaves in the cache: grouped heads, or the latent of MLA as engines keep it.

    Layers with a window are counted as if they saw everything; layers without attention of that kind leave none.

    Raises:
        ValueError: A field is missing; the message names it.
    """
    layers = _attention_layers(fields)
    if fields.get("kv_lora_rank"):
        return float(layers * (fields["kv_lora_rank"] + _need(fields, "qk_rope_head_dim")))
    return float(2 * layers * _kv_heads(fields) * _head_dim(fields))


def _attention(fields: Fields, hidden: int) -> int:
    heads = _need(fields, "num_attention_heads")
    if rank := fields.get("kv_lora_rank"):
        nope, rope, value = (_need(fields, f) for f in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        q_rank = fields.get("q_lora_rank")
        query = hidden * q_rank + q_rank + q_rank * heads * (nope + rope) if q_rank else hidden * heads * (nope + rope)
        return int(query + hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden)
    head, kv = _head_dim(fields), _kv_heads(fields)
    return int(2 * hidden * heads * head + 2 * hidden * kv * head)


def _attention_layers(fields: Fields) -> int:
    """Return how many layers keep keys and values: not those of linear attention or of a state space."""
    layers = _need(fields, "num_hidden_layers")
    if kinds := fields.get("layer_types") or fields.get("layers_block_type"):
        return sum("attention" in kind and not kind.startswith("linear") for kind in kinds)
    if period := fields.get("attn_layer_period"):
        return len(range(int(fields.get("attn_layer_offset") or 0), layers, int(period)))
    return layers // int(fields.get("full_attention_interval") or 1)


def _is_moe(fields: Fields, layer: int) -> bool:
    """Tell whether a layer has routed experts, by whichever field says so."""
    if layer < (fields.get("first_k_dense_replace") or 0) or layer in (fields.get("mlp_only_layers") or ()):
        return False
    step = fields.get("decoder_sparse_step") or fields.get("interleave_moe_layer_step")
    if step:
        return (layer + 1) % int(step) == 0
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list):
        return bool(frequency[layer])
    return layer % int(frequency or 1) == 0


def _kv_heads(fields: Fields) -> int:
    return int(fields.get("num_key_value_heads") or _need(fields, "num_attention_heads"))


def _head_dim(fields: Fields) -> int:
    return int(fields.get("head_dim") or _need(fields, "hidden_size") // _need(fields, "num_attention_heads"))


def _first(fields: Fields, names: tuple[str, ...]) -> int | None:
    """Return the first field that is a number, or a list of the same one for every layer."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if isinstance(value, int):
            return value
    return None


def _need(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"config: expected the field {name!r} as a number of at least 1, got {value!r}")
    return value
