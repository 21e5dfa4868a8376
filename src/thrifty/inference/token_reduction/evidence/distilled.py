"""Experiment B: a small ViT on Fashion-MNIST, fine-tuned under every reduction with one budget, and its collapse.

A patch every two pixels makes 196 tokens, DeiT's grid. Every contender starts from the same trained model, sees the
same batches at the same rate, and distils from the same teacher; seeds change the batches. ``tune`` tries one grid of
rates for each on images that neither training nor test holds.
"""

from __future__ import annotations

import copy
import statistics
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import fashion
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, named
from thrifty.inference.token_reduction.distill import Distiller
from thrifty.inference.token_reduction.macs import count_macs
from thrifty.inference.token_reduction.metrics import hf_ratio, relative_log_amplitude
from thrifty.inference.token_reduction.patch import reduce_tokens, reduction_of

LAYERS, KEEP, WIDTH, DEPTH, HEADS = (2, 4, 5), 0.7, 48, 6, 3
BASE_STEPS, STEPS, BATCH, TESTED, SEEDS = 1000, 60, 16, 1000, 3
BASE_RATE = 2e-3
#: What :func:`tune` found for each on images held out, from one grid.
RATES = {"ours": 3e-4, "ToMe": 1e-3, "EViT": 1e-3, "pooling": 1e-3}
GRID = (3e-4, 1e-3, 3e-3)
WHOLE, WORKLOAD = "the model as it is", "Fashion-MNIST, fine-tuned"


def contenders() -> dict[str, Config]:
    """Return who is fine-tuned."""
    ours = FreqReduceConfig(LAYERS, KEEP, dc_pos_embed="learned")
    rivals = {"ToMe": "tome", "EViT": "evit", "pooling": "pool"}
    return {"ours": ours} | {label: named(method, LAYERS, KEEP) for label, method in rivals.items()}


def show(ctx: Context, evidence: Evidence) -> None:
    """Train, fine-tune, and compare accuracy and what is left of the high frequencies."""
    with threads(1):  # small matrices
        base = new_model()
        state = ctx.once(WHOLE, 0, _saved_after_training, base)
        base.load_state_dict({name: torch.tensor(values) for name, values in state.items()})
        x, y = batch_of("test", range(TESTED))
        whole = measured(base, x, y)
        results: dict[str, list[dict[str, float]]] = {name: [] for name in contenders()}
        for seed in ctx.seeds(quick=1, full=SEEDS):
            for name, config in contenders().items():
                results[name].append(ctx.once(name, seed, _finetuned, base, config, RATES[name], seed, x, y))
        before = {name: _untrained(base, config, x, y) for name, config in contenders().items()}
    evidence.row(WHOLE, {name: Measurement.of(value, UNITS[name]) for name, value in whole.items()}, workload=WORKLOAD)
    for name, config in contenders().items():
        metrics = {
            metric: Measurement.of([held[metric] for held in results[name]], unit) for metric, unit in UNITS.items()
        }
        metrics["accuracy before"] = Measurement.of(before[name], "%")
        metrics["MACs"] = Measurement.of(count_macs(base, (28, 28), config) / 1e9, "G")
        evidence.row(name, metrics, workload=WORKLOAD)
    _judge(evidence, results)


def _judge(evidence: Evidence, results: dict[str, list[dict[str, float]]]) -> None:
    scores = {name: [r["accuracy"] for r in held] for name, held in results.items()}
    rival = max(("ToMe", "EViT"), key=lambda name: statistics.fmean(scores[name]))
    spread = [statistics.variance(scores[name]) for name in ("ours", rival) if len(scores[name]) > 1]
    sd = max((sum(spread) / max(1, len(spread))) ** 0.5, 1e-9)
    gap = statistics.fmean(scores["ours"]) - statistics.fmean(scores[rival])
    remark = f"{gap:+.2f} points against {rival}, sd {sd:.2f} over {len(scores['ours'])} seeds"
    evidence.measured("accuracy-after-distillation", Measurement.of(gap / sd, "sd"), reason=remark)
    for claim, metric in (
        ("collapse-after-distillation", "hf ratio"),
        ("amplitude-after-distillation", "log amplitude"),
    ):
        held = {name: [r[metric] for r in runs] for name, runs in results.items()}
        best = [max(values) for values in zip(*(held[n] for n in ("ToMe", "EViT", "pooling")), strict=True)]
        gaps = [ours - theirs for ours, theirs in zip(held["ours"], best, strict=True)]
        evidence.measured(claim, Measurement.of(gaps, UNITS[metric]))


