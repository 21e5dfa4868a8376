"""Small models and pools that the tests share."""

import json

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["red", "green", "blue", "gold", "grey", "pink", "small", "large", "old"]
WORDS += ["new", "cat", "dog", "bird", "fish", "tree", "rock", "sky", "sea"]


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


def command_folder(place):
    """Put a model, its tokenizer, a pool and a target into a folder, as the command reads them."""
    table = {"<unk>": 0, "<s>": 1, "</s>": 2} | {word: i + 3 for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>").save_pretrained(place)
    llama().save_pretrained(place)
    g = torch.Generator().manual_seed(0)

    def sentence():
        return " ".join(WORDS[int(i)] for i in torch.randint(0, len(WORDS), (9,), generator=g))

    pool_rows = [{"text": sentence(), "id": f"r{i}"} for i in range(30)]
    (place / "pool.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pool_rows))
    aims = [{"prompt": sentence(), "completion": sentence(), "task": "ab"[i % 2]} for i in range(4)]
    (place / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in aims))
    return place
