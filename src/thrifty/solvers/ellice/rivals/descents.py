"""Rivals that descend: Wachter's counterfactuals, T:Rex:I on top of them, and ROAR; all persons in one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

Rows = Float[np.ndarray, "n d"]
Logit = Callable[[Tensor], Tensor]


#: Of rows: the loss of each, and which of them still descend.
Objective = Callable[[Tensor], tuple[Tensor, Tensor]]


def _descend(x: Tensor, objective: Objective, steps: int, **adam: Any) -> Rows:
    """Take Adam's steps on every row by itself, each until it is no longer active."""
    x = x.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([x], **adam)
    for _ in range(steps):
        optimizer.zero_grad()
        loss, active = objective(x)
        if not bool(active.any()):
            break
        torch.autograd.backward((loss * active).sum())
        before = x.detach().clone()
        optimizer.step()
        with torch.no_grad():
            x[~active] = before[~active]
    array: NDArray[np.float64] = x.detach().numpy()
    return array


def wachter(rows: Rows, logit: Logit, *, price: float = 0.05, lr: float = 0.05, steps: int = 500) -> Rows:
    """Descend BCE(logit, 1) + price · ‖Δ‖₂, until the logit is positive (Wachter, Mittelstadt, Russell 2017)."""
    origin = torch.as_tensor(rows)

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        out = logit(x)
        far = ((x - origin).square().sum(1) + 1e-12).sqrt()
        return softplus(-out) + price * far, (out <= 0).detach()

    return _descend(origin, objective, steps, lr=lr)


def trex(
    rows: Rows, logit: Logit, tau: float, *, k: int = 1000, variance: float = 0.01, lr: float = 0.01, steps: int = 200,
    seed: int = 0,
) -> Rows:  # fmt: skip
    """T:Rex:I (Hamman et al., ICML 2023): from Wachter's answer, raise the local stability of the score.

    The measure is mean[m(xᵢ) − |m(x) − m(xᵢ)|] over ``k`` Gaussian neighbours xᵢ, m the probability of class 1; Adam
    climbs it until it is at least ``tau``.
    """
    generator = torch.Generator().manual_seed(seed)

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        noise = variance**0.5 * torch.randn((k, *x.shape), generator=generator, dtype=x.dtype)
        near = logit((x + noise).reshape(-1, x.shape[1])).sigmoid().reshape(k, -1)
        stability = (near - (logit(x).sigmoid() - near).abs()).mean(0)
        return -stability, (stability < tau).detach()

    return _descend(torch.as_tensor(wachter(rows, logit)), objective, steps, lr=lr)


def local_weights(rows: Rows, logit: Logit, *, k: int = 1000, variance: float = 0.01, seed: int = 0) -> Rows:
    """Fit a linear model to the logit around every row, as ROAR does where the model is not linear (LIME).

    Returns:
        Weights, then the bias, of each; ``[n, d + 1]``.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.as_tensor(rows)
    near = x + variance**0.5 * torch.randn((k, *x.shape), generator=generator, dtype=x.dtype)
    with torch.no_grad():
        scores = logit(near.reshape(-1, x.shape[1])).reshape(k, -1)
    moved = torch.cat([near, torch.ones_like(near[..., :1])], 2).transpose(0, 1)
    fitted: NDArray[np.float64] = torch.linalg.lstsq(moved, scores.T[..., None]).solution[..., 0].numpy()
    return fitted


def roar(
    rows: Rows, theta: Float[np.ndarray, "*n m"], delta: float, *, price: float = 0.01, lr: float = 0.01,
    least_change: float = 1e-3, steps: int = 2000,
) -> Rows:  # fmt: skip
    """ROAR (Upadhyay, Joshi, Lakkaraju, NeurIPS 2021): min over x, max over an ℓ∞ box of ±delta around the weights.

    Adam (amsgrad) on BCE(worst logit, 1) + price · ‖Δ‖₁, until the loss changes by less than ``least_change``. For a
    linear model the worst weights are known: each moves against the sign of its input. ``theta`` is one for all rows,
    or one for each (:func:`local_weights`).
    """
    origin = torch.as_tensor(rows)
    weights, bias = torch.as_tensor(theta[..., :-1]), torch.as_tensor(theta[..., -1])
    last = torch.full((len(rows),), float("inf"), dtype=torch.float64)
    active = torch.ones(len(rows), dtype=torch.bool)

    def objective(x: Tensor) -> tuple[Tensor, Tensor]:
        nonlocal last, active
        worst = (x * weights).sum(1) + bias - delta * (x.abs().sum(1) + 1)
        loss = softplus(-worst) + price * (x - origin).abs().sum(1)
        active = active & ((last - loss.detach()).abs() >= least_change)
        last = loss.detach()
        return loss, active

    return _descend(origin, objective, steps, lr=lr, amsgrad=True)
