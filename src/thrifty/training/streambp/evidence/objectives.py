"""Whether training goes the same way (E4): SFT, DPO and GRPO on the same text, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.streambp import (
    enable_streambp,
    streamed_dpo_loss,
    streamed_grpo_loss,
    streamed_linear_cross_entropy,
)  # fmt: skip
from thrifty.training.streambp.evidence.batches import make_batch
from thrifty.training.streambp.evidence.contenders import CHECKPOINT, E2, OURS, make_model

LENGTH, PROMPT, BETA = 128, 64, 0.1
Loss = Callable[[Any, bool, Tensor, int], Tensor]


def show(ctx: Context, evidence: Evidence, text: Tensor) -> None:
    """Train twice from one start, ours and the standard path, and compare the losses."""
    steps = 100 if ctx.full else 4
    text = make_batch(text, 256, LENGTH * (steps + 1) * 2).ids[0]
    worst = 0.0
    for place, (name, loss) in enumerate({"SFT": _sft, "DPO": _dpo, "GRPO": _grpo}.items()):
        ctx.progress(place, 3, f"{name}, {steps} steps, twice")
        curves = [_train(loss, streams, text, steps, ctx.seed) for streams in (True, False)]
        difference = max(abs(a - b) for a, b in zip(*curves, strict=True))
        worst = max(worst, difference)
        evidence.row(OURS, {"loss difference": Measurement.of(difference, "nats")}, workload=f"{name}, {steps} steps")
        both = {OURS: (range(steps), curves[0]), CHECKPOINT: (range(steps), curves[1])}
        evidence.curves(f"{name}: both curves", "step", "loss", both)
    evidence.measured("objectives-equal", Measurement.of(worst, "nats"))


def _train(loss: Loss, streams: bool, text: Tensor, steps: int, seed: int) -> list[float]:
    model = make_model(E2, seed)
    handle = enable_streambp(model, layer_chunk_size=48, check=False) if streams else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    curve = []
    for number in range(steps):
        ids = text[number * 2 * LENGTH : (number + 1) * 2 * LENGTH].view(2, LENGTH)
        value = loss(model, streams, ids, number)
        optimizer.zero_grad()
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve.append(float(value.detach()))
    if handle is not None:
        handle.remove()
    return curve


def _hidden(model: Any, ids: Tensor) -> Tensor:
    found: Tensor = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return found


def _logps(model: Any, hidden: Tensor, ids: Tensor) -> Tensor:
    return model.lm_head(hidden).log_softmax(-1).gather(-1, ids[..., None]).squeeze(-1)  # type: ignore[no-any-return]


def _sft(model: Any, streams: bool, ids: Tensor, _: int) -> Tensor:
    hidden = _hidden(model, ids)
    if streams:
        return streamed_linear_cross_entropy(hidden, model.lm_head.weight, ids)  # type: ignore[return-value]
    return cross_entropy(model.lm_head(hidden)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def _dpo(model: Any, streams: bool, ids: Tensor, number: int) -> Tensor:
    """Chosen: what follows in the file. Rejected: the same bytes shuffled. The reference knows nothing."""
    generator = torch.Generator().manual_seed(number)
    order = torch.randperm(LENGTH - PROMPT, generator=generator)
    rejected = torch.cat([ids[:, :PROMPT], ids[:, PROMPT:][:, order]], dim=1)
    both = torch.cat([ids, rejected])
    hidden, targets = _hidden(model, both)[:, PROMPT - 1 : -1], both[:, PROMPT:]
    reference = torch.zeros(4)
    if streams:
        return streamed_dpo_loss(hidden, model.lm_head.weight, targets, torch.ones_like(targets), reference, BETA)  # type: ignore[return-value]
    chosen, other = _logps(model, hidden, targets).sum(-1).chunk(2)
    return -logsigmoid(BETA * (chosen - other)).mean()


def _grpo(model: Any, streams: bool, ids: Tensor, _: int) -> Tensor:
    """Completions are the file's own; the reward counts spaces; the advantage is centred on the pair."""
    targets = ids[:, PROMPT:]
    reward = (targets == ord(" ")).float().sum(-1)
    advantages = (reward - reward.mean()) / (reward.std() + 1e-4)
    hidden = _hidden(model, ids)[:, PROMPT - 1 : -1]
    if streams:
        return streamed_grpo_loss(hidden, model.lm_head.weight, targets, torch.ones_like(targets), advantages)  # type: ignore[return-value]
    logps = _logps(model, hidden, targets)
    ratio = (logps - logps.detach()).exp()
    return -(ratio * advantages[:, None]).mean()
