"""E5: a small model trained here on two kinds of proof, and a real one that a package carries."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.evaluation.reasoning.problems.generator import generate
from thrifty.evaluation.reasoning.problems.problem import Problem
from thrifty.evaluation.reasoning.report import evaluate
from thrifty.evaluation.reasoning.runners.models import TransformersModel
from thrifty.evaluation.reasoning.traces.scores import score

ARMS = ("trained on shortest", "trained on exhaustive")
STEPS, BATCH, WIDTH = 1200, 32, 192
_WORD = re.compile(r"\d|\w+(?:’\w+)?|[^\w\s]|\n")


def _problems(n: int, seed: int) -> list[Problem]:
    """Return short problems with one irrelevant tree."""
    made = generate(n, seed, "disconnected", "complex", "no_overlap", depth=(1, 2))
    return [problem for problem in made if len(problem.sentences) <= 6]


def train(arm: str, seed: int, *, steps: int = STEPS, examples: int = 600, tests: int = 100) -> dict[str, Any]:
    """Train a Llama of about two million parameters on one kind of proof, and score what it writes."""
    import torch
    import transformers

    rng = np.random.default_rng(seed)
    training, held_out = _problems(examples, 1_000_000 + seed), _problems(tests, 2_000_000 + seed)
    texts = [(p.text + "\n", p.gold_trace if arm == ARMS[0] else p.eager_trace) for p in training]
    words = sorted({w for pair in texts for text in pair for w in _WORD.findall(text)})
    known = {word: at for at, word in enumerate(["<pad>", "<end>", *words])}
    rows = [([known[w] for w in _WORD.findall(a)], [known[w] for w in _WORD.findall(b)] + [1]) for a, b in texts]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(
            vocab_size=len(known), hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=4,
            num_attention_heads=6, max_position_embeddings=512, pad_token_id=0, eos_token_id=1, bos_token_id=None,
        )  # fmt: skip
        model: Any = transformers.LlamaForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)
        for _ in range(steps):
            batch = [rows[int(n)] for n in rng.integers(len(rows), size=BATCH)]
            longest = max(len(a) + len(b) for a, b in batch)
            ids = torch.tensor([a + b + [0] * (longest - len(a) - len(b)) for a, b in batch])
            labels = torch.tensor([[-100] * len(a) + b + [-100] * (longest - len(a) - len(b)) for a, b in batch])
            loss = model(ids, attention_mask=ids != 0, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    back = {at: word for word, at in known.items()}
    right, precision = [], []
    for problem in held_out:
        ids = torch.tensor([[known[w] for w in _WORD.findall(problem.text + "\n") if w in known]])
        with torch.inference_mode():
            new = model.eval().generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=300, do_sample=False)
        scores = score(problem, _joined([back[int(t)] for t in new[0, ids.shape[1] :] if int(t) > 1]))
        right.append(float(scores.correct))
        if scores.stated:
            precision.append(scores.precision)
    return {"wrong": 1 - float(np.mean(right)), "precision": float(np.mean(precision)) if precision else 0.0}


def _joined(words: list[str]) -> str:
    """Put words together as the problems write them: digits join, points and commas stick to what is before."""
    text = " ".join(words)
    text = re.sub(r"(?<=\d) (?=\d)", "", text)
    return re.sub(r" ?\n ?", "\n", re.sub(r" ([.,:)?])", r"\1", re.sub(r"\( ", "(", text)))


def show_trained(ctx: Context, evidence: Evidence) -> None:
    """Train both arms, with every seed, and compare."""
    if ctx.late(evidence, "trained-lm", needs=300.0):
        return
    found = ctx.runs(evidence, ARMS, ctx.seeds(quick=1, full=1), train, workload="trained here")
    if len(found) < len(ARMS):
        return
    for arm, runs in found.items():
        wrong = Measurement.of([run["wrong"] for run in runs], "share")
        precision = Measurement.of([run["precision"] for run in runs], "precision")
        evidence.row(arm, {"wrong answers": wrong, "precision": precision}, workload="trained here")
    ours, theirs = (found[arm] for arm in ARMS)
    gained = Measurement.of([a["precision"] - b["precision"] for a, b in zip(ours, theirs, strict=True)], "precision")
    gate = ([run["wrong"] for run in ours], [run["wrong"] for run in theirs])
    evidence.measured("trained-lm", gained, gate=gate)


def show_carried(ctx: Context, evidence: Evidence) -> None:
    """Ask SmolLM2 the easiest problems, with and without a distractor."""
    if ctx.late(evidence, "lm-decline", needs=120.0):
        return
    with evidence.needs("lm-decline"):
        from thrifty.bench.data import smollm2

        model = TransformersModel(*smollm2.load(), name="SmolLM2-135M-Instruct")
        rates = []
        for cell in (("none", "none", "none"), ("disconnected", "simple", "no_overlap")):
            problems = generate(10, ctx.seed + 11, *cell, depth=(1,))
            with tempfile.TemporaryDirectory() as folder:
                report = evaluate(problems, model, Path(folder) / "completions.jsonl", k=2, max_tokens=160)
            (row,) = report.cells()
            rates.append(row["accuracy"])
            metrics = {"accuracy": Measurement.of(row["accuracy"], "share")}
            evidence.row(
                "SmolLM2", metrics | {"coverage": Measurement.of(row["coverage"], "share")}, workload="/".join(cell)
            )
        evidence.measured("lm-decline", Measurement.of(rates[0] - rates[1], "share"), reason="10 problems each")
