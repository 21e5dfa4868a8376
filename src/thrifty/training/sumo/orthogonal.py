"""The nearest matrix with orthonormal rows or columns: orth(M) = U Vᵀ for the thin SVD M = U Σ Vᵀ.

This is Block 2 of Algorithm 1 (arXiv 2505.24749). All exact methods return the same *partial isometry*: directions
whose singular value is rounding noise are dropped, so that orth(0) = 0 and a parameter without a gradient does not
move. A plain ``U @ Vh`` would be arbitrary there. ``ns5``, Muon's iteration, is kept for comparison: its error grows
with the condition number of M, which is what the paper removes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.checks import one_of
from thrifty.training.sumo.guards import check_matrix

#: Muon's quintic, tuned to grow small singular values fast; it ends near 1, not at 1.
MUON_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonalize(
    M: Float[Tensor, "*batch r n"], method: str = "auto", tol: float | None = None
) -> Float[Tensor, "*batch r n"]:
    """Return the orthogonal polar factor of M, zero on directions in which M is zero.

    Args:
        M: One matrix or a batch of them, any of tall, wide or square; computed in float32 if it has 16 bits.
        method: ``"gram64"`` (eigenvectors of M Mᵀ in float64: the quickest that is exact for a float32 M), ``"qr_svd"``
            (QR of the long side, then an r × r SVD), ``"auto"`` (the one of these two that is exact in M's dtype),
            ``"svd"``, ``"gram32"`` (the Gram matrix in float32: wrong beyond condition number 100) or ``"ns5"`` (five
            Newton-Schulz steps in bfloat16, as in Muon: inexact at any condition number).
        tol: Singular values up to ``tol`` times the largest count as zero; by default max(r, n) times the machine
            epsilon of the dtype that is computed in. ``ns5`` has no such test.

    Returns:
        O with ‖O‖² = rank(M), in the dtype of M (float32 if M has 16 bits).

    Raises:
        ValueError: The method is unknown, M is no matrix of finite numbers, or ``tol`` is not in [0, 1).
        TypeError: M is no tensor.

    Example:
        >>> import torch
        >>> orthogonalize(torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
        tensor([[1., 0., 0.],
                [0., 0., 0.]])

    Source:
        Algorithm 1, Block 2; the tolerance is ours (the paper is silent on rank-deficient moments).
    """
    one_of("method", method, METHODS)
    check_matrix("M", M)
    if tol is not None and not 0 <= tol < 1:
        raise ValueError(f"tol: expected a number in [0, 1), got {tol}")
    if M.dtype in (torch.float16, torch.bfloat16):
        M = M.float()
    if M.numel() == 0:
        return M.clone()
    if M.shape[-2] > M.shape[-1]:
        return orthogonalize(M.mT, method, tol).mT
    if tol is None:
        tol = default_tolerance(M)
    try:
        return METHODS[method](M, tol)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ValueError(f"M: expected finite numbers, got some that LAPACK cannot work with: {error}") from error


def default_tolerance(M: Tensor) -> float:
    """Singular values below this share of the largest are rounding noise in M's own dtype (the usual rank test)."""
    return max(M.shape[-2:]) * torch.finfo(M.dtype).eps


def inverse_root(S: Float[Tensor, "*batch r r"], tol: float, floor: float = 0.0) -> Float[Tensor, "*batch r r"]:
    """Return the pseudo-inverse square root of a Gram matrix S = M Mᵀ, so that ``inverse_root(S) @ M`` is orth(M).

    Args:
        S: Symmetric, positive semi-definite; float64 unless the condition number of M is below 100.
        tol: On the singular values of M, that is on the roots of the eigenvalues of S: a share of the largest.
        floor: Likewise, absolute.
    """
    values, vectors = torch.linalg.eigh(S)
    keep = (values > tol**2 * values[..., -1:].clamp_min(0)) & (values >= floor**2)
    roots = torch.where(keep, values.clamp_min(torch.finfo(S.dtype).tiny).rsqrt(), 0)
    root: Tensor = (vectors * roots.unsqueeze(-2)) @ vectors.mT
    return root


def newton_schulz(
    M: Float[Tensor, "*batch r n"],
    steps: int = 5,
    coefficients: tuple[float, float, float] = MUON_COEFFICIENTS,
    dtype: torch.dtype = torch.bfloat16,
) -> Float[Tensor, "*batch r n"]:
    """Iterate X ← aX + b(XXᵀ)X + c(XXᵀ)²X from M/‖M‖.

    Muon's coefficients end near an orthogonal matrix and never at one; the classical (1.5, −0.5, 0) converge, slowly
    at first: after i steps the error is at most √r (1 − 1/κ)^(2^i), κ the condition number of M Mᵀ (section 3 of the
    paper).
    """
    a, b, c = coefficients
    X = M.to(dtype)
    X = (X / X.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)).reshape(-1, *M.shape[-2:])
    for _ in range(steps):
        # Fused, as in torch.optim.Muon: in bfloat16 every rounding in between would show.
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return X.reshape(M.shape).to(M.dtype)


def relative_error(M: Float[Tensor, "*batch r n"], method: str = "ns5") -> Float[Tensor, "*batch"]:
    """Return ‖method(M) − orth(M)‖ / ‖orth(M)‖, with orth(M) by a float64 SVD."""
    # The reference keeps what M's own dtype can tell from zero.
    exact = orthogonalize(M.double(), "svd", tol=default_tolerance(M.float() if M.dtype.itemsize < 4 else M))
    error: Tensor = (orthogonalize(M, method).double() - exact).norm(dim=(-2, -1))
    relative: Tensor = error / exact.norm(dim=(-2, -1)).clamp_min(torch.finfo(torch.float64).tiny)
    return relative


def _unit(M: Tensor) -> Tensor:
    """Scale each matrix to largest entry 1: orth does not change, and tiny gradients cannot underflow."""
    largest = torch.linalg.vector_norm(M, torch.inf, dim=(-2, -1), keepdim=True)
    scaled: Tensor = M / largest.clamp_min(torch.finfo(M.dtype).tiny)
    return scaled


def _partial_isometry(M: Tensor, tol: float) -> Tensor:
    U, sigma, Vh = torch.linalg.svd(_unit(M), full_matrices=False)
    keep = (sigma > tol * sigma[..., :1]).to(M.dtype)
    isometry: Tensor = (U * keep.unsqueeze(-2)) @ Vh
    return isometry


def _qr_svd(M: Tensor, tol: float) -> Tensor:
    Q, R = torch.linalg.qr(_unit(M).mT)
    polar: Tensor = _partial_isometry(R.mT, tol) @ Q.mT
    return polar


def _gram(M: Tensor, tol: float, dtype: torch.dtype) -> Tensor:
    wide = M.to(dtype)
    if M.dtype == wide.dtype:  # squares of what float64 widens cannot underflow
        M = wide = _unit(M)
    # A root beyond 1/tiny would be infinite in the dtype of M: subnormal moments count as zero.
    return inverse_root(wide @ wide.mT, tol, torch.finfo(M.dtype).tiny).to(M.dtype) @ M


def _auto(M: Tensor, tol: float) -> Tensor:
    """The Gram matrix has the square of M's condition number: twice M's digits hold it, M's own do not."""
    return _gram(M, tol, torch.float64) if M.dtype == torch.float32 else _qr_svd(M, tol)


METHODS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "auto": _auto,
    "qr_svd": _qr_svd,
    "svd": _partial_isometry,
    "gram64": lambda M, tol: _gram(M, tol, torch.float64),
    "gram32": lambda M, tol: _gram(M, tol, M.dtype),
    "ns5": lambda M, tol: newton_schulz(_unit(M)),
}
