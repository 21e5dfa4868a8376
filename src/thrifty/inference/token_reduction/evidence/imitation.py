"""Experiment B on the pretrained ViT-S/14: a short imitation of the whole model's class token, without labels.

LayerNorms from the first reducing block on, and what a reduction added, learn from crops of the left halves of the
photographs; crops of the right halves judge. Two photographs and a dozen steps are no fine-tuning: what is asked is
whether the gap to ToMe, which leads without training, becomes smaller under one budget. Settings and target were fixed
before the first run; ``tune`` tries one grid of rates for each on other crops of the left halves.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, named
from thrifty.inference.token_reduction.evidence.fidelity import LAYERS, class_tokens
from thrifty.inference.token_reduction.evidence.images import backbone, halves
from thrifty.inference.token_reduction.patch import reduce_tokens

KEEP, STEPS, BATCH, LEARNT, JUDGED, SEEDS = 0.7, 12, 4, 24, 12, 3
GRID = (3e-4, 1e-3, 3e-3, 1e-2)
#: What :func:`tune` found.
RATES = {"ours": 1e-2, "ToMe": 1e-3, "EViT": 1e-2}


def contenders() -> dict[str, Config]:
    """Return who imitates."""
    ours = FreqReduceConfig(LAYERS, KEEP, dc_pos_embed="learned")
    return {"ours": ours, "ToMe": named("tome", LAYERS, KEEP), "EViT": named("evit", LAYERS, KEEP)}


def show(ctx: Context, evidence: Evidence) -> None:
    """Let everyone imitate, and compare the gap to ToMe before and after."""
    with threads(1):
        model = backbone(ctx)
        learnt, judged = (_with_aims(model, halves(n, side, ctx.seed, ctx)) for n, side in _SPLIT)
        held: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders()}
        for seed in ctx.seeds(quick=1, full=SEEDS):
            for name, config in contenders().items():
                piece = ctx.once(f"imitation, {name}", seed, imitated, model, config, RATES[name], seed, learnt, judged)
                held[name].append((piece[0], piece[1]))
    before, after = ({name: Measurement.of([run[i] for run in runs], "cosine") for name, runs in held.items()}
                     for i in (0, 1))  # fmt: skip
    for name in held:
        metrics = {"cosine before": before[name], "cosine": after[name]}
        evidence.row(name, metrics, workload=f"photographs, right halves, after {STEPS} steps on the left ones")
    closed = before["ToMe"].minus(before["ours"]).minus(after["ToMe"].minus(after["ours"]))
    left = after["ToMe"].minus(after["ours"]).median
    evidence.measured("imitation-closes-the-gap", closed, reason=f"{left:+.4f} to ToMe is left")


_SPLIT: Any = ((LEARNT, "left"), (JUDGED, "right"))

#: Images, and the class tokens that the whole model gives them.
Aimed = tuple[Tensor, Tensor]


def _with_aims(model: nn.Module, x: Tensor) -> Aimed:
    return x, class_tokens(model, x).clone()


def imitated(
    model: nn.Module, config: Config, rate: float, seed: int, learnt: Aimed, judged: Aimed
) -> tuple[float, float]:
    """Return the mean cosine on the images that judge, before and after imitation."""
    student: Any = copy.deepcopy(model)
    reduction = reduce_tokens(student, config)
    late = {id(p) for block in reduction.host.blocks[LAYERS[0] - 1 :] for p in block.parameters()}
    late |= {id(p) for p in student.layernorm.parameters()}
    for part in student.modules():
        for name, parameter in part.named_parameters(recurse=False):
            wanted = isinstance(part, nn.LayerNorm) or name.startswith("freq_")
            parameter.requires_grad_(wanted and id(parameter) in late)
    before = _nearness(student, judged)
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        chosen = torch.from_numpy(rng.choice(len(learnt[0]), BATCH, replace=False))
        ours = student(learnt[0][chosen]).pooler_output
        torch.autograd.backward((1 - torch.cosine_similarity(ours, learnt[1][chosen])).mean())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    return before, _nearness(student, judged)


def _nearness(model: nn.Module, judged: Aimed) -> float:
    return float(torch.cosine_similarity(class_tokens(model, judged[0]), judged[1]).mean())


def tune(ctx: Context) -> dict[str, float]:
    """Choose each contender's rate on other crops of the left halves (the bench does not run this)."""
    model = backbone(ctx)
    learnt, judged = (_with_aims(model, halves(n, "left", seed, ctx)) for n, seed in ((LEARNT, 100), (JUDGED, 101)))
    best = {}
    for name, config in contenders().items():
        scores = {rate: imitated(model, config, rate, 100, learnt, judged)[1] for rate in GRID}
        best[name] = max(scores, key=lambda rate: scores[rate])
    return best
