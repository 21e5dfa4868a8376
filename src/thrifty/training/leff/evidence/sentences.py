"""Rated sentences from four domains, split among eight unequal clients; MiniLM with a fresh head reads them.

A cell is a domain and a label; of every cell each client gets a Dirichlet share. Ratings nearer than 0.5 to neutral are
left out. The proxy set is 500 further sentences, whose labels nobody sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty._common.tables import read_table
from thrifty.bench.data import minilm, vader
from thrifty.training.leff.client import LeffClient
from thrifty.training.leff.partition import dirichlet_partition

#: Layers that each client can train, and how fast it is: steps of full fine-tuning a second, in proportion.
CAPACITIES = (1, 1, 1, 1, 2, 2, 3, 6)
SPEEDS = (0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.75, 1.0)
LENGTH = 24
SIZES = {"train": 4000, "test": 1000, "validation": 1000, "proxy": 500}
#: Proxy sentences a batch.
PROXY_BATCH = 8


@dataclass(frozen=True)
class Split:
    """Sentences as a model reads them.

    Args:
        columns: ``input_ids``, ``attention_mask`` and ``labels``, a row a sentence.
        cells: Domain and label of each, as a number.
    """

    columns: Mapping[str, Tensor]
    cells: tuple[int, ...]


@cache
def load(data: Path | None = None) -> dict[str, Split]:
    """Return the splits: of the embedded set, or of a user's table with ``text``, ``label`` (0, 1) and ``domain``.

    Raises:
        thrifty.bench.carried.UnavailableError: The sentences are not in the cache.
        ValueError: The user's table has too few rows or lacks a column.
    """
    rows = _embedded() if data is None else _own(data)
    order = np.random.default_rng(0).permutation(len(rows))
    share = min(1.0, len(rows) / sum(SIZES.values()))
    if len(rows) < 400:
        raise ValueError(f"--data: expected at least 400 rows, got {len(rows)}")
    transformers = require("transformers", extra="federated")
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.folder(), local_files_only=True)
    found, at = {}, 0
    for name, size in SIZES.items():
        taken = [rows[i] for i in order[at : at + int(size * share)]]
        at += len(taken)
        tokens = tokenizer(
            [text for text, _, _ in taken],
            max_length=LENGTH,
            truncation=True,
            padding="max_length",
            return_tensors="pt",
        )
        columns = {key: tokens[key] for key in ("input_ids", "attention_mask")}
        columns["labels"] = torch.tensor([label for _, label, _ in taken])
        found[name] = Split(columns, tuple(2 * domain + label for _, label, domain in taken))
    return found


def make_model(seed: int) -> Any:
    """Return MiniLM with a random head."""
    from thrifty.training.leff.evidence import encoder  # transformers takes seconds to import

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return encoder.load(minilm.folder(), 2)


def make_clients(alpha: float, seed: int, data: Path | None = None) -> list[LeffClient]:
    """Split the training sentences among the clients."""
    train = load(data)["train"]
    parts = dirichlet_partition(train.cells, len(CAPACITIES), alpha, seed=seed)
    return [
        LeffClient(str(i), {key: column[rows] for key, column in train.columns.items()}, capacity, speed=speed)
        for i, (rows, capacity, speed) in enumerate(zip(parts, CAPACITIES, SPEEDS, strict=True))
    ]


def proxy_batches(data: Path | None = None, count: int | None = None) -> list[dict[str, Tensor]]:
    """Return the proxy set without its labels; the first batches of it, if so many are enough."""
    columns = load(data)["proxy"].columns
    size = len(columns["labels"]) // PROXY_BATCH
    return [
        {key: columns[key][i * PROXY_BATCH : (i + 1) * PROXY_BATCH] for key in ("input_ids", "attention_mask")}
        for i in range(size if count is None else min(count, size))
    ]


def labelled_batches(split: Split, count: int, size: int = 32) -> list[dict[str, Tensor]]:
    """Return the first batches of a split, labels included."""
    return [{k: v[i * size : (i + 1) * size] for k, v in split.columns.items()} for i in range(count)]


@torch.no_grad()
def evaluate(model: nn.Module, split: Split) -> dict[str, float]:
    """Return accuracy (percent) and loss; sentences of like length go together, so that little padding is read."""
    lengths = split.columns["attention_mask"].sum(1)
    right = loss = 0.0
    for rows in torch.split(torch.argsort(lengths), 100):
        width = int(lengths[rows].max())
        inputs = {key: split.columns[key][rows, :width] for key in ("input_ids", "attention_mask")}
        logits, labels = model(**inputs).logits, split.columns["labels"][rows]
        right += float((logits.argmax(1) == labels).sum())
        loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
    return {"accuracy": 100 * right / len(lengths), "loss": loss / len(lengths)}


def _embedded() -> list[tuple[str, int, int]]:
    return [
        (sentence.text, int(sentence.rating > 0), domain)
        for domain, sentences in enumerate(vader.load().values())
        for sentence in sentences
        if abs(sentence.rating) >= 0.5
    ]


def _own(path: Path) -> list[tuple[str, int, int]]:
    table = read_table(path)
    if missing := [name for name in ("text", "label", "domain") if name not in table]:
        raise ValueError(f"--data: expected the columns text, label and domain, got none called {missing[0]!r}")
    domains = sorted({str(domain) for domain in table["domain"]})
    rows = zip(table["text"], table["label"], table["domain"], strict=True)
    return [(str(text), int(label), domains.index(str(domain))) for text, label, domain in rows]
