"""The target loss after one weighted step, to second order (arXiv 2505.19051).

With weights w on n pool examples the step is θ' = θ − η (a ⊙ (1/n) Gᵀw + b), and the target loss changes by

    L(θ'; T) − L(θ_b; T) = (η/n) f(w) + O(η³),     f(w) = −pᵀw + (η/2) wᵀQw,
    p = (G ⊙ a)(g_T − η H_T b),     Q = (1/n) (G ⊙ a) H_T (G ⊙ a)ᵀ,

where θ_b is the step that would be taken with w = 0: θ itself for plain gradient descent (a = 1, b = 0). Only the
pool's side is scaled by a. The identity is exact where L(·; T) is quadratic.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

#: Multiplies a matrix of row vectors by the target loss's Hessian.
HessianRows = Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]]


def influence_vector(
    gradients: Float[Tensor, "n d"],
    target: Float[Tensor, " d"],
    *,
    a: Float[Tensor, " d"] | float = 1.0,
    curved_b: Float[Tensor, " d"] | None = None,
    lr: float = 1.0,
) -> Float[Tensor, " n"]:
    """Return p: how far each pool example, were it stepped on, lowers the target loss.

    Args:
        gradients: One row a pool example.
        target: Gradient of the mean target loss.
        a: What the optimizer multiplies a gradient by.
        curved_b: H_T b, the target gradient's change under the part of the step that no example decides; ``None`` for
            first order, or where b = 0.
        lr: η, used with ``curved_b`` alone.

    Returns:
        p, one number an example; larger is better.

    Example:
        >>> import torch
        >>> influence_vector(torch.eye(2), torch.tensor([1.0, -2.0]))
        tensor([ 1., -2.])

    Source:
        arXiv 2505.19051, the linear term of f.
    """
    moved = target if curved_b is None else target - lr * curved_b
    return (gradients * a) @ moved


def influence_matrix(
    gradients: Float[Tensor, "n d"], hessian: HessianRows, *, a: Float[Tensor, " d"] | float = 1.0
) -> Float[Tensor, "n n"]:
    """Return Q: how pool examples, stepped on together, spoil or spare each other's effect.

    Args:
        gradients: One row a pool example.
        hessian: Multiplies rows by H_T.
        a: What the optimizer multiplies a gradient by.

    Returns:
        Q, symmetric.

    Source:
        arXiv 2505.19051, the quadratic term of f.
    """
    scaled = gradients * a
    product = hessian(scaled) @ scaled.T / len(scaled)
    return (product + product.T) / 2


def predicted_change(
    w: Float[Tensor, " n"], p: Float[Tensor, " n"], Q: Float[Tensor, "n n"] | None, lr: float
) -> Tensor:
    """Return (η/n) f(w), the predicted change of the target loss under weights ``w``.

    Example:
        >>> import torch
        >>> predicted_change(torch.ones(2), torch.tensor([1.0, 3.0]), None, lr=0.5)
        tensor(-1.)
    """
    f = -(p @ w)
    if Q is not None:
        f = f + lr / 2 * (w @ (Q @ w))
    return lr / len(w) * f
