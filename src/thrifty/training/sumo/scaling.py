"""How long a step is: the factor on the orthogonalised part, and the limiter on its growth.

The paper's text scales by √max(m, n), its tables by a constant a rank, Algorithm 1 by neither (arXiv 2505.24749). Here
Q O becomes α·s(m, n)·Q O. Since ‖Q O‖ = √r, one entry of it is √(r/(mn)) in the root mean square, so with
``"sqrt_max"`` the good learning rate falls as 1/√r; ``"rank_rms"`` takes that out.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

ADJUSTMENTS = ("sqrt_max", "match_rms_adamw", "rank_rms", "original", "none")


def shape_scale(adjust_lr_fn: str, m: int, n: int, rank: int) -> float:
    """Return s(m, n) for a weight of m rows and n columns.

    Args:
        adjust_lr_fn: ``"sqrt_max"`` √max(m, n), the paper's; ``"match_rms_adamw"`` 0.2 √max(m, n), torch.optim.Muon's;
            ``"rank_rms"`` 0.2 √(mn/r), an update of root mean square 0.2 at every shape and rank, like AdamW's;
            ``"original"`` √max(1, m/n); ``"none"`` 1.
        m: Rows (output features).
        n: Columns (input features).
        rank: Of the update.

    Example:
        >>> shape_scale("rank_rms", 64, 16, 4)
        3.2
    """
    match adjust_lr_fn:
        case "sqrt_max":
            return math.sqrt(max(m, n))
        case "match_rms_adamw":
            return 0.2 * math.sqrt(max(m, n))
        case "rank_rms":
            return 0.2 * math.sqrt(m * n / rank)
        case "original":
            return math.sqrt(max(1.0, m / n))
        case "none":
            return 1.0
    raise ValueError(f"adjust_lr_fn: expected one of {', '.join(ADJUSTMENTS)}, got {adjust_lr_fn!r}")


def limit_growth(
    norm: Float[Tensor, ""], previous: Float[Tensor, ""], limit: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the factor that keeps a norm within ``limit`` times the one before, and the norm to remember.

    A remembered norm is never zero: one step of zero would else pin every later step to zero.

    Args:
        norm: Of this step, before limiting.
        previous: Of the step before, after limiting; 0 if there was none.
        limit: γ > 1.

    Source:
        Algorithm 1, Block 3. As printed it acts on O, whose norm √rank(M) is constant once M has full rank; it bites
        only while the rank of the moment grows. ``limit_target="update"`` is the useful reading.
    """
    ceiling = limit * previous
    factor = torch.where((previous > 0) & (norm > ceiling), ceiling / norm, torch.ones_like(norm))
    limited = factor * norm
    return factor, torch.where(limited > 0, limited, previous)
