"""A real pretrained model, SmolLM2-135M, fine-tuned on long text by three means: the same losses, different peaks."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import smollm2, stdlib_text
from thrifty.bench.evidence import Evidence, Plot, Series
from thrifty.training.streambp.evidence.batches import Batch
from thrifty.training.streambp.evidence.contenders import CHECKPOINT, NATIVE, OURS, peak, prepared, step
from thrifty.training.streambp.finetune import blocks, documents

LENGTH, STEPS, CHUNK, RATE = 2048, 3, 512, 0.01


def show(ctx: Context, evidence: Evidence) -> None:
    """Train from the same weights, ours and both standard paths; compare losses and peaks."""
    claims = ("pretrained-equal", "pretrained-peak")
    try:
        model, tokenizer = smollm2.load()
    except (UnavailableError, ImportError) as error:
        for claim in claims:
            evidence.cannot_show(claim, str(error))
        return
    model = model.to(ctx.device).train()
    workload = f"SmolLM2-135M, {LENGTH} tokens a step"
    rows = blocks(tokenizer, iter(_texts(ctx.data)), LENGTH)[: STEPS + 1]
    batches = [_batch(row["input_ids"], ctx.device) for row in rows]
    start = copy.deepcopy(model.state_dict())
    losses: dict[str, list[float]] = {}
    peaks: dict[str, float] = {}
    for place, name in enumerate((OURS, CHECKPOINT, NATIVE)):
        ctx.progress(place, 3, f"{workload}: {name}")

        def work(name: str = name) -> Any:
            model.load_state_dict(start)
            found = peak(name, model, batches[0], CHUNK if name == OURS else "auto", ctx.device)
            return [found, _train(name, model, batches[1:])]

        peaks[name], losses[name] = ctx.once(f"{workload} {name}", ctx.seed, work)
        evidence.row(
            name,
            {
                "peak": Measurement.of(peaks[name], "MiB"),
                "first loss": Measurement.of(losses[name][0], "nats"),
                "last loss": Measurement.of(losses[name][-1], "nats"),
            },
            workload=workload,
        )
    xs = tuple(float(i + 1) for i in range(len(batches) - 1))
    series = tuple(Series(name, xs, tuple(curve)) for name, curve in losses.items())
    evidence.plot(Plot("SmolLM2: the curves", "line", "step", "loss", series))
    difference = max(abs(a - b) for a, b in zip(losses[OURS], losses[CHECKPOINT], strict=True))
    evidence.measured("pretrained-equal", Measurement.of(difference, "nats"))
    evidence.measured("pretrained-peak", Measurement.of(peaks[OURS] / peaks[CHECKPOINT], "ratio"))


def _texts(data: Path | None) -> list[str]:
    if data is not None:
        return list(documents(data))
    return [bytes(stdlib_text.load().train[: 8 * LENGTH * (STEPS + 1)]).decode(errors="replace")]


def _batch(ids: list[int], device: str) -> Batch:
    row = torch.tensor([ids], device=device)
    return Batch(row, None, row)


def _train(name: str, model: Any, batches: list[Batch]) -> list[float]:
    """Take a step a batch, and return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    curve = []
    with prepared(name, model, CHUNK if name == OURS else "auto") as loss:
        for batch in batches:
            optimizer.zero_grad()
            curve.append(step(model, loss, batch))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return curve
