"""E3: what a step of the loss costs beside open_clip's ClipLoss: peak memory, time, and the share of stage I."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.training.amorlip.evidence.contenders import CLIP, OURS, contender
from thrifty.training.amorlip.hosts import embedding_width
from thrifty.training.amorlip.loss import AmorLIPLoss

DIM, CHUNK = 512, 512
BATCH, SMALL = 4096, 256
FIRST = "AmorLIP, first epoch"

#: r1 of ours and of ClipLoss by seed, where they were trained.
Gate = tuple[Sequence[float], Sequence[float]] | None


def memory(ctx: Context, evidence: Evidence) -> None:
    """Peak bytes of loss and backward pass, in blocks, beside ClipLoss; and that both have the same gradient."""
    leaves = _leaves(BATCH, ctx)
    workload = f"loss and backward pass, {BATCH} pairs of {DIM} numbers, blocks of {CHUNK} rows"
    ours, clip = _amorlip(ctx, chunk_size=CHUNK, amor_every=1), contender(CLIP).make(0, 0, 0)
    gradients: dict[str, Tensor] = {}
    peaks = {}
    for name, loss in ((OURS, ours), (CLIP, clip)):
        call = _step(loss, leaves)
        call()  # the optimiser's state of the networks is there from the first fit on
        peaks[name] = Measurement.of(allocated_peak(call, device=ctx.device) / 2**20, "MiB")
        assert leaves[0].grad is not None
        gradients[name] = leaves[0].grad
        evidence.row(name, {"peak": peaks[name]}, workload=workload)
    expected = 2 * gradients[CLIP]
    error = float((gradients[OURS] - expected).abs().max() / expected.abs().max())
    evidence.measured("memory", peaks[OURS].over(peaks[CLIP]), gate=error)


def stage_one(ctx: Context, evidence: Evidence) -> None:
    """The share of a whole training step that fits the networks: open_clip's ViT-S/32, forward, backward and AdamW."""
    open_clip = require("open_clip", extra="vision")
    batch = 64 if ctx.full else 8
    with torch.random.fork_rng():
        torch.manual_seed(ctx.seed)
        model = open_clip.create_model("ViT-S-32-alt").to(ctx.device)
        images = torch.randn(batch, 3, 224, 224, device=ctx.device)
        texts = torch.randint(1, 40_000, (batch, model.context_length), device=ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    width = embedding_width(model)
    idle, busy = (_amorlip(ctx, width, amor_every=every) for every in (10**9, 1))

    def step(loss: AmorLIPLoss) -> None:
        optimizer.zero_grad()
        loss(*model(images, texts)).backward()
        optimizer.step()

    step(idle)  # its only fit; the optimiser's state is there from now on
    u, v, scale = _leaves(batch, ctx, width)
    found = ctx.time(
        {"step": partial(step, idle), "fit": partial(busy, u, v, scale), "no fit": partial(idle, u, v, scale)},
        repeats=5 if ctx.full else 3,
        at_most=30.0 if ctx.full else 3.0,
    )
    fit = found["fit"].seconds.minus(found["no fit"].seconds).median
    workload = f"a step of open_clip's ViT-S/32 at batch {batch}"
    shares = {every: 100 * fit / every / (found["step"].seconds.median + fit / every) for every in (1, 8, 32)}
    rows = {f"fitted every {every} steps": Measurement.of(share, "%", timed=True) for every, share in shares.items()}
    evidence.row(OURS, {"step": found["step"].seconds, **rows}, workload=workload)
    evidence.measured("stage-one-share", Measurement.of(shares[8], "%", timed=True))


def time(ctx: Context, evidence: Evidence, gate: Gate) -> None:
    """Seconds of loss and backward pass, stage I every 8 steps, beside ClipLoss.

    The claims are about the second epoch and later ones, in which the previous network is asked at every step.
    """
    found = {}
    for batch in (SMALL, BATCH):
        leaves = _leaves(batch, ctx)
        later = _amorlip(ctx, beta_epochs=1)
        for epoch in range(2):
            later.set_epoch(epoch)
            later(*leaves)
        assert later.amortizer.beta
        calls: dict[str, Callable[[], object]] = {
            OURS: _eight(_step(later, leaves)),
            CLIP: _eight(_step(contender(CLIP).make(0, 0, 0), leaves)),
        }
        if batch == SMALL:
            calls[FIRST] = _eight(_step(_amorlip(ctx), leaves))
        workload = f"8 steps of loss and backward pass, stage I in one, {batch} pairs of {DIM} numbers"
        found[batch] = ctx.timed(evidence, calls, workload=workload, quick=4.0, full=60.0)
    if gate is not None:
        evidence.measured("time", found[BATCH][OURS].over(found[BATCH][CLIP]), gate=gate)
        # Products of a batch with the networks' weights: five a step of a fit, two of the previous networks.
        weights = sum(p.numel() for p in _amorlip(ctx).amortization_parameters())
        own = (3 / 8 * 5 + 2) * SMALL * weights / (6 * 2 * SMALL**2 * DIM)
        first = found[SMALL][FIRST].over(found[SMALL][CLIP]).median
        evidence.measured(
            "time-small-batch",
            found[SMALL][OURS].over(found[SMALL][CLIP]),
            gate=gate,
            reason=f"the networks' arithmetic alone is {own:.2f} of ClipLoss's; {first:.2f} in the first epoch",
        )


def _eight(step: Callable[[], object]) -> Callable[[], object]:
    """Take eight steps: in exactly one of them the networks are fitted."""

    def call() -> None:
        for _ in range(8):
            step()

    return call


def _step(loss: Callable[..., Tensor], leaves: Sequence[Tensor]) -> Callable[[], object]:
    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss(*leaves).backward()  # type: ignore[no-untyped-call]

    return call


def _amorlip(ctx: Context, dim: int = DIM, **options: Any) -> AmorLIPLoss:
    made = AmorLIPLoss(dim, pos_coef=1.0, steps_per_epoch=10**9, ema_decay=0.9, seed=ctx.seed, **options)
    return made.to(ctx.device)


def _leaves(batch: int, ctx: Context, dim: int = DIM) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(ctx.seed)
    u, v = (functional.normalize(torch.randn(batch, dim, generator=generator), dim=1).to(ctx.device) for _ in "uv")
    return u.requires_grad_(), v.requires_grad_(), torch.tensor(14.3, device=ctx.device, requires_grad=True)
