"""Reading gradients and writing weights without a second full-size matrix.

Block 4 of Algorithm 1 (arXiv 2505.24749), W ← (1 − ηλ)W − η c(G − Q Ĝ) − η α s Q O, is one matrix product and one
addition in place: W ← decay·W − (coefficient)·G + Q X. Weights of 16 bits are updated block by block in float32 and
then rounded, to nearest, at random without bias, or with the rounding error carried over (Kahan, 1965).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

#: Entries that are widened to float32 at once.
BLOCK = 1 << 22

ROUNDINGS = ("nearest", "stochastic", "kahan")


def project(Q: Float[Tensor, "*batch m r"], G: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch r n"]:
    """Return Ĝ = Qᵀ G in the dtype of Q; a 16-bit G is widened a block of rows at a time."""
    if G.dtype == Q.dtype:
        return Q.mT @ G
    total = Q.new_zeros(*Q.shape[:-2], Q.shape[-1], G.shape[-1])
    for rows in _blocks(G):
        total += Q[..., rows, :].mT @ G[..., rows, :].to(Q.dtype)
    return total


def apply_update(
    W: Float[Tensor, "*batch m n"],
    Q: Float[Tensor, "*batch m r"],
    X: Float[Tensor, "*batch r n"],
    *,
    decay: float | Tensor = 1.0,
    G: Float[Tensor, "*batch m n"] | None = None,
    coefficient: float | Tensor = 0.0,
    rounding: str = "nearest",
    compensation: Float[Tensor, "*batch m n"] | None = None,
    generator: torch.Generator | None = None,
) -> None:
    """Write W ← decay·W − coefficient·G + Q X in place.

    Args:
        W: The weight.
        Q: Basis.
        X: What is added in the basis.
        decay: 1 − ηλ.
        G: The gradient; ``None`` if nothing of it is added outside the basis.
        coefficient: A number, a tensor of one element, or one number a column.
        rounding: For weights of 16 bits: ``"nearest"``, ``"stochastic"`` or ``"kahan"``.
        compensation: What earlier Kahan steps could not write; updated.
        generator: For ``"stochastic"``.
    """
    if W.dtype == Q.dtype and (G is None or G.dtype == W.dtype):
        _multiply_add(W, Q, X, decay)
        if G is not None:
            _subtract(W, G, coefficient)
        return
    for rows in _blocks(W):
        piece = W[..., rows, :]
        new = piece.to(Q.dtype)
        _multiply_add(new, Q[..., rows, :], X, decay)
        if G is not None:
            _subtract(new, G[..., rows, :].to(Q.dtype), coefficient)
        store(piece, new, rounding, None if compensation is None else compensation[..., rows, :], generator)


def store(
    target: Tensor, value: Tensor, rounding: str, compensation: Tensor | None, generator: torch.Generator | None
) -> None:
    """Write ``value`` into a tensor of fewer bits.

    Args:
        target: Where to write.
        value: In float32.
        rounding: ``"nearest"``, ``"stochastic"`` (unbiased; bfloat16) or ``"kahan"``.
        compensation: For Kahan: what is still owed to ``target``; added before and updated after.
        generator: For ``"stochastic"``, on the device of ``value``.
    """
    if target.dtype == value.dtype:
        target.copy_(value)
    elif rounding == "stochastic":
        target.copy_(_to_bfloat16_at_random(value, generator))
    elif rounding == "kahan" and compensation is not None:
        value = value + compensation
        target.copy_(value)
        compensation.copy_(value - target)
    else:
        target.copy_(value)


def _multiply_add(W: Tensor, Q: Tensor, X: Tensor, decay: float | Tensor) -> None:
    if isinstance(decay, Tensor):
        W.mul_(decay)
        decay = 1.0
    if W.ndim == 2:
        W.addmm_(Q, X, beta=decay)
    else:
        W.baddbmm_(Q, X, beta=decay)


def _subtract(W: Tensor, G: Tensor, coefficient: float | Tensor) -> None:
    if isinstance(coefficient, Tensor):
        W.addcmul_(G, coefficient, value=-1)
    else:
        W.add_(G, alpha=-coefficient)


def _blocks(matrix: Tensor) -> list[slice]:
    m, others = matrix.shape[-2], matrix.numel() // max(1, matrix.shape[-2])
    height = max(1, BLOCK // max(1, others))
    return [slice(low, min(low + height, m)) for low in range(0, m, height)]


def _to_bfloat16_at_random(value: Tensor, generator: torch.Generator | None) -> Tensor:
    """Round up with the probability that makes the expectation exact: add 16 random bits, cut the low 16 off."""
    bits = value.float().contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, device=bits.device, generator=generator)
    rounded = ((bits + noise) & -65536).view(torch.float32)
    return torch.where(value.isfinite(), rounded, value.float()).to(torch.bfloat16)
