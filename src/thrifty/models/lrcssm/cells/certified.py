"""A bound on every state and on every Jacobian of the LRC cell, and what must be reduced so that it holds.

arXiv 2505.21717 proves stability for Jacobians whose entries are at most ρ, but takes them as independent of the state,
and its code enforces nothing. Here the bound is enforced. With S_i = σ(g_i − Σ_j relu(−W_ij) − relu(−w_i)), the least
value of σ(f_i) over all inputs and states:

- a step makes x⁺ a convex combination of x and e·tanh(z)/σ(f), so that |x_i| never leaves max(|x_0,i|, X_i) with
  X_i = |e_i|/S_i;
- every term of the Jacobian beside 1 − E·σ(f), divided by E·σ(f), is at most its term in
      c_i = |a_i| (X_i |w_i| (1 − S_i)/4 + |e_i k_i|/(4 S_i)) + |α_i| (X_i + |e_i|/S_i).

Dividing a_i and α_i by max(1, c_i) therefore puts the Jacobian into [1 − 2dt, 1], and multiplying the new state by ρ
into [ρ(1 − 2dt), ρ], at every state within X and for every input. The symmetric elastance with κ > 0 obeys the same c.
The bound is conservative: S_i is a worst case over all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from thrifty.models.lrcssm.cells.lrc import LRCCell


@dataclass(frozen=True)
class Bound:
    """What holds for every input.

    Args:
        least: S, the least conductance σ(f) of each channel.
        state: X, the bound on each channel's absolute state, if it begins within.
        excess: c, by which a and α are too large to certify a Jacobian within [1 − 2dt, 1]; at most 1: they are not.
    """

    least: Float[Tensor, " D"]
    state: Float[Tensor, " D"]
    excess: Float[Tensor, " D"]


def bound(cell: LRCCell) -> Bound:
    """Return a cell's bound, differentiable almost everywhere by its parameters.

    Raises:
        ValueError: The cell is one to which no bound applies.
    """
    if not cell.saturating or cell.state_dtype.is_complex:
        raise ValueError(f"cell: expected a saturating real LRC cell, got {type(cell).__name__}; it has no bound")
    if cell.elastance == "symmetric" and cell.elastance_sign == "free":
        raise ValueError("cell: with elastance_sign='free' the elastance may be negative; it has no bound")
    zero = torch.zeros_like(cell.e)
    w, k, a, alpha = (getattr(cell, name, zero) for name in ("w", "k", "a", "alpha"))
    lowest = cell.g - functional.relu(-w)
    if cell.input_synapse == "post":
        lowest = lowest - functional.relu(-cell.W).sum(dim=1)
    else:
        lowest = lowest - functional.relu(-cell.g_u)
    # Below, σ is so small that the state hardly moves, whatever the other terms are; 1/σ must stay finite.
    lowest = lowest.clamp(min=-60.0)
    inverse = 1 + torch.exp(-lowest)
    state = cell.e.abs() * inverse
    rest = torch.sigmoid(-lowest)  # 1 − S
    of_a = 0.25 * (state * w.abs() * rest + (cell.e * k).abs() * inverse)
    excess = a.abs() * of_a + alpha.abs() * 2 * state
    return Bound(torch.sigmoid(lowest), state, excess)
