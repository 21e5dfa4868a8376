"""Step sizes: those of the theorems, and practical ones, which carry no theorem but learn within a day.

Source: the paper's theorems for each feedback, with the rank in place of d where P is inverted; the practical multiples
are of the usual formulas, and were found by trials on Blotto games.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thrifty.solvers.games.actions.base import ActionSet


def full(actions: ActionSet, horizon: int, kind: str, *, optimistic: bool, players: int) -> float:
    """Return η for full information."""
    if optimistic:
        theory = 1 / (4 * actions.m * max(1, players - 1))
    else:
        theory = math.sqrt(8 * max(actions.log_size, 1e-12) / horizon) / actions.m
    return theory if kind == "theory" else 4 * theory


def semi_bandit(actions: ActionSet, horizon: int, kind: str) -> tuple[float, float]:
    """Return η and γ for semi-bandit feedback."""
    d, m = actions.d, actions.m
    if kind == "theory":
        return 1 / math.sqrt(d * horizon), m / math.sqrt(d * horizon)
    eta = 4 * math.sqrt(2 * max(actions.log_size, 1e-12) / (m * d * horizon))
    return eta, eta * m / 2


def bandit(actions: ActionSet, horizon: int, kind: str) -> tuple[float, float]:
    """Return η and γ for bandit feedback; warn where the horizon is too short for the theorem."""
    r, m = actions.rank, actions.m
    theory = r ** (2 / 3) * m ** (1 / 3) * horizon ** (-1 / 3)
    if kind == "theory":
        if horizon < 8 * r**2 * m:
            warnings.warn(
                f"horizon: the theorem needs at least 8 r² m = {8 * r**2 * m} rounds, got {horizon}; "
                f"gamma = {theory:.2f} is cut to 0.5",
                stacklevel=3,
            )
        gamma = min(0.5, theory)
        return gamma / (4 * r**2 * m), gamma
    eta = 8 * math.sqrt(max(actions.log_size, 1e-12) / (3 * r * horizon)) / m
    return eta, min(0.5, max(0.05, theory / 4))
