"""Tiny random models, with or without experts, whose greedy output depends on all that came before."""

import torch
from transformers import AutoModelForCausalLM as Auto
from transformers import (
    DeepseekV3Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen3MoeConfig,
)

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 256}


def qwen_moe(vocab=40, layers=2, seed=0, dtype=torch.float32, **more):
    config = Qwen3MoeConfig(
        **SMALL, vocab_size=vocab, num_hidden_layers=layers, num_key_value_heads=2, head_dim=8, num_experts=8,
        num_experts_per_tok=2, moe_intermediate_size=16, **more,
    )  # fmt: skip
    return made(config, seed, dtype)


def llama(vocab=40, layers=1, seed=1, dtype=torch.float32):
    return made(LlamaConfig(**SMALL, vocab_size=vocab, num_hidden_layers=layers, num_key_value_heads=2), seed, dtype)


def others(vocab=40):
    """Mixtures of other families: sliding windows, sinks and mixed layers, latent attention."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return {
        "mixtral, sliding": MixtralConfig(
            **SMALL, vocab_size=vocab, num_hidden_layers=2, num_key_value_heads=2, sliding_window=6, **experts
        ),
        "mistral, sliding": MistralConfig(
            **SMALL, vocab_size=vocab, num_hidden_layers=2, num_key_value_heads=2, head_dim=8, sliding_window=5
        ),
        "gpt-oss, mixed": GptOssConfig(
            **SMALL, **experts, vocab_size=vocab, num_hidden_layers=2, num_key_value_heads=2, head_dim=8,
            sliding_window=6,
        ),
        "deepseek, latent": DeepseekV3Config(
            **SMALL, vocab_size=vocab, num_hidden_layers=2, num_key_value_heads=4, n_routed_experts=8, n_group=2,
            topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1, kv_lora_rank=16,
            q_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
        ),
    }  # fmt: skip


def made(config, seed=0, dtype=torch.float32):
    """A model whose weights are large enough that its output is not one repeated token; the same in every dtype."""
    config.eos_token_id, config.pad_token_id = None, 0
    attention = "eager" if config.model_type == "gpt_oss" else "sdpa"
    model = Auto.from_config(config, dtype=dtype, attn_implementation=attention).eval()
    if dtype == torch.float64 and "Moe" in type(model).__name__:
        model.set_experts_implementation("eager")  # grouped_mm has no kernel for it
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            scale = 0.2 if "embed" in name else 0.5 if "lm_head" in name else 0.6
            parameter.data.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def disturbed(model, scale, seed=5):
    """A draft that often agrees: the same model with noise on its head."""
    import copy

    twin = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    head = twin.get_output_embeddings().weight
    head.data += scale * torch.randn(head.shape, generator=generator, dtype=torch.float64).to(head.dtype)
    return twin


def prompts(lengths, vocab=40, seed=0):
    """Left-padded prompts and their mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, vocab, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    return ids * mask, mask.long()


def plain(model, row, count, ends=()):
    """Greedy decoding of one prompt without any cache: the definition."""
    ids = row.clone()
    new = []
    with torch.inference_mode():
        for _ in range(count):
            token = int(model(input_ids=ids[None], use_cache=False).logits[0, -1].argmax())
            new.append(token)
            ids = torch.cat((ids, torch.tensor([token])))
            if token in ends:
                break
    return new


__all__ = ["Auto", "disturbed", "llama", "made", "others", "plain", "prompts", "qwen_moe"]
