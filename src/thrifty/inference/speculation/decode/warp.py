"""From logits to the distribution that a request asks for, by transformers' own warpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

#: What a distribution would depend on besides the logits, or what is no sampling of one sequence; and when it is off.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (None, 1.0), "no_repeat_ngram_size": (None, 0), "encoder_repetition_penalty": (None, 1.0),
    "bad_words_ids": (None,), "min_length": (None, 0), "min_new_tokens": (None, 0), "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,), "suppress_tokens": (None,), "begin_suppress_tokens": (None,),
    "sequence_bias": (None,), "guidance_scale": (None, 1.0), "watermarking_config": (None,), "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0), "eta_cutoff": (None, 0.0), "exponential_decay_length_penalty": (None,),
    "num_beams": (None, 1), "num_return_sequences": (None, 1), "penalty_alpha": (None, 0.0), "top_h": (None,),
    "assistant_ensemble_weight": (None,),
    "return_dict_in_generate": (None, False), "output_scores": (None, False), "output_logits": (None, False),
    "output_attentions": (None, False), "output_hidden_states": (None, False), "remove_invalid_values": (None, False),
    "stop_strings": (None,), "max_time": (None,), "token_healing": (None, False),
}  # fmt: skip

#: What ``generate`` takes for a top_k that neither the model nor the user sets; 0 switches it off.
UNSET_TOP_K = 50


def check_supported(config: GenerationConfig) -> None:
    """Refuse settings that this decoder does not honour.

    Raises:
        ValueError: One is set; the message names it.
    """
    for name, off in _UNSUPPORTED.items():
        value = getattr(config, name, None)
        if value not in off:
            raise ValueError(
                f"generation_config: {name}={value!r} is not supported; greedy decoding is, and sampling with "
                "temperature, top_k, top_p and min_p"
            )


def warper(config: GenerationConfig) -> Callable[[Tensor], Tensor]:
    """Return what turns logits [..., vocab] into probabilities (float32) as the config asks.

    Raises:
        ValueError: A temperature, top_k or top_p that transformers refuses.
    """
    chain: list[Any] = []
    if config.temperature is not None and config.temperature != 1.0:
        chain.append(TemperatureLogitsWarper(config.temperature))
    top_k = UNSET_TOP_K if config.top_k is None else config.top_k
    if top_k != 0:
        chain.append(TopKLogitsWarper(top_k=top_k))
    if config.top_p is not None and config.top_p < 1.0:
        chain.append(TopPLogitsWarper(top_p=config.top_p))
    if config.min_p is not None:
        chain.append(MinPLogitsWarper(min_p=config.min_p))

    def probabilities(logits: Tensor) -> Tensor:
        scores = logits.float().reshape(-1, logits.shape[-1])
        for one in chain:
            scores = one(None, scores)  # none of these looks at the tokens before
        return scores.softmax(-1).reshape(logits.shape)

    return probabilities
