"""Experiment 4, beside rivals: transformers' own generation, assisted or not, and rolling all rows back together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.inference.speculation.decode import SpeculativeDecoder
from thrifty.inference.speculation.evidence.endtoend import GAMMA, NEW, PROMPT
from thrifty.inference.speculation.evidence.models import OFTEN, calibrated_pair, prompts
from thrifty.inference.speculation.rivals import rolling_back_together

SETTINGS: dict[str, Any] = {"do_sample": False, "max_new_tokens": NEW}
ROLLED = "all rows rolled back to the shortest"


def show(ctx: Context, evidence: Evidence) -> None:
    """Time one prompt beside transformers' loops, and a batch beside the roll-back that keeps rows together."""
    target, draft = calibrated_pair(8, OFTEN, seed=ctx.seed)
    draft.generation_config.num_assistant_tokens = GAMMA
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    decoder, plain = SpeculativeDecoder(target, draft, GAMMA), SpeculativeDecoder(target, draft, 0)
    ids = prompts(1, PROMPT, seed=ctx.seed)
    single: dict[str, Callable[[], Any]] = {
        "ours": lambda: decoder.generate(ids, **SETTINGS).sequences,
        "assisted generation": lambda: target.generate(ids, assistant_model=draft, **SETTINGS),
        "ours, no drafts": lambda: plain.generate(ids, **SETTINGS).sequences,
        "generate": lambda: target.generate(ids, **SETTINGS),
    }
    times = _time(ctx, evidence, single, "batch 1, 4 drafts, K=8, bfloat16")
    tokens = {name: call() for name, call in single.items()}
    for claim, us, rival in (
        ("vs-assisted-generation", "ours", "assisted generation"),
        ("no-cost-when-off", "ours, no drafts", "generate"),
    ):
        differing = float((tokens[us] != tokens[rival]).sum())
        evidence.measured(claim, times[us].over(times[rival]), gate=differing)
    many = prompts(16, PROMPT, seed=ctx.seed)
    together = rolling_back_together(decoder)
    batched: dict[str, Callable[[], Any]] = {
        "ours": lambda: decoder.generate(many, **SETTINGS).sequences,
        ROLLED: lambda: together.generate(many, **SETTINGS).sequences,
    }
    times = _time(ctx, evidence, batched, "batch 16, 4 drafts, K=8, bfloat16")
    parted = _parted(plain, many, batched)
    gate = ([parted["ours"]], [max(parted.values())])
    evidence.measured("vs-rolling-back-together", times[ROLLED].over(times["ours"]), gate=gate)
    shares = {name: Measurement.of(share, "share") for name, share in parted.items()}
    evidence.row("rows that part from plain decoding", shares, workload="bfloat16, batch 16")


def _time(
    ctx: Context, evidence: Evidence, calls: dict[str, Callable[[], Any]], workload: str
) -> dict[str, Measurement]:
    timings = ctx.time(calls, repeats=7, at_most=40)
    for name, timing in timings.items():
        threads = Measurement.of(timing.threads, "threads", timed=True)
        evidence.row(name, {f"{NEW} tokens": timing.seconds, "threads": threads}, workload=workload)
    return {name: timing.seconds for name, timing in timings.items()}


def _parted(plain: SpeculativeDecoder, ids: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the share of rows that part in bfloat16: rounding depends on a pass's shape, and flips near-ties.

    The control is plain decoding at another batch size.
    """
    base = plain.generate(ids, **SETTINGS).sequences
    others = {name: call() for name, call in calls.items()}
    others["plain at batch 1"] = torch.cat([plain.generate(row[None], **SETTINGS).sequences for row in ids])
    return {name: float((other != base).any(1).float().mean()) for name, other in others.items()}
