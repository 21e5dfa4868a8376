"""The damped Newton step: a Kalman smoother's filter in place of the bare affine recurrence.

Each channel is a linear-Gaussian chain x_t = J_t x_{t−1} + c_t + noise of variance 1, observed as the previous iterate
y_t with noise of variance σ². The filtered means are the next iterate: a small σ² keeps it near the last one, σ² → ∞
gives Newton's step, and the fixed point is the same for every σ². Elements and their composition follow Särkkä and
García-Fernández, "Temporal Parallelization of Bayesian Smoothers" (2020); the use for recurrences follows Gonzalez et
al., "Towards Scalable and Stable Parallelization of Nonlinear RNNs" (2024), quasi-ELK.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.models.lrcssm.scans.tree import Elements, associative_scan


def filtered_means(
    J: Float[Tensor, "n T d"],
    c: Float[Tensor, "n T d"],
    y: Float[Tensor, "n T d"],
    x0: Float[Tensor, "n d"],
    sigma2: float,
) -> Float[Tensor, "n T d"]:
    """Return the means of the Kalman filter of every channel.

    Args:
        J: Factors of the linearised recurrence.
        c: Its offsets.
        y: The previous iterate, taken as observations.
        x0: The state before the first step, known exactly.
        sigma2: Variance of an observation.
    """
    return associative_scan(combine, elements(J, c, y, x0, sigma2))[1]


def elements(J: Tensor, c: Tensor, y: Tensor, x0: Tensor, sigma2: float) -> Elements:
    """Return (A, b, C, η, J) of every step; the first conditions on x₀."""
    K = 1 / (1 + sigma2)
    gap = y - c
    A, b, C = (1 - K) * J, c + K * gap, torch.full_like(J, 1 - K)
    eta, information = J * K * gap, J * J * K
    mean = J[:, :1] * x0.unsqueeze(1) + c[:, :1]
    start = (torch.zeros_like(mean), mean + K * (y[:, :1] - mean), C[:, :1], torch.zeros_like(mean))
    first = (*start, torch.zeros_like(mean))
    return tuple(torch.cat((f, r[:, 1:]), dim=1) for f, r in zip(first, (A, b, C, eta, information), strict=True))


def combine(first: Elements, then: Elements) -> Elements:
    """Compose two elements, the earlier one first."""
    A1, b1, C1, eta1, J1 = first
    A2, b2, C2, eta2, J2 = then
    share = 1 / (1 + C1 * J2)
    A = A2 * A1 * share
    b = A2 * (b1 + C1 * eta2) * share + b2
    C = A2 * A2 * C1 * share + C2
    eta = eta1 + A1 * (eta2 - J2 * b1) * share
    return A, b, C, eta, J1 + A1 * A1 * J2 * share
