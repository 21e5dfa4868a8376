"""Fitting the cost model to times: preferred wherever rows hold them, since times settle every coefficient.

Given ridge and growth the model is linear in its coefficients, so a grid over those two with a bounded linear least
squares inside finds the best without a starting point; a trust-region step then polishes all together. Errors are
relative, Σ (T̂/T − 1)².
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares, lsq_linear, nnls

from thrifty.inference.speculation.activation import Floats, expected_active_experts
from thrifty.inference.speculation.bounds import Bounds
from thrifty.inference.speculation.roofline import scaled_roofline
from thrifty.inference.speculation.rows import Row

#: Names of the coefficients of a forward pass, in the order of the design's columns.
FORWARD = ("bias", "dense_slope", "expert_load", "expert_slope")
#: Points along each axis of the grid, first over everything, then between the neighbours of the best.
STEPS = 13


@dataclass(frozen=True)
class Times:
    """The times in a set of rows: passes of the target, steps of the draft, rejections."""

    tokens: Floats
    awake: Floats
    seen: Floats
    target: Floats
    draft_batch: Floats
    draft: Floats
    reject_batch: Floats
    reject: Floats

    @classmethod
    def of(cls, rows: Sequence[Row], verify_width: str) -> Times:
        """Collect them; a plain step that several rows repeat counts once, with their mean."""
        plain: dict[tuple[float, int], list[float]] = {}
        for row in rows:
            if row.t_ar_ms is not None:
                plain.setdefault((row.batch_size, row.top_k), []).append(row.t_ar_ms)
        passes = [(batch, k, float(np.mean(times))) for (batch, k), times in plain.items()]
        passes += [
            (row.batch_size * row.width(verify_width), row.top_k, row.t_verify_ms)
            for row in rows
            if row.t_verify_ms is not None
        ]
        experts = rows[0].num_experts
        tokens, top_k, target = (np.array(column, float) for column in zip(*passes, strict=True))
        awake = expected_active_experts(tokens, experts, top_k)
        drafts = [(row.batch_size, row.t_draft_ms) for row in rows if row.t_draft_ms is not None]
        rejects = [(row.batch_size, row.t_reject_ms) for row in rows if row.t_reject_ms is not None]
        draft_batch, draft = np.array(drafts, float).reshape(-1, 2).T
        reject_batch, reject = np.array(rejects, float).reshape(-1, 2).T
        return cls(tokens, awake, tokens * top_k / awake, target, draft_batch, draft, reject_batch, reject)

    def design(self, ridge: float, growth: float) -> Floats:
        """Return the columns of a forward pass: 1, g(t), N, g(tK/N)."""
        g, seen = scaled_roofline(self.tokens, ridge, growth), scaled_roofline(self.seen, ridge, growth)
        return np.column_stack((np.ones_like(g), g, self.awake, seen))

    def draft_design(self, ridge: float, growth: float) -> Floats:
        """Return the columns of a draft step: 1, g(B)."""
        return np.column_stack((np.ones_like(self.draft), scaled_roofline(self.draft_batch, ridge, growth)))


def fit_times(
    times: Times, bounds: Bounds, max_ridge: float | None, *, around: tuple[float, float] | None = None
) -> tuple[dict[str, Any], Floats, Floats]:
    """Fit every coefficient, the ridge and the growth.

    Args:
        times: What was measured.
        bounds: Limits of the coefficients.
        max_ridge: Largest ridge that the hardware allows, in tokens; ``None``: four times the most tokens measured.
        around: Ridge and growth to polish from, in place of the grid.

    Returns:
        The coefficients with ``ridge`` and ``growth``, the relative residuals, and their Jacobian.
    """
    top = max_ridge or 4 * float(times.tokens.max())
    ridge, growth = around if around is not None else _grid(times, bounds, top)
    coefficients, _ = _solve(times, bounds, ridge, growth)
    names = [*FORWARD, *(("draft_bias", "draft_slope") if times.draft.size else ())]
    low = np.array([*(bounds[name][0] for name in names), min(1.0, top / 2), 1 + 1e-6])
    high = np.array([*(bounds[name][1] for name in names), top, 2.0])
    start = np.array([*(coefficients[name] for name in names), ridge, growth])
    scale = np.maximum(np.abs(start), 1e-9)

    def residuals(x: Floats) -> Floats:
        found = dict(zip(names, x[:-2] * scale[:-2], strict=True))
        return _residuals(times, found, x[-2] * scale[-2], x[-1] * scale[-1])

    inside = np.clip(start, low + 1e-12 * scale, np.where(np.isfinite(high), high, start))
    polished = least_squares(residuals, inside / scale, bounds=(low / scale, high / scale), x_scale="jac")
    x = polished.x * scale
    found: dict[str, Any] = dict(zip([*names, "ridge", "growth"], (float(value) for value in x), strict=True))
    found |= _reject(times, bounds)
    if not times.draft.size:
        found |= {"draft_bias": 0.0, "draft_slope": 0.0}
    return found, np.asarray(polished.fun), np.asarray(polished.jac / scale)


def _grid(times: Times, bounds: Bounds, top: float) -> tuple[float, float]:
    """Return the best ridge and growth on a grid, coarse and then fine."""
    ridges, excess = np.geomspace(min(4.0, top / 2), top, STEPS), np.geomspace(1e-3, 1, STEPS)
    for _ in range(2):
        costs = np.array([[_solve(times, bounds, r, 1 + e)[1] for e in excess] for r in ridges])
        i, j = divmod(int(np.argmin(costs)), STEPS)
        best = float(ridges[i]), float(1 + excess[j])
        ridges = np.geomspace(ridges[max(i - 1, 0)], ridges[min(i + 1, STEPS - 1)], STEPS)
        excess = np.geomspace(excess[max(j - 1, 0)], excess[min(j + 1, STEPS - 1)], STEPS)
    return best


def _solve(times: Times, bounds: Bounds, ridge: float, growth: float) -> tuple[dict[str, float], float]:
    """Solve for the coefficients at one ridge and growth; return them and the sum of squares."""
    found = dict(zip(FORWARD, _relative(times.design(ridge, growth), times.target, bounds, FORWARD), strict=True))
    if times.draft.size:
        names = ("draft_bias", "draft_slope")
        solved = _relative(times.draft_design(ridge, growth), times.draft, bounds, names)
        found |= dict(zip(names, solved, strict=True))
    return found, float(np.sum(_residuals(times, found, ridge, growth) ** 2))


def _relative(design: Floats, measured: Floats, bounds: Bounds, names: Sequence[str]) -> list[float]:
    """Solve min Σ ((design x) / measured − 1)² within bounds."""
    a, b = design / measured[:, None], np.ones_like(measured)
    low, high = (np.array([bounds[name][side] for name in names]) for side in (0, 1))
    # Far below a ridge growth underflows to a column of zeros, which says nothing of its coefficient.
    norms = np.linalg.norm(a, axis=0)
    seen = norms > np.finfo(float).tiny
    a = a[:, seen] / norms[seen]
    x = low.copy()
    x[seen] += nnls(a, b - a @ (low * norms)[seen])[0] / norms[seen]
    if np.any(x > high):
        limits = (low * norms)[seen], (np.maximum(high, low + 1e-12) * norms)[seen]
        x[seen] = lsq_linear(a, b, limits, method="bvls").x / norms[seen]
    return [float(value) for value in x]


def _residuals(times: Times, found: dict[str, float], ridge: float, growth: float) -> Floats:
    pairs: list[tuple[Floats, tuple[str, ...], Floats]] = [(times.design(ridge, growth), FORWARD, times.target)]
    if times.draft.size:
        pairs.append((times.draft_design(ridge, growth), ("draft_bias", "draft_slope"), times.draft))
    parts = [(design * [found[n] for n in names]).sum(1) / measured - 1 for design, names, measured in pairs]
    return np.concatenate(parts)


def _reject(times: Times, bounds: Bounds) -> dict[str, float]:
    if not times.reject.size:
        return {"reject_bias": 0.0, "reject_slope": 0.0}
    names = ("reject_bias", "reject_slope")
    design = np.column_stack((np.ones_like(times.reject), times.reject_batch))
    solved = _relative(design, np.maximum(times.reject, 1e-9), bounds, names)
    return dict(zip(names, solved, strict=True))
