"""Small models and pools that the tests share."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def llama(layers=3, hidden=32, vocabulary=64, seed=0, **others):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
            num_attention_heads=4, eos_token_id=2, bos_token_id=1, **others,
        )  # fmt: skip
        model = LlamaForCausalLM(config).eval()
        for p in model.parameters():  # larger than the initial 0.02, so that gradients differ
            if p.dim() > 1:
                p.data.mul_(4)
        return model


def pool(count=24, vocabulary=64, seed=0, shortest=5, longest=20):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(shortest, longest, (1,), generator=g))
        rows.append({"input_ids": torch.randint(3, vocabulary, (length,), generator=g).tolist()})
    return rows


def stepped(model, rows, kind=torch.optim.AdamW, steps=3, **options):
    """An optimizer that has taken a few steps on the model, which moves."""
    optimizer = kind([p for p in model.parameters() if p.requires_grad], **{"lr": 1e-3} | options)
    for row in rows[:steps]:
        ids = torch.tensor([row["input_ids"]])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer
