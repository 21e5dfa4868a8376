"""That the loss is the one it says: gradients against the closed form and against open_clip's, at any scale."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.amorlip.contrastive import amortized_clip_loss
from thrifty.training.amorlip.evidence.contenders import CLIP, OURS, contender
from thrifty.training.amorlip.partition import Coefficients, batch_log_partition


def show(ctx: Context, evidence: Evidence) -> None:
    """Measure the largest relative error of a gradient in float64, over scales up to 100 and weights of the pair."""
    worst: dict[str, list[float]] = {}
    for seed in ctx.seeds(quick=3, full=8):
        for scale in (5.0, 14.3, 100.0):
            leaves = _leaves(seed, 96, 24, scale)
            for kappa in (1.0, 0.01):
                Z = batch_log_partition(*leaves, coefficients=Coefficients(kappa), chunk_size=17)
                ours = _gradients(amortized_clip_loss(*leaves, Z.image, Z.text, pos_coef=kappa, chunk_size=17), leaves)
                worst.setdefault("closed form", []).append(_off(ours, _closed_form(leaves, kappa)))
                if kappa == 1.0:
                    loss = contender(CLIP).make(0, 0, 0)
                    theirs = [2 * slope for slope in _gradients(loss(*leaves), leaves)]
                    worst.setdefault(CLIP, []).append(_off(ours, theirs))
    for name, errors in worst.items():
        evidence.row(OURS, {"gradient error": Measurement.of(errors, "relative")}, workload=f"float64, against {name}")
    largest = max(max(errors) for errors in worst.values())
    evidence.measured("gradients-exact", Measurement.of(largest, "relative"))


def _leaves(seed: int, batch: int, dim: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u, v = (
        functional.normalize(torch.randn(batch, dim, generator=generator, dtype=torch.float64), dim=1) for _ in "uv"
    )
    near = functional.normalize(v + u, dim=1)  # pairs that have something in common
    return u.requires_grad_(), near.requires_grad_(), torch.tensor(scale, dtype=torch.float64, requires_grad=True)


@torch.no_grad()
def _closed_form(leaves: tuple[Tensor, Tensor, Tensor], kappa: float) -> list[Tensor]:
    """dL/du, dL/dv and dL/ds with all logits at once: softmax of rows plus softmax of columns, less twice the pairs."""
    u, v, s = leaves
    A = s * u @ v.mT
    A.diagonal().add_(math.log(kappa))
    G = (A.softmax(1) + A.softmax(0) - 2 * torch.eye(len(u), dtype=u.dtype)) / len(u)
    return [s * G @ v, s * G.mT @ u, (G * (u @ v.mT)).sum()]


def _gradients(value: Tensor, leaves: tuple[Tensor, ...]) -> list[Tensor]:
    return list(torch.autograd.grad(value, leaves))


def _off(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference over the largest entry, of the gradients of both features (and of s, by its own size)."""
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-3)) for a, b in zip(ours, theirs, strict=True))
