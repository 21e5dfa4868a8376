"""Fitting the cost model to speed-ups alone: the paper's objective, ½ Σ (predicted − measured)² (Algorithm 1, line 13).

A speed-up does not change if all times are scaled, so the Jacobian has an exact null direction: the coefficients are
known up to a common factor. The problem is not convex; several starts are tried and the best is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from thrifty.inference.speculation.activation import Floats, expected_active_experts
from thrifty.inference.speculation.bounds import GROWTH, LAMBDA, Bounds
from thrifty.inference.speculation.model import TIMES
from thrifty.inference.speculation.roofline import scaled_roofline
from thrifty.inference.speculation.rows import Row

#: Evaluations that a starting point gets before the best of them goes on.
SCOUT = 40


@dataclass(frozen=True)
class Speedups:
    """The speed-ups in a set of rows, and what of the model does not depend on its coefficients."""

    batch: Floats
    gamma: Floats
    gained: Floats  # tokens a round
    measured: Floats
    verify: Floats  # tokens in a verification
    awake: tuple[Floats, Floats]  # in a plain step, in a verification
    seen: tuple[Floats, Floats]

    @classmethod
    def of(cls, rows: Sequence[Row], verify_width: str) -> Speedups:
        """Collect them.

        Raises:
            ValueError: A row lacks γ, σ or the speed-up; the message names row and field.
        """
        for number, row in enumerate(rows, start=1):
            for name in ("gamma", "sigma", "speedup"):
                if getattr(row, name) is None:
                    raise ValueError(f"row {number}: {name} is needed to fit speed-ups")
        batch = np.array([row.batch_size for row in rows], float)
        gamma = np.array([row.gamma for row in rows], float)
        sigma = np.array([row.sigma for row in rows], float)
        top_k = np.array([row.top_k for row in rows], float)
        verify = batch * np.array([row.width(verify_width) for row in rows], float)
        awake = tuple(expected_active_experts(t, rows[0].num_experts, top_k) for t in (batch, verify))
        seen = tuple(t * top_k / n for t, n in zip((batch, verify), awake, strict=True))
        measured = np.array([row.speedup for row in rows], float)
        return cls(batch, gamma, sigma * (gamma + 1), measured, verify, awake, seen)  # type: ignore[arg-type]

    def predict(self, x: Floats, max_ridge: float) -> Floats:
        """Return the speed-ups of coefficients in the order of ``TIMES``, λ and growth."""
        bias, dense, load, expert, draft_bias, draft, reject_bias, reject, share, growth = x
        ridge = share * max_ridge

        def forward(tokens: Floats, part: int) -> Floats:
            g, seen = scaled_roofline(tokens, ridge, growth), scaled_roofline(self.seen[part], ridge, growth)
            return np.asarray(bias + dense * g + load * self.awake[part] + expert * seen)

        drafting = self.gamma * (draft_bias + draft * scaled_roofline(self.batch, ridge, growth))
        rejecting = (self.gamma > 0) * (reject_bias + reject * self.batch)
        spent = drafting + forward(self.verify, 1) + rejecting
        return np.asarray(self.gained * forward(self.batch, 0) / spent)


def fit_speedups(
    data: Speedups,
    bounds: Bounds,
    max_ridge: float,
    *,
    starts: int,
    rng: np.random.Generator,
    near: Floats | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Fit the ten parameters.

    Args:
        data: What was measured.
        bounds: Limits of the eight coefficients; λ and growth have the paper's.
        max_ridge: FLOP/s ÷ bytes/s at 16-bit weights, in tokens.
        starts: Starting points.
        rng: Draws them.
        near: One starting point of the caller's own, in place of all others.

    Returns:
        The parameters in the order of ``TIMES``, λ and growth; the residuals; their Jacobian.
    """
    limits = [bounds[name] for name in TIMES] + [LAMBDA, GROWTH]
    low, high = np.array(limits, float).T
    high = np.maximum(high, low + 1e-12 * np.maximum(1.0, np.abs(low)))
    unit = max(low[0], 1e-3)  # a slope of this over the ridge doubles the bias at twice the ridge

    def start() -> Floats:
        inside = low + rng.uniform(0.05, 0.6, low.size) * np.where(np.isfinite(high), high - low, 0.0)
        slopes = rng.uniform(0.05, 2.0, low.size) * unit / max_ridge
        x = np.where(np.isfinite(high), inside, slopes)
        x[-1] = rng.uniform(1.005, 1.2)
        return np.asarray(x)

    def descend(x0: Floats, evaluations: int) -> Any:
        return least_squares(
            lambda x: data.predict(x, max_ridge) - data.measured, np.clip(x0, low, high),
            bounds=(low, high), x_scale="jac", max_nfev=evaluations,
        )  # fmt: skip

    tried = [descend(x0, SCOUT) for x0 in ([near] if near is not None else [start() for _ in range(starts)])]
    found = descend(min(tried, key=lambda one: one.cost).x, 300)
    return np.asarray(found.x), np.asarray(found.fun), np.asarray(found.jac)