def new_model() -> nn.Module:
    """Return an untrained ViT for 28 x 28 grey images; patches overlap and places are sines, so that it learns soon."""
    timm = require("timm", extra="vision")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: Any = timm.models.VisionTransformer(
            img_size=28, patch_size=2, in_chans=1, num_classes=10, embed_dim=WIDTH, depth=DEPTH, num_heads=HEADS,
            init_values=0.1,
        )  # fmt: skip
        model.patch_embed.proj = nn.Conv2d(1, WIDTH, 6, stride=2, padding=2)
    with torch.no_grad():
        model.pos_embed[0, 1:] = 0.3 * timm.layers.build_sincos2d_pos_embed([14, 14], WIDTH)
    return model  # type: ignore[no-any-return]


def batch_of(split: Any, indices: Any) -> tuple[Tensor, Tensor]:
    """Return images, scaled to about unit variance, and classes."""
    images, labels = fashion.load(split)
    chosen = np.asarray(indices)
    return (torch.from_numpy(images[chosen]).float()[:, None] / 255 - 0.286) / 0.353, torch.from_numpy(labels[chosen])


@torch.inference_mode()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return right answers in a hundred."""
    model.eval()
    return 100 * float(torch.cat([model(part).argmax(1) for part in torch.split(x, 100)]).eq(y).float().mean())


def _trained(model: nn.Module) -> nn.Module:
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), BASE_RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, BASE_RATE, BASE_STEPS, pct_start=0.1)
    model.train()
    for _ in range(BASE_STEPS):
        x, y = batch_of("train", rng.integers(0, 50_000, BATCH))
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(x), y))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    return model.eval()


def _finetuned(base: nn.Module, config: Config, rate: float, seed: int, x: Tensor, y: Tensor) -> dict[str, float]:
    """Fine-tune a copy, and measure it."""
    student = copy.deepcopy(base)
    reduce_tokens(student, config, trace=True)
    distiller = Distiller(student)
    optimizer = torch.optim.AdamW(student.parameters(), rate, weight_decay=2e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    rng = np.random.default_rng(100 + seed)
    student.train()
    for _ in range(STEPS):
        images, labels = batch_of("train", rng.integers(0, 50_000, BATCH))
        torch.autograd.backward(distiller.loss(images, labels))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
    return measured(student, x, y)


def _untrained(base: nn.Module, config: Config, x: Tensor, y: Tensor) -> float:
    """Return the accuracy under a reduction before any fine-tuning."""
    with reduce_tokens(base, config):
        return accuracy(base, x, y)


#: What is measured of every contender; the last three of the tokens behind the last block.
UNITS = {"accuracy": "%", "hf ratio": "share", "hf ratio, a token a patch": "share", "log amplitude": "log"}


def measured(model: Any, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return accuracy, and rank and frequency of the tokens behind the last block.

    The share of the high-frequency part is that of the sequence as it is, and that of the restored grid, where every
    contender has one token a patch at the same places; the relative log amplitude (at 1.0 π) needs that grid.
    """
    seen: list[Tensor] = []
    right = accuracy(model, x, y)
    hook = model.blocks[-1].register_forward_hook(lambda _, __, out: seen.append(out))
    with torch.inference_mode():
        model(x[:64])
    hook.remove()
    reduction = reduction_of(model)
    dense = seen[0][:, 1:] if reduction is None else reduction.restore(seen[0])
    return {
        "accuracy": right,
        "hf ratio": float(hf_ratio(seen[0]).mean()),
        "hf ratio, a token a patch": float(hf_ratio(dense).mean()),
        "log amplitude": float(relative_log_amplitude(dense, model.patch_embed.grid_size)[1][-1]),
    }


def _saved_after_training(model: nn.Module) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in _trained(model).state_dict().items()}


def tune() -> dict[str, float]:
    """Choose each contender's rate on 1000 of the images that are not trained on (the bench does not run this)."""
    x, y = batch_of("train", range(50_000, 51_000))
    base = _trained(new_model())
    best = {}
    for name, config in contenders().items():
        scores = {rate: _finetuned(base, config, rate, 7, x, y)["accuracy"] for rate in GRID}
        best[name] = max(scores, key=lambda rate: scores[rate])
    return best
