"""The second order on landmarks: influence p, and the core of the quadratic term ηQ, from Hessian products.

Each landmark's step m = a ⊙ g is multiplied by H_T, one at a time; what is kept of m and of H_T m is their projection,
so that neither gradients nor Q are ever held whole. With C the map that spreads landmark values over the pool,
ηQ ≈ C (η/n) (M H_T Mᵀ) Cᵀ (arXiv 2505.19051; the spreading is that of the first-order scores).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from thrifty.data.influence.curvature import TargetHessian
from thrifty.data.influence.examples import Examples
from thrifty.data.influence.gradients import ExampleGradients, iterate_gradients
from thrifty.data.influence.rows import ModelRows
from thrifty.data.influence.sharding import by_index


def landmark_terms(
    source: ModelRows, pool: Examples, target: Examples, landmarks: Int[np.ndarray, " l"]
) -> tuple[Float[Tensor, "l 1"], Float[Tensor, "l l"]]:
    """Return p of the landmarks, and (η/n) M H_T Mᵀ between them.

    Gradients are not normalised here: the expansion is one of the loss itself.

    Args:
        source: The model, its optimizer's next step, and how rows are computed.
        pool: The pool.
        target: The target examples.
        landmarks: Pool examples that get a gradient and a Hessian product.

    Source:
        arXiv 2505.19051, the expansion for Adam.
    """
    features, config, lr = source.features, source.config, source.coefficients.lr
    hessian = TargetHessian(
        source.model, source.parameters, source.loss_fn, target, kind=config.hessian, batch_size=config.batch_size
    )
    aim = _mean_gradient(source.gradients, target, config.batch_size)
    b = source.coefficients.flat("b", source.parameters)
    if bool((b != 0).any()):
        aim = aim - lr * hessian(b[None])[0]
    aim = features.projection(features.masked(aim[None]))[0].cpu()

    def whole(rows: Tensor) -> Tensor:
        """Put rows on the kept coordinates back among all of them."""
        if features.kept is None:
            return rows
        out = rows.new_zeros(len(rows), len(b))
        out[:, features.kept] = rows
        return out

    def compute(piece: np.ndarray) -> Tensor:
        def both(raw: Tensor) -> Tensor:
            step = features.scaled(raw)
            curved = features.masked(hessian(whole(step)))
            return torch.cat([features.projection(step), features.projection(curved)], dim=1)

        batches = iterate_gradients(source.gradients, pool, piece, config.batch_size)
        return by_index(piece, ((chosen, both(raw)) for chosen, raw in batches))

    steps, curved = source.curved(pool, landmarks, target, compute).chunk(2, dim=1)
    core = curved.double() @ steps.double().T
    return (steps @ aim)[:, None], lr * (core + core.T) / 2 / len(pool.valid)


def _mean_gradient(gradients: ExampleGradients, target: Examples, batch_size: int) -> Float[Tensor, " d"]:
    total: Tensor | None = None
    for _, raw in iterate_gradients(gradients, target, target.valid, batch_size):
        total = raw.sum(0) if total is None else total + raw.sum(0)
    assert total is not None
    return total / len(target.valid)
