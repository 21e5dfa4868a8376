"""E5: a small model trained here, on shortest or on exhaustive proofs of short comparison problems.

Its vocabulary are words and whole numbers. Few names and small quantities recur in ever new problems: what is learned
is which sentences belong together, and sums.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from thrifty.evaluation.reasoning.logic.theorems import comp, cont
from thrifty.evaluation.reasoning.problems import wording
from thrifty.evaluation.reasoning.problems.lexicon import Lexicon
from thrifty.evaluation.reasoning.problems.official import read_problem
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.traces.scores import score

SHORTEST, EXHAUSTIVE = ARMS = ("trained on shortest", "trained on exhaustive")
STEPS, BATCH, RATE = 1500, 32, 3e-3
WIDTH, LAYERS = 64, 3
#: Problems to train on; names, things and the largest quantity in them.
POOL, NAMES, THINGS, MOST = 8000, 6, 4, 10
_TOKEN = re.compile(r"\d+|\w[\w-]*|[^\w\s]|\n")


def comparisons(n: int, seed: int) -> list[Problem]:
    """Return problems of one comparison, with an irrelevant one of other agents and of another thing."""
    rng = np.random.default_rng(seed)
    return [_comparison(rng) for _ in range(n)]


def _comparison(rng: Generator) -> Problem:
    words = Lexicon.default()
    agents = [words.names[int(at)] for at in rng.permutation(NAMES)[:4]]
    thing, another = (words.topics[0].parts[int(at)][0] for at in rng.permutation(THINGS)[:2])
    base, other = _chain(agents[:2], thing, rng), _chain(agents[2:], another, rng)
    places = set(rng.choice(len(base) + len(other), size=len(other), replace=False).tolist())
    first, second = iter(base), iter(other)
    told = [next(second) if at in places else next(first) for at in range(len(base) + len(other))]
    asked = wording.question(cont(agents[1], thing, None), words, ground=False)
    return read_problem(" ".join([*told, asked]))


def _chain(agents: Sequence[str], thing: str, rng: Generator) -> list[str]:
    """Tell what the first agent has, and how many more or fewer the second has."""
    value, other = (int(drawn) + 1 for drawn in rng.choice(MOST, size=2, replace=False))
    first, second = ((agent, thing, 0) for agent in agents)
    words = Lexicon.default()
    told = wording.statement(comp(second, first, other - value), words, subject=second)
    return [wording.statement(cont(agents[0], thing, value), words), told]


def train(arm: str, seed: int, device: str = "cpu", *, steps: int = STEPS, tests: int = 100) -> dict[str, float]:
    """Train a small Llama on one kind of proof, and score what it writes about problems that it has not seen.

    Both arms see the same problems in the same order.
    """
    import torch
    import transformers

    told = comparisons(POOL, 1_000_000 + seed)
    texts = [(p.text + "\n", p.trace(p.efficient if arm == SHORTEST else p.eager, axioms=False)) for p in told]
    seen = {token for pair in texts for text in pair for token in _TOKEN.findall(text)}
    vocabulary = ["<pad>", "<end>", *sorted(seen)]
    number = {token: at for at, token in enumerate(vocabulary)}

    def encoded(text: str) -> list[int]:
        return [number[token] for token in _TOKEN.findall(text)]

    rows = [(encoded(asked), [*encoded(proof), 1]) for asked, proof in texts]
    rng = np.random.default_rng(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=4, max_position_embeddings=512, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[device] if device == "cuda" else []):
        torch.manual_seed(seed)
        model: Any = transformers.LlamaForCausalLM(config)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for _ in range(steps):
        batch = [rows[int(at)] for at in rng.integers(len(rows), size=BATCH)]
        ids = _padded([asked + proof for asked, proof in batch], 0).to(device)
        labels = _padded([[-100] * len(asked) + proof for asked, proof in batch], -100).to(device)
        loss = model(ids, attention_mask=ids != 0, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    asked = comparisons(tests, 2_000_000 + seed)
    written = _written(model.eval(), [encoded(p.text + "\n") for p in asked], vocabulary, device)
    scores = [score(problem, text) for problem, text in zip(asked, written, strict=True)]
    return {
        "wrong": 1 - float(np.mean([s.correct for s in scores])),
        "efficiency": _mean([s.efficiency for s in scores]),
        "precision": _mean([s.precision for s in scores]),
        "loss": loss.item(),
    }


def _mean(values: Sequence[float]) -> float:
    """Average what is a number; 0 where nothing is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else 0.0


def _padded(rows: Sequence[Sequence[int]], filler: int, *, left: bool = False) -> Any:
    import torch

    longest = max(map(len, rows))
    gaps = [[filler] * (longest - len(row)) for row in rows]
    return torch.tensor([[*gap, *row] if left else [*row, *gap] for row, gap in zip(rows, gaps, strict=True)])


def _written(model: Any, prompts: Sequence[Sequence[int]], vocabulary: Sequence[str], device: str) -> list[str]:
    """Let the model go on from the prompts, greedily, and put its words together as problems write them."""
    import torch

    ids = _padded(prompts, 0, left=True).to(device)
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=(ids != 0).long(), max_new_tokens=64, do_sample=False)
    found = []
    for row in out[:, ids.shape[1] :].tolist():
        text = " ".join(vocabulary[token] for token in (row[: row.index(1)] if 1 in row else row) if token > 1)
        found.append(re.sub(r" ?\n ?", "\n", re.sub(r" ([.,:?)])", r"\1", re.sub(r"\( ", "(", text))))
    return found
