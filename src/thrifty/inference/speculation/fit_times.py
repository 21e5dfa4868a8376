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

#: Names of the coefficients of a forward pass and of a draft step, in the order of their designs' columns. The last of
#: each, what a token of context costs, is fitted where rows were measured behind contexts of several lengths.
FORWARD = ("bias", "dense_slope", "expert_load", "expert_slope", "kv_target")
DRAFT = ("draft_bias", "draft_slope", "kv_draft")
#: Points along each axis of the grid, first over everything, then between the neighbours of the best.
STEPS = 13


@dataclass(frozen=True)
class FittedTimes:
    """What a fit to times found.

    Args:
        coefficients: Of the model, with ``ridge`` and ``growth``.
        residuals: Relative errors.
        jacobian: Of the residuals, a column for each of ``names``.
        names: What was fitted together.
    """

    coefficients: dict[str, Any]
    residuals: Floats
    jacobian: Floats
    names: tuple[str, ...]


@dataclass(frozen=True)
class Times:
    """The times in a set of rows: passes of the target, steps of the draft, rejections."""

    tokens: Floats
    awake: Floats
    seen: Floats
    cached: Floats  # tokens in the caches of all requests
    target: Floats
    draft_batch: Floats
    draft_cached: Floats
    draft: Floats
    reject_batch: Floats
    reject: Floats
    contexts: bool  # whether rows differ in their context

    @classmethod
    def of(cls, rows: Sequence[Row], verify_width: str) -> Times:
        """Collect them; a plain step that several rows repeat counts once, with their mean.

        Raises:
            ValueError: Some rows say how long their context was, and others do not.
        """
        contexts = {row.context for row in rows}
        if None in contexts and len(contexts) > 1:
            missing = next(number for number, row in enumerate(rows, start=1) if row.context is None)
            raise ValueError(f"row {missing}: context: expected the tokens in a request's cache, as in other rows")
        plain: dict[tuple[float, int, float], list[float]] = {}
        for row in rows:
            if row.t_ar_ms is not None:
                plain.setdefault((row.batch_size, row.top_k, row.context or 0.0), []).append(row.t_ar_ms)
        passes = [(batch, k, batch * context, float(np.mean(ms))) for (batch, k, context), ms in plain.items()]
        passes += [
            (row.batch_size * row.width(verify_width), row.top_k, _cached(row), row.t_verify_ms)
            for row in rows
            if row.t_verify_ms is not None
        ]
        experts = rows[0].num_experts
        tokens, top_k, cached, target = (np.array(column, float) for column in zip(*passes, strict=True))
        awake = expected_active_experts(tokens, experts, top_k)
        drafts = [(row.batch_size, _cached(row), row.t_draft_ms) for row in rows if row.t_draft_ms is not None]
        rejects = [(row.batch_size, row.t_reject_ms) for row in rows if row.t_reject_ms is not None]
        draft_batch, draft_cached, draft = np.array(drafts, float).reshape(-1, 3).T
        reject_batch, reject = np.array(rejects, float).reshape(-1, 2).T
        return cls(
            tokens, awake, tokens * top_k / awake, cached, target, draft_batch, draft_cached, draft, reject_batch,
            reject, len(contexts) > 1,
        )  # fmt: skip

    @property
    def parts(self) -> list[tuple[tuple[str, ...], Floats]]:
        """The names of the coefficients and the measured times, of the target and, if there is one, of the draft."""
        end = None if self.contexts else -1
        parts: list[tuple[tuple[str, ...], Floats]] = [(FORWARD[:end], self.target), (DRAFT[:end], self.draft)]
        return parts if self.draft.size else parts[:1]

    def designs(self, ridge: float, growth: float) -> list[Floats]:
        """Return the columns of passes, 1, g(t), N, g(tK/N), Bc, and of draft steps, 1, g(B), Bc."""
        g, seen, small = (scaled_roofline(t, ridge, growth) for t in (self.tokens, self.seen, self.draft_batch))
        target = (np.ones_like(g), g, self.awake, seen, self.cached)
        draft = (np.ones_like(small), small, self.draft_cached)
        columns = zip((target, draft), self.parts, strict=False)
        return [np.column_stack(all_[: len(names)]) for all_, (names, _) in columns]


def fit_times(
    times: Times, bounds: Bounds, max_ridge: float | None, *, around: tuple[float, float] | None = None
) -> FittedTimes:
    """Fit every coefficient, the ridge and the growth.

    Args:
        times: What was measured.
        bounds: Limits of the coefficients.
        max_ridge: Largest ridge that the hardware allows, in tokens; ``None``: four times the most tokens measured.
        around: Ridge and growth to polish from, in place of the grid.
    """
    top = max_ridge or 4 * float(times.tokens.max())
    ridge, growth = around if around is not None else _grid(times, bounds, top)
    coefficients, _ = _solve(times, bounds, ridge, growth)
    names = [name for part, _ in times.parts for name in part]
    low = np.array([*(bounds[name][0] for name in names), min(1.0, top / 2), 1 + 1e-6])
    high = np.array([*(bounds[name][1] for name in names), top, 2.0])
    start = np.array([*(coefficients[name] for name in names), ridge, growth])
    scale = np.maximum(np.abs(start), 1e-9)

    def residuals(x: Floats) -> Floats:
        found = dict(zip(names, x[:-2] * scale[:-2], strict=True))
        return _residuals(times, found, x[-2] * scale[-2], x[-1] * scale[-1])

    inside = np.clip(start, low + 1e-12 * scale, np.where(np.isfinite(high), high, start))
    limits = low / scale, high / scale
    polished = least_squares(residuals, np.clip(inside / scale, *limits), bounds=limits, x_scale="jac")
    names += ["ridge", "growth"]
    found = dict.fromkeys((*FORWARD, *DRAFT), 0.0) | _reject(times, bounds)
    found |= zip(names, (float(value) for value in polished.x * scale), strict=True)
    return FittedTimes(found, np.asarray(polished.fun), np.asarray(polished.jac / scale), tuple(names))


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
    found: dict[str, float] = {}
    for design, (names, measured) in zip(times.designs(ridge, growth), times.parts, strict=True):
        found |= zip(names, _relative(design, measured, bounds, names), strict=True)
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
    parts = zip(times.designs(ridge, growth), times.parts, strict=True)
    return np.concatenate(
        [design @ [found[name] for name in names] / measured - 1 for design, (names, measured) in parts]
    )


def _reject(times: Times, bounds: Bounds) -> dict[str, float]:
    if not times.reject.size:
        return {"reject_bias": 0.0, "reject_slope": 0.0}
    names = ("reject_bias", "reject_slope")
    design = np.column_stack((np.ones_like(times.reject), times.reject_batch))
    solved = _relative(design, np.maximum(times.reject, 1e-9), bounds, names)
    return dict(zip(names, solved, strict=True))


def _cached(row: Row) -> float:
    """Return the tokens in the caches of all requests."""
    return row.batch_size * (row.context or 0.0)
