"""Rivals that descend: Wachter's counterfactuals, T:Rex:I on top of them, and ROAR; all persons in one tensor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

Rows = Float[np.ndarray, "n d"]
Logit = Callable[[Tensor], Tensor]


def wachter(rows: Rows, logit: Logit, *, price: float = 0.05, lr: float = 0.05, steps: int = 500) -> Rows:
    """Descend BCE(logit, 1) + price · ‖Δ‖₂, until the logit is positive (Wachter, Mittelstadt, Russell 2017)."""
    origin = torch.as_tensor(rows)
    x = origin.clone().requires_grad_(True)
    adam = torch.optim.Adam([x], lr=lr)
    for _ in range(steps):
        adam.zero_grad()
        out = logit(x)
        active = (out <= 0).detach()
        if not bool(active.any()):
            break
        far = ((x - origin).square().sum(1) + 1e-12).sqrt()
        torch.autograd.backward(((softplus(-out) + price * far) * active).sum())
        before = x.detach().clone()
        adam.step()
        with torch.no_grad():
            x[~active] = before[~active]
    array: NDArray[np.float64] = x.detach().numpy()
    return array


def trex(
    rows: Rows, logit: Logit, tau: float, *, k: int = 1000, variance: float = 0.01, lr: float = 0.01, steps: int = 200,
    seed: int = 0,
) -> Rows:  # fmt: skip
    """T:Rex:I (Hamman et al., ICML 2023): from Wachter's answer, raise the local stability of the score.

    The measure is mean[m(xᵢ) − |m(x) − m(xᵢ)|] over ``k`` Gaussian neighbours xᵢ, m the probability of class 1; Adam
    climbs it until it is at least ``tau``.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.as_tensor(wachter(rows, logit)).requires_grad_(True)
    adam = torch.optim.Adam([x], lr=lr)
    for _ in range(steps):
        adam.zero_grad()
        noise = variance**0.5 * torch.randn((k, *x.shape), generator=generator, dtype=x.dtype)
        near = logit((x + noise).reshape(-1, x.shape[1])).sigmoid().reshape(k, -1)
        stability = (near - (logit(x).sigmoid() - near).abs()).mean(0)
        active = (stability < tau).detach()
        if not bool(active.any()):
            break
        torch.autograd.backward(-(stability * active).sum())
        before = x.detach().clone()
        adam.step()
        with torch.no_grad():
            x[~active] = before[~active]
    array: NDArray[np.float64] = x.detach().numpy()
    return array


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
    x = origin.clone().requires_grad_(True)
    adam = torch.optim.Adam([x], lr=lr, amsgrad=True)
    last = torch.full((len(rows),), float("inf"), dtype=torch.float64)
    active = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(steps):
        adam.zero_grad()
        worst = (x * weights).sum(1) + bias - delta * (x.abs().sum(1) + 1)
        loss = softplus(-worst) + price * (x - origin).abs().sum(1)
        active &= (last - loss.detach()).abs() >= least_change
        last = loss.detach()
        if not bool(active.any()):
            break
        torch.autograd.backward((loss * active).sum())
        before = x.detach().clone()
        adam.step()
        with torch.no_grad():
            x[~active] = before[~active]
    array: NDArray[np.float64] = x.detach().numpy()
    return array
