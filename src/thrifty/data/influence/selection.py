"""From scores to a choice of k examples with weights and a report."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import numpy as np
import torch

from thrifty.data.influence.picking import by_group, keep_first, round_robin
from thrifty.data.influence.results import ScoreResult, SelectionResult
from thrifty.data.influence.weights import joined, sparse_simplex_weights


def sum_checkpoints(results: Sequence[ScoreResult]) -> ScoreResult:
    """Add up the scores of several checkpoints, each by its learning rate's share: f = Σ_c η_c f_c, up to a factor.

    Args:
        results: Scores of the same pool and targets under models (and optimizers) of several moments of training.

    Returns:
        Scores to choose from; the report is the worst of the checkpoints'.

    Raises:
        ValueError: There is none, or they are of different pools, targets or orders.

    Example:
        >>> from thrifty.data.influence.regression import FitReport
        >>> exact = FitReport(1.0, 1.0, 2, "exact")
        >>> early = ScoreResult(torch.tensor([[0.0], [1.0]]), np.arange(2), exact, lr=3e-5)
        >>> late = ScoreResult(torch.tensor([[1.0], [0.0]]), np.arange(2), exact, lr=1e-5)
        >>> sum_checkpoints([early, late]).scores
        tensor([[0.2500],
                [0.7500]])

    Source:
        arXiv 2505.19051, the sum over checkpoints.
    """
    if not results:
        raise ValueError("results: expected at least one checkpoint, got none")
    if len({(tuple(r.scores.shape), r.quadratic is None) for r in results}) > 1:
        raise ValueError("results: expected the same pool, targets and order at every checkpoint")
    if not (total := sum(r.lr for r in results)) > 0:
        raise ValueError("results: expected learning rates above 0, got none")
    quadratic = None
    if results[0].quadratic is not None:
        quadratic = joined([r.quadratic.scaled(r.lr / total) for r in results if r.quadratic is not None])
    return replace(
        min(results, key=lambda r: r.report.correlation),
        scores=sum((r.lr / total * r.scores for r in results[1:]), results[0].lr / total * results[0].scores),
        regression=None,
        backward_passes=sum(r.backward_passes for r in results),
        lr=total,
        quadratic=quadratic,
    )


def choose(
    scored: ScoreResult,
    k: int,
    *,
    aggregate: Literal["round_robin", "mean"] = "round_robin",
    groups: Sequence[Hashable] | None = None,
    keys: Sequence[Hashable] | None = None,
    seed: int | None = 0,
    method: str = "influence",
) -> SelectionResult:
    """Choose ``k`` examples from scores.

    Args:
        scored: Scores and where they come from.
        k: How many.
        aggregate: ``"round_robin"`` or ``"mean"``.
        groups: One id a target: averaged inside, rounds between.
        keys: Examples with equal keys are the same; the first one may be chosen. ``None``: all may.
        seed: Of the order of the targets in a round; ``None`` keeps their own.
        method: What the result calls itself.

    Returns:
        The choice. Its weights solve the first-order problem among the chosen ones (second order: the whole problem).

    Raises:
        ValueError: ``k`` does not fit, or ``aggregate`` is unknown.

    Example:
        >>> from thrifty.data.influence.regression import FitReport
        >>> scores = torch.tensor([[0.1, 0.9], [0.8, 0.7], [0.3, 0.2]])
        >>> choose(ScoreResult(scores, np.arange(3), FitReport(1.0, 1.0, 3, "exact")), 2, aggregate="mean").indices
        array([1, 0])

    Source:
        arXiv 2505.19051: rounds over the targets, or the weights of the robust problem.
    """
    if aggregate not in {"round_robin", "mean"}:
        raise ValueError(f'aggregate: expected "round_robin" or "mean", got {aggregate!r}')
    scores = scored.scores
    repeated = 0
    if keys is not None:
        fresh = keep_first(keys)
        repeated = int((~fresh).sum())
        scores = scores.clone()
        scores[torch.from_numpy(~fresh)] = -torch.inf
    usable = int(torch.isfinite(scores[:, 0]).sum())
    if not 1 <= k <= usable:
        raise ValueError(
            f"k: expected 1 to {usable}, got {k}: of {len(scores)} examples {len(scored.excluded)} have no label token"
            + (f" and {repeated} repeat another" if repeated else "")
        )
    if groups is not None:
        scores, _ = by_group(scores, groups)
    mean = scores.mean(1)
    report: dict[str, Any] = {
        "propagation": {**asdict(scored.report), "verdict": scored.report.verdict},
        "backward_passes": scored.backward_passes,
        "landmarks": len(scored.landmark_indices),
        "excluded": len(scored.excluded),
        "repeated": repeated,
        "aggregate": aggregate if groups is None else "groups",
        "order": 1 if scored.quadratic is None else 2,
    }
    if aggregate == "mean" and groups is None:
        solved = sparse_simplex_weights(mean, k, scored.quadratic)
        indices = solved.indices.numpy()
        weights = solved.w[solved.indices].numpy()
        report |= {"lambda": solved.lam, "tied": solved.tied, "lambda_raised": solved.raised, "cut": solved.cut}
        if solved.curvature is not None:
            report["curvature"] = list(solved.curvature)
    else:
        indices = round_robin(scores, k, seed=seed)
        own = sparse_simplex_weights(mean[torch.from_numpy(indices)], k)
        weights = own.w.numpy()
    return SelectionResult(
        indices=np.asarray(indices, dtype=np.int64),
        weights=np.asarray(weights * (k / weights.sum()), dtype=np.float32),
        scores=mean[torch.from_numpy(np.asarray(indices))].numpy().astype(np.float32),
        method=method,
        report=report,
    )
