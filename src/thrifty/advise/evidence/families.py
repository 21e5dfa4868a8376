"""Small models of every family that ``streambp`` supports, for measuring what a step allocates."""

from __future__ import annotations

from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 512, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HEAD = {"head_dim": 24}
_WINDOWS = {"layer_types": ["sliding_attention", "full_attention", "full_attention"], "sliding_window": 64, **_HEAD}

#: Name to (configuration class, what differs, attention). Mixtures of experts are measured in bfloat16, whose grouped
#: product the rehearsal knows.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaConfig", {}, "sdpa"),
    "llama, eager attention": ("LlamaConfig", {"attention_bias": True}, "eager"),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "sdpa"),
    "qwen3": ("Qwen3Config", _HEAD, "sdpa"),
    "mistral": ("MistralConfig", {"sliding_window": 64, **_HEAD}, "sdpa"),
    "gemma2": ("Gemma2Config", {**_WINDOWS, "final_logit_softcapping": 4.0}, "eager"),
    "gemma3": ("Gemma3TextConfig", _WINDOWS, "sdpa"),
    "phi": ("PhiConfig", {}, "sdpa"),
    "phi3": ("Phi3Config", {"sliding_window": 64}, "sdpa"),
    "olmo2": ("Olmo2Config", {}, "sdpa"),
    "granite": ("GraniteConfig", {"logits_scaling": 3.0}, "sdpa"),
    "cohere": ("CohereConfig", {"logit_scale": 0.25}, "sdpa"),
    "cohere2": ("Cohere2Config", {**_WINDOWS, "logit_scale": 0.25}, "sdpa"),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0, 1]}, "sdpa"),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 64}, "sdpa"),
    "stablelm": ("StableLmConfig", {"use_parallel_residual": True}, "sdpa"),
    "gpt-neox": ("GPTNeoXConfig", {}, "sdpa"),
    "gpt2": ("GPT2Config", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "sdpa"),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4}, "sdpa"),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 1, **_HEAD},
        "sdpa",
    ),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, **_WINDOWS}, "eager"),
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4, "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 24,
            "qk_rope_head_dim": 16, "v_head_dim": 24, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "moe_intermediate_size": 64, "first_k_dense_replace": 1,
        },
        "sdpa",
    ),
}  # fmt: skip

#: Families with experts.
MIXTURES = ("mixtral", "qwen3-moe", "gpt-oss", "deepseek-v3")


def configuration(family: str) -> Any:
    """Return a family's configuration."""
    import transformers

    name, changes, attention = FAMILIES[family]
    settings = {**_COMMON, **changes}
    if family == "gpt2":
        del settings["intermediate_size"], settings["num_key_value_heads"]
    config = getattr(transformers, name)(**settings)
    config._attn_implementation = attention
    return config


def smollm2() -> Any:
    """Return SmolLM2-135M-Instruct; its weights, quantised in the file, are float32 here."""
    from thrifty.bench.data import smollm2 as carried

    made, _ = carried.load()
    if hasattr(made.config, "quantization_config"):
        del made.config.quantization_config
    return made.train()


def model(config: Any, dtype: str) -> Any:
    """Return a model of a configuration, with weights."""
    import torch
    from transformers import AutoModelForCausalLM

    routed = getattr(config.get_text_config(), "num_experts_per_tok", None)
    kinds = {"experts_implementation": "grouped_mm"} if routed else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=getattr(torch, dtype), attn_implementation=config._attn_implementation, **kinds
        )
    return made.train()
