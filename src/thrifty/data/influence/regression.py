"""Spreading landmark scores over the pool by kernel ridge regression on embeddings.

    RBF:     P̂ = K_{S,Λ} (K + damp · mean(diag K) I)⁻¹ P_Λ,   K = exp(−‖e_i − e_j‖² / 2σ²),  σ the median distance
    linear:  P̂ = E_S E_Λᵀ (E_Λ E_Λᵀ + damp · mean(diag) I)⁻¹ P_Λ          (the derivation in arXiv 2505.19051)

One Cholesky factor serves all targets. Distances are taken in float32 from centred embeddings and clamped at 0. How far
to trust the result is told by the landmarks themselves: the residuals of leaving one out are (K⁻¹P)_i / (K⁻¹)_ii.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

_log = logging.getLogger(__name__)

Kernel = Literal["rbf", "linear"]

#: Rows of the pool whose kernel against the landmarks is held at once.
ROWS = 4096

#: Landmarks among which the median distance is taken.
FOR_BANDWIDTH = 1000


@dataclass(frozen=True)
class FitReport:
    """Whether the propagated scores can be trusted.

    First-order choices depend on the order of scores alone, so that the verdict goes by the correlation: good from 0.5,
    fair from 0.3. An r2 below 0 says that levels are off, which matters for weights and at second order.

    Args:
        correlation: Mean over the targets of the correlation between true and predicted scores of left-out landmarks.
        r2: Mean over the targets of the share of variance explained, of left-out landmarks.
        examples: How many examples it was measured on.
        how: ``"leave-one-out"`` over the landmarks, or ``"held out"`` (extra examples with their own gradients).
    """

    correlation: float
    r2: float
    examples: int
    how: str

    @property
    def verdict(self) -> str:
        """One word and why: correlations below 0.3 rank little better than a coarse embedding."""
        if self.how == "exact":
            return "exact: every score comes from a gradient"
        if self.correlation >= 0.5:
            return f"good: left-out scores correlate by {self.correlation:.2f} with the true ones"
        if self.correlation >= 0.3:
            return f"fair: left-out scores correlate by {self.correlation:.2f}; more landmarks would help"
        return (
            f"poor: left-out scores correlate by {self.correlation:.2f} only; use more landmarks, blocks or tangents, "
            "or exact scores"
        )


@dataclass(frozen=True)
class KernelRidge:
    """Landmark scores, ready to be spread.

    Args:
        landmarks: Embeddings of the landmarks, centred.
        centre: What was subtracted.
        dual: K⁻¹ P_Λ.
        kernel: ``"rbf"`` or ``"linear"``.
        bandwidth: σ (1 for the linear kernel).
        damp: The damping that the factorisation took.
        leave_one_out: Predicted scores of each landmark from the others.
    """

    landmarks: Float[Tensor, "l e"]
    centre: Float[Tensor, " e"]
    dual: Float[Tensor, "l m"]
    kernel: Kernel
    bandwidth: float
    damp: float
    leave_one_out: Float[Tensor, "l m"]

    def predict(self, embeddings: Float[Tensor, "n e"]) -> Float[Tensor, "n m"]:
        """Return the propagated scores of any examples."""
        out = torch.empty(len(embeddings), self.dual.shape[1])
        for rows in _pieces(len(embeddings)):
            out[rows] = self.spread(embeddings[rows]) @ self.dual
        return out

    def spread(self, embeddings: Float[Tensor, "n e"]) -> Float[Tensor, "n l"]:
        """Return the kernel between examples and landmarks."""
        return _kernel(embeddings.float() - self.centre, self.landmarks, self.kernel, self.bandwidth)


def fit_kernel_ridge(
    embeddings: Float[Tensor, "l e"],
    scores: Float[Tensor, "l m"],
    *,
    kernel: Kernel = "rbf",
    damp: float = 1e-2,
    bandwidth: float | Literal["median"] = "median",
) -> KernelRidge:
    """Fit landmark scores on landmark embeddings.

    Args:
        embeddings: One row a landmark.
        scores: Exact scores, one column a target.
        kernel: ``"rbf"`` (the authors' code) or ``"linear"`` (the paper's derivation).
        damp: Ridge, in units of the kernel's mean diagonal; raised tenfold, with a warning, until K can be factored.
        bandwidth: σ, or the median pairwise distance of at most 1000 landmarks.

    Returns:
        What predicts scores from embeddings.

    Raises:
        ValueError: Lengths differ, embeddings are not finite, or all are equal, so that no distance tells them apart.

    Example:
        >>> E = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
        >>> fit = fit_kernel_ridge(E, torch.tensor([[1.0], [-1.0], [0.5], [2.0]]))
        >>> round(float(fit.predict(torch.tensor([[0.5, 0.5]]))), 4)
        0.0505

    Source:
        arXiv 2505.19051, section on landmarks.
    """
    if len(embeddings) != len(scores):
        raise ValueError(f"scores: expected one row a landmark ({len(embeddings)}), got {len(scores)}")
    embeddings, scores = embeddings.float(), scores.float()
    if not bool(torch.isfinite(embeddings).all()):
        raise ValueError("embeddings: expected finite numbers, got NaN or inf")
    centre = embeddings.mean(0) if kernel == "rbf" else torch.zeros(embeddings.shape[1])
    centred = embeddings - centre
    if kernel == "linear":
        sigma = 1.0
    else:
        sigma = _median_distance(centred[:FOR_BANDWIDTH]) if bandwidth == "median" else float(bandwidth)
        if sigma <= 0:
            raise ValueError(
                f"embeddings: the bandwidth is {sigma}: (half of) the landmarks have equal embeddings, so that nothing "
                "tells them apart; give a bandwidth, more blocks, or other landmarks"
            )
    K = _kernel(centred, centred, kernel, sigma).double()
    factor, damp = _factor(K, damp)
    dual = torch.cholesky_solve(scores.double(), factor)
    inverse = torch.cholesky_inverse(factor).diagonal()
    left_out = scores.double() - dual / inverse[:, None]
    return KernelRidge(centred, centre, dual.float(), kernel, sigma, damp, left_out.float())


def quality(truth: Float[Tensor, "n m"], predicted: Float[Tensor, "n m"], how: str) -> FitReport:
    """Compare predicted with true scores, target by target, and average over the targets."""
    truth, predicted = truth.double(), predicted.double()
    t, p = truth - truth.mean(0), predicted - predicted.mean(0)
    size = (t.square().sum(0) * p.square().sum(0)).sqrt()
    correlation = torch.where(size > 0, (t * p).sum(0) / size.clamp_min(1e-300), 0.0)
    variance = t.square().sum(0)
    r2 = torch.where(variance > 0, 1 - (truth - predicted).square().sum(0) / variance.clamp_min(1e-300), 0.0)
    return FitReport(float(correlation.mean()), float(r2.mean()), len(truth), how)


def _factor(K: Tensor, damp: float) -> tuple[Tensor, float]:
    size = float(K.diagonal().mean())
    for _ in range(20):
        damped = K + damp * size * torch.eye(len(K), dtype=K.dtype)
        factor, failed = torch.linalg.cholesky_ex(damped)
        if not int(failed):
            return factor, damp
        damp = 10 * damp or 1e-10
        _log.warning("the kernel of the landmarks could not be factored; damp was raised to %g", damp)
    raise ValueError(f"damp: the kernel of the landmarks cannot be factored even with damp = {damp:g}")


def _kernel(left: Tensor, right: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    if kernel == "linear":
        return left @ right.T
    return torch.exp(_squared_distances(left, right) / (-2 * sigma * sigma))


def _squared_distances(left: Tensor, right: Tensor) -> Tensor:
    squares = left.square().sum(1)[:, None] + right.square().sum(1)[None, :]
    return torch.addmm(squares, left, right.T, alpha=-2).clamp_min_(0)


def _median_distance(centred: Tensor) -> float:
    if len(centred) < 2:
        return 1.0  # one landmark: any bandwidth gives the same constant
    return float(torch.pdist(centred).median())


def _pieces(n: int) -> Iterator[slice]:
    for start in range(0, n, ROWS):
        yield slice(start, min(start + ROWS, n))
