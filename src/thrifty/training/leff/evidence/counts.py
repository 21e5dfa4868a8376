"""The paper's table of trained parameters, counted again from configurations: nothing is downloaded or allocated."""

from __future__ import annotations

from typing import Any

import torch

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.evidence import Evidence
from thrifty.training.leff.capacity import trained_parameters
from thrifty.training.leff.layers import LayerView

_DEBERTA = {
    "vocab_size": 128100, "type_vocab_size": 0, "relative_attention": True, "position_buckets": 256,
    "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True, "position_biased_input": False,
}  # fmt: skip
#: Model: class of configuration, settings, auto class, published (one layer, all layers).
PUBLISHED: dict[str, tuple[str, dict[str, Any], str, tuple[int, int | None]]] = {
    "GPT-2": ("GPT2Config", {}, "AutoModelForCausalLM", (7_089_408, 85_056_000)),
    "GPT-2 large": (
        "GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}, "AutoModelForCausalLM", (19_680_000, 708_390_400),
    ),
    "DeBERTaV3 base": (
        "DebertaV2Config",
        {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, **_DEBERTA},
        "AutoModelForSequenceClassification", (7_681_538, 85_648_130),
    ),
    "DeBERTaV3 large": (
        "DebertaV2Config",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
         **_DEBERTA},
        "AutoModelForSequenceClassification", (13_649_922, 303_363_074),
    ),
    "Llama 3.1 8B": (
        "LlamaConfig",
        {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
         "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False},
        "AutoModelForCausalLM", (743_452_672, None),
    ),
}  # fmt: skip


def show(evidence: Evidence) -> None:
    """Count, and compare with what is published."""
    transformers = require("transformers", extra="federated")
    apart = 0
    for name, (kind, settings, auto, published) in PUBLISHED.items():
        with torch.device("meta"):
            model = getattr(transformers, auto).from_config(getattr(transformers, kind)(**settings))
        layers = LayerView(model).num_layers
        counted = [trained_parameters(model, 1), trained_parameters(model, layers)]
        apart += sum(abs(ours - theirs) for ours, theirs in zip(counted, published, strict=True) if theirs is not None)
        row = {"one layer": counted[0], "all layers": counted[1]}
        evidence.row(name, {k: Measurement.of(v, "parameters") for k, v in row.items()}, workload="trained parameters")
    evidence.measured("published-parameter-counts", Measurement.of(apart, "parameters"))
