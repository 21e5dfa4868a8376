"""How long selecting takes: against a loop of single gradients, against RDS+, and stages against their naive forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.influence import InfluenceDistillation, JVPEmbedding, rds_plus_selection
from thrifty.data.influence.embeddings import Embedder
from thrifty.data.influence.evidence import models
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.gradients import ExampleGradients
from thrifty.data.influence.losses import default_loss
from thrifty.data.influence.parameters import select_parameters
from thrifty.data.influence.regression import fit_kernel_ridge

LOOP, OURS, EXACT, RDS = "loop of single gradients", "Influence Distillation", "exact gradients, batched", "RDS+"

#: Pool, landmarks and targets in the proportions of the comparison, fewer so that the loop can be repeated.
POOL, LANDMARKS, TARGET = 240, 26, 3

Gate = tuple[Sequence[float], Sequence[float]]


def show(ctx: Context, evidence: Evidence, gate: Gate) -> None:
    """Time selection on the byte model's shape with 6 and with 24 blocks, and the stages on their own."""
    for layers, blocks in ((6, 3), (24, 4)):
        ctx.progress(0, 3, f"timing selection with {layers} blocks")
        model, pool, target = models.byte_llama(layers), _tokens(POOL), _tokens(TARGET, seed=1)
        timed = ctx.time(_contenders(model, pool, target, blocks), repeats=3, at_most=60)
        workload = f"selection, {layers} blocks, {POOL} examples, {LANDMARKS} landmarks"
        for name, timing in timed.items():
            evidence.row(name, timing.metrics(), workload=workload)
        evidence.measured(f"selection-time-{layers}", timed[OURS].seconds.over(timed[LOOP].seconds), gate=gate)
        if layers == 6:
            evidence.measured(
                "exact-path-time", timed[EXACT].seconds.over(timed[LOOP].seconds), gate=_between_gradients(model, pool)
            )
        else:
            evidence.measured("vs-rds-time", timed[OURS].seconds.over(timed[RDS].seconds))
    ctx.progress(1, 3, "timing the stages")
    _embedding(ctx, evidence)
    _regression(ctx, evidence)


def _contenders(model: nn.Module, pool: models.Rows, target: models.Rows, blocks: int) -> dict[str, Any]:
    def select(landmarks: int) -> object:
        picker = InfluenceDistillation(
            model, num_landmarks=landmarks, embedding=JVPEmbedding(num_blocks=blocks), projection=None, batch_size=16
        )
        return picker.select(pool, target, POOL // 10)

    def loop() -> None:
        params = list(select_parameters(model).values())
        for row in [*pool, *target]:
            ids = torch.tensor([row["input_ids"]])
            torch.autograd.grad(model(input_ids=ids, labels=ids).loss, params)

    return {
        LOOP: loop,
        OURS: lambda: select(LANDMARKS),
        EXACT: lambda: select(POOL),
        RDS: lambda: rds_plus_selection(model, pool, target, POOL // 10),
    }


def _embedding(ctx: Context, evidence: Evidence) -> None:
    embedder, pool = Embedder(models.byte_llama(), JVPEmbedding(num_blocks=3)), Examples(_tokens(64))

    def run(batch: int) -> Tensor:
        return torch.cat([embedder(inputs) for _, inputs in pool.batches(np.arange(len(pool)), batch)])

    timed = ctx.time({"batches of 32": lambda: run(32), "one by one": lambda: run(1)}, repeats=3, at_most=20)
    for name, timing in timed.items():
        evidence.row(name, timing.metrics(), workload="embedding 64 examples")
    ratio = timed["batches of 32"].seconds.over(timed["one by one"].seconds)
    evidence.measured("embedding-batched", ratio, gate=_between(run(32), run(1)))


def _regression(ctx: Context, evidence: Evidence) -> None:
    g = torch.Generator().manual_seed(0)
    E, S, P = (torch.randn(shape, generator=g) for shape in ((512, 128), (2000, 128), (512, 100)))

    def together() -> Tensor:
        return fit_kernel_ridge(E, P).predict(S)

    def each() -> Tensor:
        return torch.cat([fit_kernel_ridge(E, P[:, t : t + 1]).predict(S) for t in range(P.shape[1])], dim=1)

    timed = ctx.time({"one factor": together, "one a target": each}, repeats=3, at_most=30)
    for name, timing in timed.items():
        evidence.row(name, timing.metrics(), workload="regression, 512 landmarks, 100 targets")
    ratio = timed["one factor"].seconds.over(timed["one a target"].seconds)
    evidence.measured("regression-shared", ratio, gate=_between(together(), each()))


def _between_gradients(model: nn.Module, pool: models.Rows) -> float:
    """How far the batched gradients of a few examples are from those of a loop."""
    params, examples = select_parameters(model), Examples(pool[:8])
    batched, single = (
        ExampleGradients(model, params, default_loss(model), one_by_one=alone) for alone in (False, True)
    )
    ((_, inputs),) = examples.batches(np.arange(len(examples)), len(examples))
    return _between(batched(inputs), single(inputs))


def _between(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def _tokens(count: int, seed: int = 0) -> models.Rows:
    rng = np.random.default_rng(seed)
    return [{"input_ids": rng.integers(0, 256, rng.integers(40, models.LENGTH + 1)).tolist()} for _ in range(count)]
