"""What a moment looks like: the quantities of section 3 of arXiv 2505.24749, for one matrix.

The paper's case for the exact orthogonalisation is that moments become ill-conditioned (for reversible layers their
rank tends to one), where Newton-Schulz iterations are far from converged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.training.sumo.guards import check_matrix
from thrifty.training.sumo.orthogonal import default_tolerance, relative_error
from thrifty.training.sumo.sharded import all_reduce

if TYPE_CHECKING:
    from thrifty.training.sumo.matrix import Matrix


@dataclass(frozen=True)
class MomentReport:
    """One matrix in one step.

    Args:
        condition: κ(M) = σ₁/σ_r over the singular values that are no rounding noise.
        rank: How many those are.
        stable_rank: ‖M‖²/σ₁².
        beyond_rank_one: ‖M − P₁M‖²/‖M‖², which the paper's lemma says decays exponentially for reversible layers.
        captured: ‖Ĝ‖²/‖G‖², the share of the gradient's energy inside the subspace.
        newton_schulz_error: ‖NS5(M) − orth(M)‖/‖orth(M)‖ of Muon's five steps in bfloat16.

    Example:
        >>> import torch
        >>> report = describe_moment(torch.outer(torch.arange(1.0, 4.0), torch.ones(5)))
        >>> report.rank, round(report.stable_rank, 4), abs(report.beyond_rank_one) < 1e-9
        (1, 1.0, True)
    """

    condition: float
    rank: int
    stable_rank: float
    beyond_rank_one: float
    captured: float
    newton_schulz_error: float


def describe_moment(M: Float[Tensor, "r n"], captured: float = float("nan")) -> MomentReport:
    """Return the report on one moment.

    Args:
        M: The moment inside the subspace.
        captured: The share of the gradient's energy there, for the report.

    Raises:
        TypeError: M is no tensor.
        ValueError: It is no matrix of finite numbers.

    Example:
        >>> import torch
        >>> describe_moment(torch.diag(torch.tensor([4.0, 2.0]))).condition
        2.0

    Source:
        arXiv 2505.24749, section 3: the lemma on rank-one moments, and the error of Newton-Schulz against κ.
    """
    check_matrix("M", M)
    if M.ndim != 2 or not bool(M.isfinite().all()):
        raise ValueError(f"M: expected one matrix of finite numbers, got shape {tuple(M.shape)}")
    sigma = torch.linalg.svdvals(M.double())
    kept = sigma[sigma > default_tolerance(M.float()) * sigma[0]] if len(sigma) else sigma
    if not len(kept):
        return MomentReport(1.0, 0, 0.0, 0.0, captured, 0.0)
    energy = sigma.square().sum()
    return MomentReport(
        condition=(kept[0] / kept[-1]).item(),
        rank=len(kept),
        stable_rank=(energy / sigma[0].square()).item(),
        beyond_rank_one=(sigma[1:].square().sum() / energy).item(),
        captured=captured,
        newton_schulz_error=relative_error(M).item(),
    )


def report_on(matrix: Matrix, hat: Tensor, moment: Tensor) -> MomentReport:
    """Report on a matrix in a step: a fused one by its parts laid side by side, a spread one by this rank's piece."""
    G = matrix.gradient
    energies = torch.stack([torch.linalg.vector_norm(t, dtype=torch.float32).square() for t in (hat, G)])
    if matrix.shards:
        (total,) = all_reduce([energies], matrix.shards.group)
        # With spread rows Ĝ is whole on every rank already.
        energies = torch.stack([energies[0] if matrix.shards.axis == "rows" else total[0], total[1]])
    inside, whole = energies.tolist()
    if moment.ndim == 3:
        moment = torch.cat(moment.unbind(), dim=-1)
    return describe_moment(moment, captured=inside / whole if whole else 0.0)
