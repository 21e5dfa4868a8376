"""A byte-level language model on the source of the standard library: four layers, causal, trained from scratch."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thrifty.bench.data import stdlib_text
from thrifty.bench.data.stdlib_text import Bytes
from thrifty.training.sumo.evidence.contenders import make, rates, set_rate
from thrifty.training.sumo.optimizer import SUMO

WIDTH, LAYERS, HEADS, LENGTH, BATCH = 128, 4, 4, 64, 12
RANK, GAP = 16, 100

#: Steps of a run: for tuning, in quick mode, in full mode.
TUNE_STEPS, QUICK_STEPS, FULL_STEPS = 100, 40, 200


class Block(nn.Module):
    """Attention and feed-forward, each after a norm; the four projections are separate matrices, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length, width] in and out."""
        h = self.norm_1(x)
        q, k, v = (f(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))  # type: ignore[no-any-return]


class ByteModel(nn.Module):
    """Predicts the next byte."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed = nn.Embedding(256, WIDTH)
            self.position = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.RMSNorm(WIDTH)
            self.lm_head = nn.Linear(WIDTH, 256, bias=False)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, length] of bytes to [batch, length, 256] of logits."""
        h = self.embed(x) + self.position[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.lm_head(self.norm(h))  # type: ignore[no-any-return]


@dataclass
class Run:
    """One contender on one seed.

    Args:
        curve: (step, held-out loss in nats a byte).
        seconds: Median of an optimizer step.
        reports: Diagnostics of every matrix at the end, if they were asked for.
    """

    curve: list[tuple[int, float]]
    seconds: float
    reports: list[dict[str, float]]

    @property
    def final(self) -> float:
        """The loss after the last step."""
        return self.curve[-1][1]

    def steps_to(self, loss: float) -> float:
        """Return the first step at which the held-out loss was at most ``loss``, by interpolation; inf if never."""
        before: tuple[int, float] | None = None
        for step, value in self.curve:
            if value <= loss:
                if before is None:
                    return float(step)
                share = (before[1] - loss) / (before[1] - value)
                return before[0] + share * (step - before[0])
            before = (step, value)
        return math.inf


def read_text(folder: Path | None) -> stdlib_text.Text:
    """The standard library, or the user's own folder of Python files."""
    return stdlib_text.load(folder)


def train(
    name: str,
    lr: float,
    text: stdlib_text.Text,
    *,
    steps: int,
    seed: int,
    held_out: str,
    device: str = "cpu",
    every: int = 20,
    diagnostics: bool = False,
) -> Run:
    """Train one contender: 10 % warm-up, cosine to a tenth, gradients clipped at norm 1, for all alike.

    Args:
        name: Of the contender.
        lr: Its peak rate on the matrices.
        text: What is learned.
        steps: Of training.
        seed: Of the weights and of the order of the data.
        held_out: The split that is looked at: ``"validation"`` to tune, ``"test"`` to report.
        device: Where.
        every: Steps between two looks at the held-out split.
        diagnostics: Fill ``reports`` (SUMO only).
    """
    rng = np.random.default_rng(seed)
    model = ByteModel(seed).to(device)
    optimizer = make(name, model, lr, rank=RANK, gap=GAP, seed=seed)
    base, held = rates(optimizer), _held_out(getattr(text, held_out), device)
    curve, seconds = [], []
    for step in range(1, steps + 1):
        set_rate(optimizer, base, schedule(step, steps))
        batch = torch.from_numpy(stdlib_text.windows(text.train, LENGTH, BATCH, rng)).to(device)
        optimizer.zero_grad()
        loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if diagnostics and isinstance(optimizer, SUMO):
            optimizer.diagnostics = step == steps
        began = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
        if step % every == 0 or step == steps:
            curve.append((step, evaluate(model, held)))
    reports = [vars(report) for report in optimizer.reports.values()] if isinstance(optimizer, SUMO) else []
    return Run(curve, float(np.median(seconds)), reports)


def schedule(step: int, steps: int) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to a tenth of the rate."""
    warm = max(1, steps // 10)
    if step <= warm:
        return step / warm
    return 0.55 + 0.45 * math.cos(math.pi * (step - warm) / max(1, steps - warm))


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Cross-entropy of the next byte, in nats."""
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: nn.Module, held: Tensor) -> float:
    """Mean loss on held-out windows."""
    return float(np.mean([loss_of(model, part).item() for part in torch.split(held, 64)]))


def _held_out(text: Bytes, device: str) -> Tensor:
    """The same 64 windows for everybody."""
    return torch.from_numpy(stdlib_text.windows(text, LENGTH, 64, np.random.default_rng(12345))).to(device)


def to_json(run: Run) -> dict[str, Any]:
    """What a resumable run keeps."""
    return vars(run)
