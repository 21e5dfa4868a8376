"""A real pretrained model, SmolLM2-135M, fine-tuned on long text by three means: the same losses, different peaks."""

from __future__ import annotations

import copy
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from thrifty._common.texts import blocks, documents
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import smollm2, stdlib_text
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.training.streambp.evidence.batches import Batch
from thrifty.training.streambp.evidence.contenders import CHECKPOINT, NATIVE, OURS, prepared, step

LENGTH, STEPS, CHUNK, RATE = 2048, 2, 512, 0.01


def show(ctx: Context, evidence: Evidence) -> None:
    """Train from the same weights, ours and both standard paths; compare losses and peaks."""
    model, tokenizer = smollm2.load()
    model = model.to(ctx.device).train()
    workload = f"SmolLM2-135M, {LENGTH} tokens a step"
    rows = islice(blocks(tokenizer, _texts(ctx.data), LENGTH), STEPS)
    batches = [_batch(row, ctx.device) for row in rows]
    start = copy.deepcopy(model.state_dict())
    losses: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}

    def work(name: str, batches: list[Batch]) -> Any:
        model.load_state_dict(start)
        return _train(name, model, batches, ctx.device)

    for place, (name, steps) in enumerate({OURS: STEPS, CHECKPOINT: STEPS, NATIVE: 1}.items()):
        ctx.progress(place, 3, f"{workload}: {name}")
        peaks[name], losses[name] = ctx.once(f"{workload} {name}", ctx.seed, work, name, batches[:steps])
        found = {"peak": Measurement.of(peaks[name], "MiB"), "first loss": Measurement.of(losses[name][0], "nats")}
        if steps > 1:
            found["last loss"] = Measurement.of(losses[name][-1], "nats")
        evidence.row(name, found, workload=workload)
    places = range(1, STEPS + 1)
    evidence.curves(
        "SmolLM2: the curves", "step", "loss", {name: (places, losses[name]) for name in (OURS, CHECKPOINT)}
    )
    difference = max(abs(a - b) for a, b in zip(losses[OURS], losses[CHECKPOINT], strict=True))
    evidence.measured("pretrained-equal", Measurement.of(difference, "nats"))
    evidence.measured("pretrained-peak", Measurement.of(peaks[OURS] / peaks[CHECKPOINT], "ratio"))


def _texts(data: Path | None) -> list[str]:
    if data is not None:
        return list(documents(data))
    return [bytes(stdlib_text.load().train[: 8 * LENGTH * STEPS]).decode(errors="replace")]


def _batch(ids: list[int], device: str) -> Batch:
    row = torch.tensor([ids], device=device)
    return Batch(row, None, row)


def _train(name: str, model: Any, batches: list[Batch], device: str) -> tuple[float, list[float]]:
    """Take a step a batch; return the MiB that the first one allocated, and the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    curve: list[float] = []
    peaks: list[int] = []
    with prepared(name, model, CHUNK if name == OURS else "auto") as loss:
        for batch in batches:
            optimizer.zero_grad()

            def work(batch: Batch = batch) -> None:
                curve.append(step(model, loss, batch))

            if peaks:
                work()
            else:
                peaks.append(allocated_peak(work, device=device))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    optimizer.zero_grad()
    return peaks[0] / 2**20, curve
