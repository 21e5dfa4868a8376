"""The second order on landmarks: influence p, and the core of the quadratic term ηQ, from Hessian products.

Each landmark's step m = a ⊙ g is multiplied by H_T, one at a time; what is kept of m and of H_T m is their projection,
so that neither gradients nor Q are ever held whole. With C the map that spreads landmark values over the pool,
ηQ ≈ C (η/n) (M H_T Mᵀ) Cᵀ (arXiv 2505.19051; the spreading is that of the first-order scores).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from thrifty.data.influence.coefficients import StepCoefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.curvature import TargetHessian
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.features import GradientFeatures
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.losses import LossFn
from thrifty.data.influence.sharding import Shard, assemble, by_index
from thrifty.data.influence.stores import Progress, filled, pieces_of


@dataclass(frozen=True)
class SecondOrder:
    """What the second order is computed with.

    Args:
        model: The model.
        params: Name to parameter.
        coefficients: The optimizer's next step.
        features: Mask and projection.
        gradients: Gives gradient rows.
        loss_fn: One loss an example.
    """

    model: nn.Module
    params: Mapping[str, nn.Parameter]
    coefficients: StepCoefficients
    features: GradientFeatures
    gradients: ExampleGradients
    loss_fn: LossFn

    def whole(self, rows: Float[Tensor, "b kept"]) -> Float[Tensor, "b d"]:
        """Put rows on the kept coordinates back among all of them."""
        if self.features.kept is None:
            return rows
        out = rows.new_zeros(len(rows), sum(p.numel() for p in self.params.values()))
        out[:, self.features.kept] = rows
        return out


def landmark_terms(
    parts: SecondOrder,
    pool: Examples,
    target: Examples,
    rows: Int[np.ndarray, " l"],
    config: InfluenceConfig,
    shard: Shard,
    *,
    folder: Path | None = None,
    key: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[Float[Tensor, "l 1"], Float[Tensor, "l l"]]:
    """Return p of the landmarks, and (η/n) M H_T Mᵀ between them.

    Gradients are not normalised here: the expansion is one of the loss itself.
    """
    features, lr = parts.features, parts.coefficients.lr
    hessian = TargetHessian(
        parts.model, parts.params, parts.loss_fn, target, kind=config.hessian, batch_size=config.batch_size
    )
    aim = _mean_gradient(parts.gradients, target, config.batch_size)
    b = parts.coefficients.flat("b", parts.params)
    if bool((b != 0).any()):
        aim = aim - lr * hessian(b[None])[0]
    aim = features.projection(features.masked(aim[None]))[0].cpu()

    def compute(piece: np.ndarray) -> Tensor:
        def both(raw: Tensor) -> Tensor:
            step = features.scaled(raw)
            curved = features.masked(hessian(parts.whole(step)))
            return torch.cat([features.projection(step), features.projection(curved)], dim=1)

        batches = iterate_gradients(parts.gradients, pool, piece, config.batch_size)
        return by_index(piece, ((chosen, both(raw)) for chosen, raw in batches))

    found = filled(
        pieces_of(rows, pool.lengths), compute, what="second-order", shard=shard, folder=folder, key=key,
        progress=progress,
    )  # fmt: skip
    steps, curved = assemble(found, rows, len(pool), shard).chunk(2, dim=1)
    core = curved.double() @ steps.double().T
    return (steps @ aim)[:, None], lr * (core + core.T) / 2 / len(pool.valid)


def _mean_gradient(gradients: ExampleGradients, target: Examples, batch_size: int) -> Float[Tensor, " d"]:
    total: Tensor | None = None
    for _, raw in iterate_gradients(gradients, target, target.valid, batch_size):
        total = raw.sum(0) if total is None else total + raw.sum(0)
    assert total is not None
    return total / len(target.valid)
