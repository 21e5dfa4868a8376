"""Tiny models of every family, made from configurations alone, and what plain autograd says of them in float64."""

import torch
import torch.nn.functional as F
import transformers
from transformers import AutoModelForCausalLM

V, T = 37, 19

SMALL = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD = {"head_dim": 8}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5, **HEAD}
EXPERTS = {"experts_implementation": "eager", "output_router_logits": True}

#: Name to (configuration class, what differs from SMALL, attention).
FAMILIES = {
    "llama": ("LlamaConfig", {}, "sdpa"),
    "llama-eager": ("LlamaConfig", {"attention_bias": True}, "eager"),
    "qwen2": ("Qwen2Config", {}, "sdpa"),
    "qwen2-window": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        "sdpa",
    ),
    "qwen3": ("Qwen3Config", HEAD, "sdpa"),
    "mistral": ("MistralConfig", {"sliding_window": 6, **HEAD}, "sdpa"),
    "gemma2": (
        "Gemma2Config",
        {**ALTERNATING, "sliding_window": 9, "final_logit_softcapping": 4.0, "attn_logit_softcapping": 2.0},
        "eager",
    ),
    "gemma3": ("Gemma3TextConfig", ALTERNATING, "sdpa"),
    "phi": ("PhiConfig", {"hidden_size": 32}, "sdpa"),
    "phi3": ("Phi3Config", {"sliding_window": 7}, "sdpa"),
    "olmo2": ("Olmo2Config", {}, "sdpa"),
    "granite": (
        "GraniteConfig",
        {"logits_scaling": 3.0, "residual_multiplier": 0.5, "embedding_multiplier": 2.0, "attention_multiplier": 0.3},
        "sdpa",
    ),
    "cohere": ("CohereConfig", {"logit_scale": 0.25}, "sdpa"),
    "cohere2": ("Cohere2Config", {**ALTERNATING, "logit_scale": 0.25}, "sdpa"),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 0]}, "sdpa"),
    "starcoder2": ("Starcoder2Config", {"sliding_window": 5}, "sdpa"),
    "stablelm": ("StableLmConfig", {"use_parallel_residual": True}, "sdpa"),
    "gpt-neox": ("GPTNeoXConfig", {}, "sdpa"),
    "gpt2": ("GPT2Config", {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "sdpa"),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, **EXPERTS}, "sdpa"),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1,
         **HEAD, **EXPERTS},
        "sdpa",
    ),
    "gpt-oss": ("GptOssConfig", {"num_local_experts": 4, **ALTERNATING, **EXPERTS}, "eager"),
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4,
            "v_head_dim": 6, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
            "moe_intermediate_size": 16, "first_k_dense_replace": 1, "experts_implementation": "eager",
        },
        "sdpa",
    ),
}  # fmt: skip


def make_model(family, seed=0, **changes):
    """Return a model of a family, in float64 and training mode."""
    name, extra, attention = FAMILIES[family]
    settings = {**SMALL, **extra, **changes}
    experts = settings.pop("experts_implementation", None)
    if name == "GPT2Config":
        for unknown in ("intermediate_size", "num_key_value_heads"):
            settings.pop(unknown)
    config = getattr(transformers, name)(**settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kinds = {"experts_implementation": experts} if experts else {}
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention, **kinds)
        with torch.no_grad():  # norms and biases start at ones and zeros, which would hide mistakes
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model.double().train()


def make_batch(kind="right", batch=2, length=T, seed=1):
    """Return inputs with prompt-masked labels: padded right, left, packed, or not at all."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, V, (batch, length), generator=generator)
    labels = ids.clone()
    labels[:, :4] = -100
    inputs = {"input_ids": ids}
    if kind in {"right", "left"}:
        mask = torch.ones_like(ids)
        mask[0, slice(length - 6, None) if kind == "right" else slice(0, 6)] = 0
        labels[mask == 0] = -100
        inputs["attention_mask"] = mask
    if kind == "packed":
        lengths = torch.tensor([7, 1, length - 8])
        inputs["position_ids"] = torch.cat([torch.arange(n) for n in lengths]).expand(batch, -1)
    return inputs, labels


def reference(model, inputs, labels, items=None):
    """Return the loss and gradients of plain autograd on full logits."""
    output = model(**inputs, use_cache=False)
    logits, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    loss = F.cross_entropy(logits, targets, reduction="sum") / (items or (targets != -100).sum())
    if getattr(output, "aux_loss", None) is not None:
        loss = loss + model.config.router_aux_loss_coef * output.aux_loss
    return loss.detach(), gradients(model, loss)


def gradients(model, loss):
    """Back-propagate; return the gradients by name, and leave none behind."""
    loss.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def error(got, wanted):
    """Return the largest relative error of any parameter's gradient."""
    assert got.keys() == wanted.keys()
    scale = max(g.norm() for g in wanted.values())
    return max(float((got[name] - wanted[name]).norm() / (wanted[name].norm() + 1e-9 * scale)) for name in wanted)
