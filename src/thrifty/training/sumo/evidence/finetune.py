"""Fine-tuning of a real pretrained model, SmolLM2-135M-Instruct, on Python source (full mode)."""

from __future__ import annotations

import copy
import time
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import smollm2
from thrifty.bench.data.stdlib_text import Text
from thrifty.bench.evidence import Evidence
from thrifty.training.sumo import optimizer_state_bytes
from thrifty.training.sumo.evidence.contenders import make, rates, set_rate, state_holders
from thrifty.training.sumo.evidence.language import read_text, schedule

#: The subspace is found once: the interval of 200 is the default of SUMO and of GaLore.
LENGTH, STEPS, RANK, GAP, HELD_OUT = 128, 16, 8, 200, 8

#: Rates on the matrices, from ``tuning.py``: the best of :data:`GRID` on the validation split, seed 1000.
RATES = {"SUMO": 1e-4, "GaLore": 3e-4, "AdamW": 1e-4}
GRID = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)


def show(ctx: Context, evidence: Evidence) -> None:
    """Train all matrices of the blocks; embeddings (tied to the head) and norms stay frozen for every contender."""
    workload = f"SmolLM2-135M on Python source, {STEPS} steps of {LENGTH} tokens, rank {RANK}"
    text = read_text(ctx.data)

    def compute(name: str, seed: int) -> dict[str, float]:
        return finetune(name, RATES[name], text, seed, held_out="test", device=ctx.device)

    found = ctx.runs(evidence, RATES, [ctx.seed], compute, workload=workload)
    for name, (result,) in found.items():
        evidence.row(
            name,
            {
                "held-out loss": Measurement.of(result["loss"], "nats"),
                "held-out loss before": Measurement.of(result["before"], "nats"),
                "state": Measurement.of(result["state"] / 1e6, "MB"),
                "optimizer step": Measurement.of(result["seconds"], "s", timed=True),
                "lr": Measurement.of(RATES[name], ""),
            },
            workload=workload,
        )
    if {"SUMO", "GaLore"} <= set(found):
        ours, theirs = (found[name][0]["loss"] for name in ("SUMO", "GaLore"))
        evidence.measured("finetuning-smollm2", Measurement.of(ours - theirs, "nats"))


def finetune(name: str, rate: float, text: Text, seed: int, *, held_out: str, device: str = "cpu") -> dict[str, float]:
    """Fine-tune once; return the loss on held-out source before and after, bytes of state and seconds a step.

    Args:
        name: Of the contender.
        rate: Its peak rate.
        text: What is learned.
        seed: Of the windows and the sketches.
        held_out: ``"validation"`` to tune, ``"test"`` to report.
        device: Where.
    """
    start, tokenizer = _loaded()
    model = copy.deepcopy(start).to(device).train()
    for part in (model.get_input_embeddings(), model.get_output_embeddings()):
        part.requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim < 2:
            parameter.requires_grad_(False)
    train = _tokens(tokenizer, text.train, STEPS, np.random.default_rng(seed)).to(device)
    held = _tokens(tokenizer, getattr(text, held_out), HELD_OUT, np.random.default_rng(12345)).to(device)
    optimizer = make(name, model, rate, rank=RANK, gap=GAP, seed=seed)
    base, seconds, before = rates(optimizer), [], _loss(model, held)
    for step, row in enumerate(train, start=1):
        set_rate(optimizer, base, schedule(step, STEPS))
        optimizer.zero_grad()
        model(input_ids=row[None], labels=row[None]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        began = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    state = sum(optimizer_state_bytes(part)["total"] for part in state_holders(optimizer))
    return {"before": before, "loss": _loss(model, held), "state": state, "seconds": float(np.median(seconds))}


@cache
def _loaded() -> tuple[Any, Any]:
    return smollm2.load()  # takes half a minute, and every contender starts from it


def _tokens(tokenizer: Any, text: np.ndarray, rows: int, rng: np.random.Generator) -> Tensor:
    """Cut ``rows`` windows of ``LENGTH`` tokens out of the text, each from a place of its own."""
    found: list[list[int]] = []
    while len(found) < rows:
        start = int(rng.integers(0, len(text) - 8 * LENGTH))
        ids = tokenizer(text[start : start + 8 * LENGTH].tobytes().decode(errors="ignore"))["input_ids"]
        if len(ids) >= LENGTH:
            found.append(ids[:LENGTH])
    return torch.tensor(found)


@torch.no_grad()
def _loss(model: Any, held: Tensor) -> float:
    model.eval()
    losses = [model(input_ids=row[None], labels=row[None]).loss.item() for row in held]
    model.train()
    return float(np.mean(losses))
