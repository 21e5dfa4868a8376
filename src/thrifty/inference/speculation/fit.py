"""Fitting the cost model to measurements, and what a fit is worth: residuals, bounds that were met, bands, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from thrifty._common.checks import one_of
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import Floats
from thrifty.inference.speculation.bounds import Bounds, check_feasible, free_bounds, physical_bounds
from thrifty.inference.speculation.fit_speedups import Speedups, fit_speedups
from thrifty.inference.speculation.fit_times import FittedTimes, Times, fit_times
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import TIMES, SpeculationModel, VerifyWidth
from thrifty.inference.speculation.rows import Row
from thrifty.inference.speculation.shapes import MoEShape

Objective = Literal["auto", "time", "speedup"]


@dataclass(frozen=True)
class FitResult:
    """A fitted model and how far to trust it.

    Attributes:
        model: The cost model.
        objective: ``"time"`` (relative errors of times) or ``"speedup"`` (the paper's).
        rmse: Root mean squared residual, in the objective's unit.
        mse: Mean squared residual; the paper prints sums over its 228 rows.
        at_bound: Parameters that ended at a limit.
        covariance: Of the parameters named by ``parameters`` (pseudo-inverse: a null direction has no variance).
        parameters: Their names.
        condition: Ratio of the largest to the smallest singular value of the scaled Jacobian; infinite for speed-ups
            alone, which settle coefficients only up to a common factor.
        warnings: What the reader should know.

    Example:
        >>> true = SpeculationModel(1, 1, 20.0, 1.05, 2.0, 0.05, 0.0, 0.0, 0.4, 0.01, 0.05, 0.001)
        >>> rows = [Row(b, t_ar_ms=float(true.target_time(b))) for b in (1, 2, 4, 8, 16, 32, 64, 128)]
        >>> found = fit_speculation_model(rows, objective="time")
        >>> found.objective, found.rmse < 1e-3, found.warnings[-1]
        ('time', True, 'no draft step was timed: drafts cost nothing in this model')

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 4.3.
    """

    model: SpeculationModel
    objective: str
    rmse: float
    mse: float
    at_bound: tuple[str, ...]
    covariance: Floats
    parameters: tuple[str, ...]
    condition: float
    warnings: tuple[str, ...]
    _refit: _Refit = field(repr=False)

    def bands(
        self,
        batch: Sequence[float],
        gamma: int,
        acceptance: Acceptance,
        *,
        refits: int = 100,
        level: float = 0.9,
        rng: np.random.Generator | int = 0,
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper band of predicted speed-ups, by refitting to resampled rows.

        Args:
            batch: Batch sizes, n of them.
            gamma: Draft length.
            acceptance: How much of a draft survives.
            refits: Bootstrap samples.
            level: Share of them between the bands.
            rng: Draws the rows.

        Returns:
            Two arrays of shape (n,).
        """
        generator = np.random.default_rng(rng)
        found = [self._refit(generator).speedup(batch, gamma, acceptance) for _ in range(refits)]
        low, high = np.quantile(np.array(found), [(1 - level) / 2, (1 + level) / 2], axis=0)
        return np.asarray(low), np.asarray(high)


@dataclass(frozen=True)
class _Refit:
    """Fits once more to rows drawn with replacement, from where the first fit ended."""

    rows: tuple[Row, ...]
    objective: str
    bounds: Bounds
    max_ridge: float | None
    start: SpeculationModel

    def __call__(self, rng: np.random.Generator) -> SpeculationModel:
        chosen = [self.rows[i] for i in rng.integers(0, len(self.rows), len(self.rows))]
        if self.objective == "time":
            times = Times.of(chosen, self.start.verify_width)
            around = (self.start.ridge, self.start.growth)
            return replace(self.start, **fit_times(times, self.bounds, self.max_ridge, around=around).coefficients)
        assert self.max_ridge is not None
        start = self.start
        near = np.array([*(getattr(start, n) for n in TIMES), start.ridge / self.max_ridge, start.growth])
        data = Speedups.of(chosen, self.start.verify_width)
        x, _, _ = fit_speedups(data, self.bounds, self.max_ridge, starts=1, rng=rng, near=near)
        return replace(self.start, **_named(x, self.max_ridge))


def fit_speculation_model(
    rows: Sequence[Row],
    *,
    target: MoEShape | None = None,
    draft: MoEShape | None = None,
    hardware: Hardware | None = None,
    objective: Objective = "auto",
    verify_width: VerifyWidth = "gamma+1",
    bounds: Mapping[str, tuple[float, float]] | None = None,
    anchor: tuple[float, float] | None = None,
    starts: int = 12,
    rng: np.random.Generator | int = 0,
) -> FitResult:
    """Fit the cost model to measurements.

    Args:
        rows: Measurements of one model pair; about 20, over batch sizes from 1 to the largest that will be asked.
        target: The target's shape, and
        hardware: what it ran on: they bound the coefficients (needed for speed-ups).
        draft: The draft's shape.
        objective: ``"time"`` fits T_T, T_D and T_rej, ``"speedup"`` the speed-ups as the paper does; ``"auto"`` takes
            times wherever the rows hold them.
        verify_width: Tokens of a request in a verification, where a row does not say.
        bounds: Limits of single coefficients, in place of the computed ones.
        anchor: (batch, ms of a plain step): sets the scale of a fit to speed-ups; without it, the rows' ``t_ar_ms`` do.
        starts: Starting points of a fit to speed-ups.
        rng: Draws them.

    Returns:
        The model, its residuals and warnings.

    Raises:
        ValueError: There are too few rows, all of one batch size, of several models, or faster than the bounds allow.

    Example:
        >>> true = SpeculationModel(32, 4, 20.0, 1.05, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.05, 0.001)
        >>> rows = [
        ...     Row(b, g, 32, 4, t_ar_ms=float(true.target_time(b)), t_verify_ms=float(true.target_time(b, g + 1)))
        ...     for b in (1, 2, 4, 8, 16, 32, 64, 128) for g in (1, 3)
        ... ]
        >>> found = fit_speculation_model(rows).model
        >>> round(found.expert_load, 3)
        0.3

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, Algorithm 1 and appendix C; the objective of
        times is ours.
    """
    one_of("objective", objective, get_args(Objective))
    warnings = _check(rows)
    if target is not None and target.num_experts != rows[0].num_experts:
        raise ValueError(f"target: it has {target.num_experts} experts, the rows {rows[0].num_experts}")
    verified = sum(row.t_verify_ms is not None for row in rows)
    chosen = objective if objective != "auto" else "time" if verified >= 4 else "speedup"
    limits = free_bounds()
    if target is not None and hardware is not None:
        largest = max((row.t_reject_ms for row in rows if row.t_reject_ms is not None), default=None)
        limits = physical_bounds(target, draft, hardware, max_reject=largest)
    if bounds is not None:
        if unknown := sorted(set(bounds) - set(limits)):
            raise ValueError(f"bounds: unknown coefficients {', '.join(unknown)}; known are {', '.join(limits)}")
        limits = limits | dict(bounds)
    width = target.weight_bytes / 2 if target is not None else 1.0
    max_ridge = hardware.ridge * width if hardware is not None else None
    if chosen == "time":
        by_times = _by_times(rows, limits, max_ridge, target, hardware, verify_width)
        found, residuals, jacobian = dict(by_times.coefficients), by_times.residuals, by_times.jacobian
        names = by_times.names
        warnings += _gaps(rows)
    else:
        if len(rows) < 10:
            raise ValueError(f"rows: speed-ups need at least 10 rows, got {len(rows)}; add rows, or times in them")
        if max_ridge is None or (target is None and bounds is None):
            raise ValueError("target and hardware: speed-ups need both, for the bounds of the coefficients")
        if len(rows) < 12:
            warnings.append(f"{len(rows)} rows are few: the paper's fit failed with 10")
        data = Speedups.of(rows, verify_width)
        generator = np.random.default_rng(rng)
        x, residuals, jacobian = fit_speedups(data, limits, max_ridge, starts=starts, rng=generator)
        found, names = _named(x, max_ridge), (*TIMES, "lambda", "growth")
        if len({row.context for row in rows}) > 1:
            warnings.append("contexts differ: speed-ups alone do not say what they cost; times in the rows would")
    model = SpeculationModel(
        num_experts=rows[0].num_experts,
        top_k=target.top_k if target is not None else rows[-1].top_k,
        verify_width=verify_width,
        measured_batches=(min(r.batch_size for r in rows), max(r.batch_size for r in rows)),
        measured_top_k=tuple(sorted({row.top_k for row in rows})),
        source="fitted to times" if chosen == "time" else "fitted to speed-ups: times up to a common factor",
        **found,
    )
    if chosen == "speedup":
        plain = [(row.batch_size, row.t_ar_ms, row.top_k) for row in rows if row.t_ar_ms is not None]
        if anchor is not None:
            plain = [(*anchor, model.top_k)]
        if plain:
            factors = [ms / float(model.target_time(batch, top_k=k)) for batch, ms, k in plain]
            model = replace(
                model.scaled(float(np.median(factors))), source="fitted to speed-ups, anchored to plain steps"
            )
    mse = float(np.mean(residuals**2))
    covariance, condition = _spread(jacobian, residuals)
    result_bounds = limits | {"ridge": (0.0, max_ridge or np.inf), "growth": (1.0, 2.0)}
    at_bound = tuple(n for n in (*TIMES, "ridge", "growth") if _at(found[n], *result_bounds[n]))
    return FitResult(
        model, chosen, mse**0.5, mse, at_bound, covariance, names, condition, tuple(warnings),
        _Refit(tuple(rows), chosen, limits, max_ridge, model),
    )  # fmt: skip


def _by_times(
    rows: Sequence[Row],
    limits: Bounds,
    max_ridge: float | None,
    target: MoEShape | None,
    hardware: Hardware | None,
    verify_width: str,
) -> FittedTimes:
    if not any(row.t_ar_ms is not None or row.t_verify_ms is not None for row in rows):
        raise ValueError("rows: t_ar_ms or t_verify_ms is needed to fit times, got neither")
    times = Times.of(rows, verify_width)
    if times.target.size < 4:
        raise ValueError(f"rows: expected at least 4 times of the target, got {times.target.size}")
    if target is not None and hardware is not None:
        check_feasible(limits, times.tokens, times.target, target)
    return fit_times(times, limits, max_ridge)


def _check(rows: Sequence[Row]) -> list[str]:
    """Refuse rows that no model could be fitted to; return what speaks against the others."""
    if not rows:
        raise ValueError("rows: expected measurements, got none")
    batches = sorted({row.batch_size for row in rows})
    if len(batches) < 2:
        raise ValueError(f"rows: all are of batch size {batches[0]:g}; several batch sizes are needed")
    experts = sorted({row.num_experts for row in rows})
    if len(experts) > 1:
        raise ValueError(f"num_experts: expected rows of one model, got {experts}")
    named = {
        name: sorted({str(value) for row in rows if (value := getattr(row, name))}) for name in ("model", "hardware")
    }
    warnings = [
        f"rows of several {name}s are fitted as one: {', '.join(several)}"
        for name, several in named.items()
        if len(several) > 1
    ]
    gaps = [f"{a:g} to {b:g}" for a, b in pairwise(batches) if b > 4 * a]
    if gaps:
        warnings.append(f"no batch size was measured from {', '.join(gaps)}: the fit can go wrong between")
    if len({row.top_k for row in rows}) == 1 and experts[0] > 1:
        warnings.append(f"one K was measured ({rows[0].top_k}): predictions for another are extrapolation")
    return warnings


def _gaps(rows: Sequence[Row]) -> list[str]:
    """Return what rows do not settle of a fit to times."""
    verified = sum(row.t_verify_ms is not None for row in rows)
    count = verified + len({(row.batch_size, row.top_k, row.context) for row in rows if row.t_ar_ms is not None})
    warnings = []
    if count < 12:
        warnings.append(f"{count} times of the target are few for six coefficients: about 20 are enough")
    if not verified:
        warnings.append("no verification was timed: what more tokens of a request cost is taken from batches alone")
    if all(row.t_draft_ms is None for row in rows):
        warnings.append("no draft step was timed: drafts cost nothing in this model")
    return warnings


def _named(x: Floats, max_ridge: float) -> dict[str, Any]:
    found: dict[str, Any] = dict(zip(TIMES, (float(value) for value in x[:-2]), strict=True))
    return found | {"ridge": float(x[-2] * max_ridge), "growth": float(x[-1])}


def _at(value: float, low: float, high: float) -> bool:
    """Tell whether a parameter ended at a limit that is not merely zero."""
    span = high - low if np.isfinite(high) else max(abs(value), 1e-12)
    return (low > 0 and value - low < 1e-3 * span) or (np.isfinite(high) and high - value < 1e-3 * span)


def _spread(jacobian: Floats, residuals: Floats) -> tuple[Floats, float]:
    """Return the covariance of the free parameters, and the condition of the scaled Jacobian."""
    count = jacobian.shape[1]
    values = np.linalg.svd(jacobian / np.maximum(np.linalg.norm(jacobian, axis=0), 1e-300), compute_uv=False)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * float(residuals @ residuals) / max(1, len(residuals) - count)
    smallest = values[-1] if len(values) == count else 0.0
    return np.asarray(covariance), float(values[0] / smallest) if smallest > 1e-12 * values[0] else float("inf")
