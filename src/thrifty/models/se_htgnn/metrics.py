"""What forecasts are judged by (arXiv 2510.18467, section 5.1): errors a snapshot, F1 and recall, AUC and AP."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray


def regression_metrics(
    predicted: Float[np.ndarray, "snapshot node"], observed: Float[np.ndarray, "snapshot node"]
) -> dict[str, float]:
    """Return ``mae`` and ``rmse``, each a mean over snapshots, and ``rmse_pooled`` over all.

    Args:
        predicted: Forecasts.
        observed: What came; NaN where nothing did.

    Raises:
        ValueError: Shapes differ, or nothing was observed.

    Example:
        >>> regression_metrics(np.array([[1.0, 2.0]]), np.array([[0.0, np.nan]]))["mae"]
        1.0

    Source:
        arXiv 2510.18467, section 5.1: per snapshot, then averaged.
    """
    if predicted.shape != observed.shape:
        raise ValueError(f"predicted: expected the shape of observed, {observed.shape}, got {predicted.shape}")
    known = np.isfinite(observed)
    if not known.any():
        raise ValueError("observed: expected at least one number, got none")
    error = np.where(known, predicted - np.where(known, observed, 0), 0.0)
    count = known.reshape(len(known), -1).sum(1)
    there = count > 0
    absolute = np.abs(error).reshape(len(known), -1).sum(1)[there] / count[there]
    squared = (error**2).reshape(len(known), -1).sum(1)[there] / count[there]
    pooled = float(np.sqrt((error**2).sum() / known.sum()))
    return {"mae": float(absolute.mean()), "rmse": float(np.sqrt(squared).mean()), "rmse_pooled": pooled}


def classification_metrics(predicted: Int[np.ndarray, " n"], observed: Int[np.ndarray, " n"]) -> dict[str, float]:
    """Return ``macro_f1``, ``macro_recall`` and ``accuracy``.

    Args:
        predicted: Classes.
        observed: The true ones.

    Example:
        >>> classification_metrics(np.array([0, 1, 1]), np.array([0, 1, 0]))["macro_recall"]
        0.75

    Source:
        arXiv 2510.18467, section 5.1.
    """
    from sklearn.metrics import f1_score, recall_score

    return {
        "macro_f1": float(f1_score(observed, predicted, average="macro", zero_division=0)),
        "macro_recall": float(recall_score(observed, predicted, average="macro", zero_division=0)),
        "accuracy": float(np.mean(np.asarray(predicted) == np.asarray(observed))),
    }


def link_metrics(scores: Float[np.ndarray, " n"], linked: NDArray) -> dict[str, float]:
    """Return ``auc`` and ``ap``; NaN, with a warning, where all pairs are linked, or none.

    Args:
        scores: One a pair.
        linked: Whether the pair was linked.

    Example:
        >>> link_metrics(np.array([2.0, 1.0, 0.0]), np.array([1, 1, 0]))
        {'auc': 1.0, 'ap': 1.0}

    Source:
        arXiv 2510.18467, section 5.1.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    if len(np.unique(linked)) < 2:
        warnings.warn("linked: only one kind of pair; AUC and AP are not defined", stacklevel=2)
        return {"auc": float("nan"), "ap": float("nan")}
    return {"auc": float(roc_auc_score(linked, scores)), "ap": float(average_precision_score(linked, scores))}
