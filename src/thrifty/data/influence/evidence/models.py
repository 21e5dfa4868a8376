"""The models that are fine-tuned, and how: a byte Llama pre-trained here, a sentence encoder, and SmolLM2."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from thrifty.bench.data.vader import Sentence
from thrifty.data.influence import SelectionResult, rivals
from thrifty.data.influence.evidence import domains
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.losses import call_model, default_loss, is_causal

Rows = list[dict[str, Any]]

#: Bytes of a sentence that the byte model sees.
LENGTH = 64


def byte_rows(sentences: Sequence[Sentence]) -> Rows:
    """Tokenise sentences as bytes."""
    return [{"input_ids": list(sentence.text.encode()[:LENGTH])} for sentence in sentences]


def byte_llama(layers: int = 6, hidden: int = 64, seed: int = 0) -> nn.Module:
    """Return an untrained Llama over bytes (0.32 million parameters with 6 blocks)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=256, hidden_size=hidden, intermediate_size=172, num_hidden_layers=layers, num_attention_heads=4,
        max_position_embeddings=2 * LENGTH, bos_token_id=1, eos_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = LlamaForCausalLM(config)
    return model.eval()


def pretrain(
    model: nn.Module, *, steps: int = 150, batch: int = 32, lr: float = 3e-3, seed: int = 0, data: Any = None
) -> nn.Module:
    """Train on windows of all domains' pre-training text, in place."""
    text = b"\n".join(row.text.encode() for rows in domains.splits(data)["pretrain"].values() for row in rows)
    stream = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    rng, optimizer = np.random.default_rng(seed), torch.optim.AdamW(model.parameters(), lr=lr)
    model.train()
    for _ in range(steps):
        starts = rng.integers(0, len(stream) - LENGTH, batch)
        ids = torch.stack([stream[start : start + LENGTH] for start in starts])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def finetune(
    model: nn.Module,
    rows: Rows,
    chosen: SelectionResult,
    *,
    steps: int,
    lr: float,
    batch: int = 16,
    seed: int = 0,
    weighted: bool = False,
) -> nn.Module:
    """Fine-tune a copy on a selection: passes over it in a random order, AdamW at a constant rate.

    Args:
        model: Where to begin.
        rows: The pool.
        chosen: Which of it.
        steps: Steps.
        lr: Learning rate.
        batch: Examples a step.
        seed: Of the order.
        weighted: Multiply losses by the selection's weights.
    """
    twin = copy.deepcopy(model)
    pool, loss_fn = Examples([rows[i] for i in chosen.indices], causal=is_causal(model)), default_loss(model)
    optimizer = torch.optim.AdamW([p for p in twin.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(pool)) for _ in range(1 + steps * batch // len(pool))])
    twin.eval()  # no dropout: what differs between contenders is the examples
    for step in range(steps):
        at = order[step * batch : (step + 1) * batch]
        inputs = pool.collate([pool.row(i) for i in at])
        losses = loss_fn(call_model(twin, inputs), inputs)
        if weighted:
            losses = losses * torch.from_numpy(chosen.weights[at])
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return twin


def test_loss(model: nn.Module, rows: Rows) -> float:
    """Return the mean loss of held-out examples of the task."""
    return float(rivals.example_losses(model, rows, batch_size=32).mean())
