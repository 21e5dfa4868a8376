"""Three workloads: a byte Llama pre-trained here, a pretrained sentence encoder with a new head, and SmolLM2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from thrifty.bench.data import minilm, smollm2
from thrifty.data.influence import JVPEmbedding, warm_up
from thrifty.data.influence.evidence import domains, models
from thrifty.data.influence.evidence.comparison import CONTENDERS, EXACT, LESS, MIDDLE, OURS, RANDOM, RDS, Scene

#: Learning rates of fine-tuning. Bytes: each contender's own, by ``tuning.tune``; else one for all, set beforehand.
RATES: Mapping[str, Mapping[str, float]] = {
    "bytes": {EXACT: 1e-3, LESS: 1e-3, OURS: 1e-3, RDS: 1e-3, MIDDLE: 3e-4, RANDOM: 3e-4},
    "encoder": dict.fromkeys(CONTENDERS, 1e-4),
    "smollm2": dict.fromkeys(CONTENDERS, 3e-4),
}


#: Of larger models, gradients are compared on so many coordinates, drawn at random: cosines spread by 0.012 here, and
#: what the draw adds has to be far below that (with 65 536 it is 0.004 and more).
SAMPLED: Mapping[str, Any] = {"mask_numel": 2**20, "projection": None}


@cache
def pretrained_bytes(steps: int = 150, batch: int = 32, data: Path | None = None) -> nn.Module:
    """Return the byte Llama after its pre-training; one for all seeds."""
    return models.pretrain(models.byte_llama(), steps=steps, batch=batch, data=data)


def byte_scene(
    seed: int, *, pool: int = 300, landmarks: int = 128, test: int = 200, pretrain: int = 150,
    pretrain_batch: int = 32, split: str = "rest",
    lr: Mapping[str, float] | None = None, data: Path | None = None,
) -> Scene:  # fmt: skip
    """Tweets are the task; the pool mixes tweets, product and film reviews, and editorials."""
    drawn = domains.draw(seed, split=split, pool=pool, test=test, data=data)
    rows = models.byte_rows(drawn.pool)
    some = np.random.default_rng(seed).permutation(len(rows))[:100]
    start = warm_up(
        pretrained_bytes(pretrain, pretrain_batch, data),
        [rows[i] for i in some],
        steps=40,
        lr=1e-3,
        batch_size=16,
        seed=seed,
    )
    return Scene(
        start.model, start.optimizer, rows, models.byte_rows(drawn.target), models.byte_rows(drawn.test),
        JVPEmbedding(num_blocks=3, num_tangents=2), landmarks, k=len(rows) // 10, steps=25,
        lr=dict(lr or RATES["bytes"]), seed=seed, settings={"projection": None},
    )  # fmt: skip


def replace_rates(scene: Scene, rate: float) -> Scene:
    """Return the scene with one learning rate for all."""
    return replace(scene, lr=dict.fromkeys(scene.lr, rate))


def encoder_scene(
    seed: int, *, pool: int = 100, landmarks: int = 40, split: str = "rest", data: Path | None = None
) -> Scene:
    """Sentiment of tweets, from a pool of all domains; the encoder's last two blocks and a new head are trained."""
    drawn = domains.draw(seed, split=split, pool=pool, data=data)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model, tokenizer = minilm.load(2)
    model.requires_grad_(False)
    for name, p in model.named_parameters():
        p.requires_grad_(any(part in name for part in ("layer.4.", "layer.5.", "classifier", "pooler")))

    def rows(sentences: Any) -> models.Rows:
        return [
            {"input_ids": tokenizer(s.text, truncation=True, max_length=48)["input_ids"], "labels": int(s.rating > 0)}
            for s in sentences
        ]

    pool_rows = rows(drawn.pool)
    some = np.random.default_rng(seed).permutation(len(pool_rows))[:100]
    start = warm_up(model, [pool_rows[i] for i in some], steps=20, lr=1e-4, batch_size=16, seed=seed)
    return Scene(
        start.model, start.optimizer, pool_rows, rows(drawn.target), rows(drawn.test),
        JVPEmbedding(num_blocks=3, num_tangents=2), landmarks, k=len(pool_rows) // 10, steps=20,
        lr=dict(RATES["encoder"]), seed=seed, settings=dict(SAMPLED),
    )  # fmt: skip


@cache
def _smollm2() -> tuple[Any, Any]:
    return smollm2.load()


def smollm2_scene(
    seed: int, *, pool: int = 40, landmarks: int = 20, test: int = 32, split: str = "rest", data: Path | None = None
) -> Scene:
    """Tweets for SmolLM2-135M; the feed-forward outputs of its last six blocks are trained."""
    drawn = domains.draw(seed, split=split, pool=pool, test=test, data=data)
    model, tokenizer = _smollm2()
    model.requires_grad_(False)
    for name, p in model.named_parameters():
        p.requires_grad_(name.endswith("down_proj.weight") and any(f"layers.{i}." in name for i in range(24, 30)))

    def rows(sentences: Any) -> models.Rows:
        return [{"input_ids": tokenizer(s.text, truncation=True, max_length=48)["input_ids"]} for s in sentences]

    pool_rows = rows(drawn.pool)
    some = np.random.default_rng(seed).permutation(len(pool_rows))[:32]
    start = warm_up(model, [pool_rows[i] for i in some], steps=4, lr=1e-4, batch_size=8, seed=seed)
    return Scene(
        start.model, start.optimizer, pool_rows, rows(drawn.target[:8]), rows(drawn.test),
        JVPEmbedding(num_blocks=4, num_tangents=2), landmarks, k=len(pool_rows) // 8, steps=6,
        lr=dict(RATES["smollm2"]), seed=seed, settings={**SAMPLED, "batch_size": 8},
    )  # fmt: skip
