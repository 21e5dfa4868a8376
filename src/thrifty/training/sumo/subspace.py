"""The subspace in which the moment lives: an orthonormal basis of the range that carries most of the gradient.

This is Block 1 of Algorithm 1 (arXiv 2505.24749): the truncated randomised SVD of Halko, Martinsson and Tropp (2011),
and Block 1.1, the transport of the moment into the new basis. One implementation serves one process and many: where
the gradient is cut into shards, ``sum_rows`` and ``sum_columns`` add up what each rank has, and only thin matrices
travel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.checks import whole
from thrifty.training.sumo.guards import check_matrix

Sum = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Projector:
    """How the range is found.

    Args:
        kind: ``"randomized"`` or ``"exact"``.
        oversample: Columns sketched beyond the rank.
        power_iters: Products with G Gᵀ, each of which sharpens a slowly decaying spectrum.
    """

    kind: str = "randomized"
    oversample: int = 8
    power_iters: int = 2

    def sketch_size(self, m: int, n: int, rank: int) -> int:
        """Return how many columns are sketched; the full min(m, n) where a sketch would save nothing."""
        size = min(rank + self.oversample, m, n)
        return min(m, n) if self.kind == "exact" or 2 * size >= min(m, n) else size


def randomized_range(
    G: Float[Tensor, "*batch m n"],
    rank: int,
    *,
    oversample: int = 8,
    power_iters: int = 2,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch m r"]:
    """Return an orthonormal basis of the leading left singular subspace of G, leading direction first.

    Args:
        G: One matrix or a batch of them; computed in float32 if it has 16 bits.
        rank: How many directions; at most min(m, n) come back.
        oversample: Further columns of the random sketch, 8 by default.
        power_iters: Power iterations, 2 by default. A sketch of at least half of min(m, n) is replaced by an exact SVD.
        generator: On the CPU, where the sketch is drawn whatever the device of G; a fresh one seeded with 0 by default.

    Raises:
        ValueError: ``rank`` < 1, or ``oversample`` or ``power_iters`` < 0.

    Example:
        >>> import torch
        >>> G = torch.diag(torch.tensor([1.0, 5.0, 3.0]))
        >>> randomized_range(G, 2).abs().round()
        tensor([[0., 0.],
                [1., 0.],
                [0., 1.]])

    Source:
        Algorithm 1, Block 1; Halko, Martinsson and Tropp, algorithms 4.4 and 5.1, with the small SVD (truncating the
        columns of the sketch's QR instead is wrong: they are not ordered).
    """
    for name, value, least in (("rank", rank, 1), ("oversample", oversample, 0), ("power_iters", power_iters, 0)):
        whole(name, value, least=least)
    check_matrix("G", G)
    if not bool(G.isfinite().all()):
        raise ValueError("G: expected finite numbers, got NaN or Inf")
    m, n = G.shape[-2:]
    projector = Projector("randomized", oversample, power_iters)
    size = projector.sketch_size(m, n, min(rank, m, n))
    if size == min(m, n):
        return exact_range(G, rank)
    generator = generator or torch.Generator().manual_seed(0)
    return sketched_range(_wide(G), rank, gaussian(n, size, generator, G.device), power_iters)


def exact_range(G: Float[Tensor, "*batch m n"], rank: int) -> Float[Tensor, "*batch m r"]:
    """Return the leading left singular vectors of G by a full thin SVD."""
    G = _wide(G)
    G = G / largest(G)
    U: Tensor = torch.linalg.svd(G, full_matrices=False).U
    return U[..., :rank]


def gaussian(n: int, k: int, generator: torch.Generator, device: torch.device | str) -> Float[Tensor, "n k"]:
    """Draw a test matrix on the CPU, so that every device and every rank draws the same one."""
    return torch.randn(n, k, generator=generator).to(device)


def sketched_range(
    G: Float[Tensor, "*batch m n"],
    rank: int,
    omega: Float[Tensor, "n k"],
    power_iters: int,
    *,
    sum_rows: Sum | None = None,
    sum_columns: Sum | None = None,
    offset: int = 0,
) -> Float[Tensor, "*batch m r"]:
    """Return the leading left singular subspace of G from the sketch G Ω.

    Args:
        G: The gradient, or this rank's rows or columns of it; float32 or float64.
        rank: How many directions.
        omega: Test matrix; the rows that belong to this rank's columns.
        power_iters: Power iterations.
        sum_rows: If the rows of G are spread over ranks, adds up over them; else ``None``.
        sum_columns: Likewise for columns.
        offset: Where this rank's rows or columns begin among all.

    Returns:
        The basis; this rank's rows of it where the rows of G are spread.
    """
    over_rows, over_columns = sum_rows or _alone, sum_columns or _alone
    scale = largest(G)
    if sum_rows or sum_columns:
        scale = (sum_rows or over_columns)(scale)  # within the number of ranks of the largest: near enough to scale by
    G = G / scale
    Q = orthonormal(over_columns(G @ omega.to(G.dtype)), sum_rows, offset)
    for _ in range(power_iters):
        Z = orthonormal(over_rows(G.mT @ Q), sum_columns, offset)
        Q = orthonormal(over_columns(G @ Z), sum_rows, offset)
    B = over_rows(Q.mT @ G).double()
    # The left singular vectors of B by its Gram matrix: in float64 that costs no accuracy which float32 could show.
    vectors = torch.linalg.eigh(over_columns(B @ B.mT)).eigenvectors.flip(-1)
    basis: Tensor = Q @ vectors[..., :rank].to(Q.dtype)
    return basis


def orthonormal(
    X: Float[Tensor, "*batch m k"], sum_rows: Sum | None = None, offset: int = 0
) -> Float[Tensor, "*batch m k"]:
    """Return an orthonormal basis of the columns of X: Householder QR, or CholeskyQR2 where its rows are spread.

    Args:
        X: This rank's rows.
        sum_rows: Adds up over the ranks; ``None``: all rows are here.
        offset: Where they begin among all rows, so that ranks that need noise draw different noise.
    """
    if sum_rows is None:
        Q: Tensor = torch.linalg.qr(X).Q
        return Q
    Y, identity = X.double(), torch.eye(X.shape[-1], dtype=torch.float64, device=X.device)
    Y = Y / sum_rows(Y.square().sum((-2, -1), keepdim=True)).sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    factor, failed = torch.linalg.cholesky_ex(sum_rows(Y.mT @ Y) - 1e-13 * identity)
    passes = 2
    if failed.any():  # fewer directions than columns: fill up with noise that carries no energy
        noise = torch.randn(Y.shape, dtype=Y.dtype, generator=torch.Generator().manual_seed(mixed_seed(offset)))
        Y = Y + 1e-6 * noise.to(Y.device)
        # Shifted (Fukaya et al., 2020), since a square piece of noise may be ill-conditioned too; one pass more for it.
        factor, passes = torch.linalg.cholesky(sum_rows(Y.mT @ Y) + 1e-14 * identity), 3
    for left in reversed(range(passes)):
        Y = torch.linalg.solve_triangular(factor.mT, Y, upper=True, left=False)
        if left:
            factor = torch.linalg.cholesky(sum_rows(Y.mT @ Y))
    return Y.to(X.dtype)


def transport(M: Float[Tensor, "*batch r n"], R: Float[Tensor, "*batch s r"]) -> Float[Tensor, "*batch s n"]:
    """Carry the moment into the new basis: M ← R M with R = Q_newᵀ Q_old (Algorithm 1, Block 1.1)."""
    return R.to(M.dtype) @ M


def mixed_seed(*numbers: int) -> int:
    """Mix whole numbers into one seed, so that neighbouring (seed, parameter, refresh) draw unrelated sketches."""
    mask, state = (1 << 64) - 1, 0
    for number in numbers:
        # SplitMix64 (Steele, Lea and Flood, 2014), one round a number.
        state = (state + number + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state >> 1


def largest(G: Float[Tensor, "*batch m n"]) -> Float[Tensor, "*batch 1 1"]:
    """Return the largest absolute entry of each matrix, to divide by: never zero, also for an empty piece."""
    if not G.numel():
        return G.new_full((*G.shape[:-2], 1, 1), torch.finfo(G.dtype).tiny)
    return G.abs().amax(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(G.dtype).tiny)


def _alone(X: Tensor) -> Tensor:
    return X


def _wide(G: Tensor) -> Tensor:
    return G if G.dtype in (torch.float32, torch.float64) else G.float()
