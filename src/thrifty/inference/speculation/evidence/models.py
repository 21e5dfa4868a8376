"""What is measured: a mixture of experts whose weights are far larger than the caches, and a calibrated pair.

Weights are random, costs are real. Routers and embeddings are N(0, 1), so that routing depends on the token. In the
pair the target is the mixture behind one dense layer, and the draft is that layer alone with the same embedding and
head; ``epsilon`` scales what the mixture adds, and with it how often the two agree.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from thrifty.inference.speculation.decode import SpeculativeDecoder

HIDDEN, EXPERTS, LAYERS, VOCABULARY = 512, 32, 4, 1024

#: What the mixture adds to the residual stream, for a draft that is right about 85, 55 times in a hundred.
OFTEN, SELDOM = 0.05, 0.15


def mixture(top_k: int, *, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Return a mixture of 104 million parameters, 209 MB in bfloat16: 4 layers of 32 experts, K of a token."""
    model = _build(LAYERS, [], dtype, top_k)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                continue
            scale = 1.0 if "embed" in name or "gate.weight" in name else parameter.shape[-1] ** -0.5
            _fill(parameter, scale, generator)
    return model


def set_top_k(model: Any, top_k: int) -> None:
    """Let every token take K experts: the weights stay."""
    model.config.num_experts_per_tok = top_k
    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.top_k = top_k


def calibrated_pair(
    top_k: int, epsilon: float, *, seed: int = 0, dtype: torch.dtype = torch.bfloat16, hidden: int = HIDDEN
) -> tuple[Any, Any]:
    """Return a target and a draft that agrees with it the more often, the smaller ``epsilon`` is."""
    target = _build(LAYERS + 1, [0], dtype, top_k, hidden)
    draft = _build(1, [0], dtype, top_k, hidden)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            if parameter.ndim >= 2:
                _fill(parameter, _scale(name, parameter, epsilon), generator)
        small = dict(draft.named_parameters())
        for name, parameter in target.named_parameters():
            if name in small:
                small[name].copy_(parameter)
    return target, draft


def set_epsilon(target: Any, before: float, after: float) -> None:
    """Scale what the mixture adds anew: the draft agrees more or less often, costs stay."""
    with torch.no_grad():
        for name, parameter in target.named_parameters():
            if ".layers.0." not in name and name.endswith(("down_proj", "o_proj.weight")):
                parameter.mul_(after / before)


def own_text(target: Any, draft: Any, *, seed: int = 0) -> Tensor:
    """Return what the pair writes itself: measured passes read it, since random tokens would wake more experts."""
    out = SpeculativeDecoder(target, draft, 4).generate(prompts(8, 16, seed=seed + 100), max_new_tokens=64)
    return out.sequences.flatten()


def prompts(batch: int, length: int, *, seed: int = 0) -> Tensor:
    """Return random prompts."""
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


def _build(layers: int, dense: list[int], dtype: torch.dtype, top_k: int, hidden: int = HIDDEN) -> Any:
    config = Qwen3MoeConfig(  # type: ignore[call-arg]
        hidden_size=hidden, moe_intermediate_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=2, head_dim=64, vocab_size=VOCABULARY, num_experts=EXPERTS,
        num_experts_per_tok=top_k, mlp_only_layers=dense, max_position_embeddings=4096, norm_topk_prob=True,
        eos_token_id=None, pad_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation="grouped_mm")  # type: ignore[no-untyped-call]
    model.eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def _scale(name: str, parameter: Tensor, epsilon: float) -> float:
    """Return the standard deviation of a weight of the pair."""
    fan_in: float = parameter.shape[-1] ** -0.5
    if "embed" in name or "gate.weight" in name:
        return 1.0
    if "lm_head" in name:
        return 6 * fan_in
    if ".layers.0." in name or "gate_up" in name:
        return fan_in
    if "down_proj" in name:
        return 2 * epsilon * fan_in
    return epsilon * fan_in if "o_proj" in name else fan_in


def _fill(parameter: Tensor, scale: float, generator: torch.Generator) -> None:
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
