"""How long a step takes beside checkpointing with the same head, and the head alone beside TRL's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from thrifty._common.extras import require
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.streambp import streamed_linear_cross_entropy
from thrifty.training.streambp.evidence.batches import make_batch
from thrifty.training.streambp.evidence.contenders import E2, OURS, SAME_HEAD, make_model, prepared, step

LAYER_CHUNK = 512
STREAMED_HEAD, TRL_HEAD = "streamed head", "TRL's head"


def show(ctx: Context, evidence: Evidence, text: Tensor, error: float) -> None:
    """Time whole steps, then heads."""
    length = 4096 if ctx.full else 2048
    for padded in (True, False) if ctx.full else (True,):
        kind = "padded" if padded else "unpadded"
        if ctx.late(evidence, f"time-{kind}"):
            continue
        workload = f"E2: {length} tokens, {kind}"
        ctx.progress(1 - int(padded), 3, f"time, {workload}")
        batch = make_batch(text, 256, length, padded=padded, device=ctx.device)
        with ExitStack() as stack:
            steps: dict[str, Callable[[], object]] = {}
            for name in (SAME_HEAD, OURS):
                model = make_model(E2, ctx.seed, ctx.device)
                loss = stack.enter_context(prepared(name, model, LAYER_CHUNK))
                steps[name] = lambda model=model, loss=loss: step(model, loss, batch)  # type: ignore[misc] # noqa: B023
            seconds = ctx.timed(evidence, steps, workload=workload, quick=4, full=90)
        ratio = seconds[OURS].over(seconds[SAME_HEAD])
        evidence.measured(f"time-{kind}", ratio, gate=error)
    if not ctx.late(evidence, "head-time"):
        _heads(ctx, evidence, text, error)


def _heads(ctx: Context, evidence: Evidence, text: Tensor, error: float) -> None:
    """The head alone: hidden 128, vocabulary 16384."""
    rows = 1024 if ctx.full else 256
    generator = torch.Generator().manual_seed(ctx.seed)
    hidden = torch.randn(1, rows + 1, 128, generator=generator).to(ctx.device).requires_grad_()
    weight = (torch.randn(16384, 128, generator=generator) / 11).to(ctx.device).requires_grad_()
    labels = make_batch(text, 16384, rows + 1, device=ctx.device).ids

    def streamed() -> None:
        loss: Any = streamed_linear_cross_entropy(hidden, weight, labels, chunk_size=256)
        torch.autograd.grad(loss, (hidden, weight))

    def trl() -> None:
        function = require("trl.kernels", extra="llm").ChunkedLogProbFunction
        flat = hidden[:, :-1].flatten(0, 1)
        found = function.apply(flat, weight, None, labels[:, 1:].flatten(), 1.0, 32768, None, 1.0, ("log_probs",))
        torch.autograd.grad(-found[0].mean(), (hidden, weight))

    workload = f"head: {rows} rows, vocabulary 16384"
    seconds = ctx.timed(evidence, {STREAMED_HEAD: streamed, TRL_HEAD: trl}, workload=workload, quick=1, full=20)
    ratio = seconds[STREAMED_HEAD].over(seconds[TRL_HEAD])
    evidence.measured("head-time", ratio, gate=error)
