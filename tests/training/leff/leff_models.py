"""Small models of real classes, their batches, and clients with data."""

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    Qwen3Config,
    RobertaConfig,
    ViTConfig,
)

from thrifty.training.leff import LeffClient

WIDTH = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = {**WIDTH, "vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**TEXT, "num_key_value_heads": 1, "head_dim": 8}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
RELATIVE = {
    "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm",
    "position_biased_input": False, "type_vocab_size": 0,
}  # fmt: skip
CLASSIFIERS = ("bert", "roberta", "deberta", "vit")
CONFIGS = {
    "bert": lambda n: BertConfig(**TEXT, num_hidden_layers=n),
    "roberta": lambda n: RobertaConfig(**TEXT, num_hidden_layers=n),
    "deberta": lambda n: DebertaV2Config(**TEXT, **RELATIVE, num_hidden_layers=n),
    "gpt2": lambda n: GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_head=2, n_layer=n, bos_token_id=1, eos_token_id=2
    ),
    "llama": lambda n: LlamaConfig(**TEXT, num_hidden_layers=n),
    "mistral": lambda n: MistralConfig(**GROUPED, num_hidden_layers=n),
    "qwen3": lambda n: Qwen3Config(**GROUPED, num_hidden_layers=n),
    "gemma2": lambda n: Gemma2Config(**GROUPED, num_hidden_layers=n, sliding_window=4),
    "opt": lambda n: OPTConfig(
        vocab_size=50, hidden_size=16, word_embed_proj_dim=16, num_attention_heads=2, ffn_dim=32, num_hidden_layers=n,
        pad_token_id=0, max_position_embeddings=32,
    ),
    "neox": lambda n: GPTNeoXConfig(**TEXT, num_hidden_layers=n),
    "vit": lambda n: ViTConfig(**WIDTH, num_hidden_layers=n, image_size=16, patch_size=8),
}  # fmt: skip


def make(kind, layers=6, seed=0, **settings):
    """A model of that family; weights larger than at birth, so that layers matter."""
    config = CONFIGS[kind](layers)
    for name, value in settings.items():
        setattr(config, name, value)
    auto = AutoModelForCausalLM
    if kind in CLASSIFIERS:
        auto = AutoModelForImageClassification if kind == "vit" else AutoModelForSequenceClassification
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = auto.from_config(config)
        with torch.no_grad():
            for p in model.parameters():
                if p.ndim > 1:
                    p.mul_(4)
    return model.eval()


def columns(kind, examples=8, length=7, seed=1):
    """Examples for a family, some of them padded."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(examples) % 2
    if kind == "vit":
        return {"pixel_values": torch.randn(examples, 3, 16, 16, generator=generator), "labels": labels}
    ids = torch.randint(3, 50, (examples, length), generator=generator)
    mask = torch.ones_like(ids)
    mask[::2, length - 2 :] = 0
    ids = ids * mask
    if kind not in CLASSIFIERS:
        labels = torch.where(mask.bool(), ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def batches(kind, count=2, size=4, **how):
    data = columns(kind, count * size, **how)
    return [{k: v[i * size : (i + 1) * size] for k, v in data.items()} for i in range(count)]


def clients(kind, capacities, examples=8):
    return [
        LeffClient(str(i), columns(kind, examples + 2 * i, seed=10 + i), capacity=capacity)
        for i, capacity in enumerate(capacities)
    ]


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
