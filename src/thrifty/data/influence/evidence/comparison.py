"""One seed of one workload: all select from the same pool, fine-tune from the same start, and meet the same test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from thrifty.data.influence import (
    Checkpoint,
    InfluenceDistillation,
    JVPEmbedding,
    ScoreResult,
    SelectionResult,
    less_selection,
    mid_perplexity_selection,
    random_selection,
    rds_embeddings,
    rds_plus_selection,
)
from thrifty.data.influence.evidence import models
from thrifty.data.influence.regression import fit_kernel_ridge, quality
from thrifty.data.influence.selection import choose

OURS, EXACT, LESS = "Influence Distillation", "exact gradients", "LESS"
RDS, MIDDLE, RANDOM = "RDS+", "mid-perplexity", "random"
CONTENDERS = (EXACT, LESS, OURS, RDS, MIDDLE, RANDOM)


@dataclass(frozen=True)
class Scene:
    """A model at its warm start, with data.

    Args:
        model: Warmed up.
        optimizer: What warmed it up.
        pool: What may be selected.
        target: The task, a few examples.
        test: The task, held out.
        settings: Of :class:`InfluenceDistillation`, beside landmarks.
        embedding: Of the pool.
        landmarks: How many.
        k: How many are selected.
        steps: Of fine-tuning.
        lr: Of fine-tuning, by contender.
        seed: Of everything that is drawn.
    """

    model: nn.Module
    optimizer: Optimizer
    pool: models.Rows
    target: models.Rows
    test: models.Rows
    embedding: JVPEmbedding
    landmarks: int
    k: int
    steps: int
    lr: dict[str, float]
    seed: int
    settings: dict[str, Any] = field(default_factory=dict)

    def picker(self, landmarks: int) -> InfluenceDistillation:
        """Return a selector with so many landmarks (all examples: exact)."""
        return InfluenceDistillation(
            self.model, self.optimizer, num_landmarks=landmarks, embedding=self.embedding, seed=self.seed,
            **{"batch_size": 16} | self.settings,
        )  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """What selectors computed, before anybody chose.

    Args:
        exact: From all gradients.
        ours: From landmarks.
        embeddings: Of the pool, ours.
    """

    exact: ScoreResult | None
    ours: ScoreResult
    embeddings: torch.Tensor


def score(scene: Scene, *, exactly: bool = True) -> Scores:
    """Score the pool from landmarks and, unless there is no time for it, exactly."""
    picker = scene.picker(scene.landmarks)
    embeddings = picker.embed(scene.pool)
    exact = scene.picker(len(scene.pool)).score(scene.pool, scene.target) if exactly else None
    return Scores(exact, picker.score(scene.pool, scene.target, embeddings=embeddings), embeddings)


def selections(scene: Scene, scores: Scores) -> dict[str, SelectionResult]:
    """Return what each contender chooses; in quick mode those that it has no time for stay out."""
    every: dict[str, SelectionResult] = {}
    if scores.exact is not None:
        every[EXACT] = choose(scores.exact, scene.k, seed=scene.seed)
        every[LESS] = less_selection(
            [Checkpoint(scene.model, scene.optimizer)], scene.pool, scene.target, scene.k, params="mlp-out",
            batch_size=scene.settings.get("batch_size", 16), seed=scene.seed,
        )  # fmt: skip
        every[MIDDLE] = mid_perplexity_selection(scene.model, scene.pool, scene.k)
    return every | {
        OURS: choose(scores.ours, scene.k, seed=scene.seed),
        RDS: rds_plus_selection(scene.model, scene.pool, scene.target, scene.k),
        RANDOM: random_selection(scene.pool, scene.k, seed=scene.seed),
    }


def losses(
    scene: Scene, chosen: dict[str, SelectionResult], told: Callable[[str], object] = lambda name: None
) -> dict[str, float]:
    """Fine-tune on each selection, and return the test losses."""
    found = {}
    for name, result in chosen.items():
        told(name)
        found[name] = _tuned_loss(scene, result, scene.lr[name], weighted=False)
    return found


def weighted_loss(scene: Scene, result: SelectionResult) -> float:
    """Fine-tune on our selection with its weights."""
    return _tuned_loss(scene, result, scene.lr[OURS], weighted=True)


def passes(chosen: dict[str, SelectionResult]) -> dict[str, int]:
    """Return the backward passes of those that made any."""
    reports = {name: result.report for name, result in chosen.items()}
    return {name: report["backward_passes"] for name, report in reports.items() if "backward_passes" in report}


def overlap(one: SelectionResult, other: SelectionResult) -> float:
    """Return the share of examples that two selections have in common."""
    return len(set(one.indices.tolist()) & set(other.indices.tolist())) / len(one.indices)


def propagation(scene: Scene, scores: Scores) -> tuple[float, float]:
    """Return the correlation with exact scores, off the landmarks: ours, and the same regression's on RDS+ features."""
    at = torch.from_numpy(scores.ours.landmark_indices)
    rest = torch.from_numpy(np.setdiff1d(np.arange(len(scene.pool)), scores.ours.landmark_indices))
    exact = _exact(scores)
    truth = exact[rest]
    features = rds_embeddings(scene.model, scene.pool)
    theirs = fit_kernel_ridge(features[at], exact[at]).predict(features[rest])
    return quality(truth, scores.ours.scores[rest], "").correlation, quality(truth, theirs, "").correlation


def spread(scene: Scene, scores: Scores, count: int) -> tuple[torch.Tensor, float]:
    """Spread the exact scores of so many landmarks; return all, and their correlation with the exact ones off those."""
    exact, rng = _exact(scores), np.random.default_rng(scene.seed)
    at = np.sort(rng.choice(len(scene.pool), count, replace=False))
    rest = np.setdiff1d(np.arange(len(scene.pool)), at)
    found = fit_kernel_ridge(scores.embeddings[at], exact[at]).predict(scores.embeddings)
    return found, quality(exact[rest], found[rest], "").correlation


def rising(scene: Scene, scores: Scores, counts: tuple[int, ...]) -> list[float]:
    """Return the correlation for several numbers of landmarks."""
    return [spread(scene, scores, count)[1] for count in counts]


def loss_with(scene: Scene, scores: Scores, count: int) -> float:
    """Return the test loss of our choice with another number of landmarks."""
    chosen = choose(replace(scores.ours, scores=spread(scene, scores, count)[0]), scene.k, seed=scene.seed)
    return _tuned_loss(scene, chosen, scene.lr[OURS], weighted=False)


def _exact(scores: Scores) -> torch.Tensor:
    assert scores.exact is not None, "quick mode computes no exact scores"
    return scores.exact.scores


def _tuned_loss(scene: Scene, result: SelectionResult, lr: float, *, weighted: bool) -> float:
    tuned = models.finetune(
        scene.model, scene.pool, result, steps=scene.steps, lr=lr, seed=scene.seed, weighted=weighted
    )
    return models.test_loss(tuned, scene.test)
