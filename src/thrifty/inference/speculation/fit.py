"""Fitting the cost model to measurements: which objective, within what limits, and what to warn of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from thrifty._common.checks import one_of
from thrifty.inference.speculation.bounds import Bounds, check_feasible, free_bounds, physical_bounds
from thrifty.inference.speculation.fit_result import FitResult, Refit, at_limit, named, spread
from thrifty.inference.speculation.fit_speedups import Speedups, fit_speedups
from thrifty.inference.speculation.fit_times import FittedTimes, Times, fit_times
from thrifty.inference.speculation.hardware import Hardware
from thrifty.inference.speculation.model import TIMES, SpeculationModel, VerifyWidth
from thrifty.inference.speculation.rows import Row
from thrifty.inference.speculation.shapes import MoEShape

Objective = Literal["auto", "time", "speedup"]


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
    for name, kind, given in (("target", MoEShape, target), ("hardware", Hardware, hardware)):
        if not (given is None or isinstance(given, kind)):
            raise TypeError(f"{name}: expected a {kind.__name__}, got {given!r}")
    if not all(isinstance(row, Row) for row in rows):
        raise TypeError(f"rows: expected a list of Row, got {rows!r}")
    warnings = _check(rows)
    if target is not None and target.num_experts != rows[0].num_experts:
        raise ValueError(f"target: it has {target.num_experts} experts, the rows {rows[0].num_experts}")
    verified = sum(row.t_verify_ms is not None for row in rows)
    chosen = objective if objective != "auto" else "time" if verified >= 4 else "speedup"
    limits = _limits(rows, target, draft, hardware, bounds)
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
        found, names = named(x, max_ridge), (*TIMES, "lambda", "growth")
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
        model = _anchored(model, rows, anchor)
    mse = float(np.mean(residuals**2))
    covariance, condition = spread(jacobian, residuals)
    result_bounds = limits | {"ridge": (0.0, max_ridge or np.inf), "growth": (1.0, 2.0)}
    at_bound = tuple(n for n in (*TIMES, "ridge", "growth") if at_limit(found[n], *result_bounds[n]))
    return FitResult(
        model, chosen, mse**0.5, mse, at_bound, covariance, names, condition, tuple(warnings),
        Refit(tuple(rows), chosen, limits, max_ridge, model),
    )  # fmt: skip


def _limits(
    rows: Sequence[Row],
    target: MoEShape | None,
    draft: MoEShape | None,
    hardware: Hardware | None,
    given: Mapping[str, tuple[float, float]] | None,
) -> Bounds:
    """Return the limits of the coefficients: the caller's own, else those of shapes and hardware, else none.

    Raises:
        ValueError: The caller names a coefficient that there is not.
    """
    limits = free_bounds()
    if target is not None and hardware is not None:
        largest = max((row.t_reject_ms for row in rows if row.t_reject_ms is not None), default=None)
        limits = physical_bounds(target, draft, hardware, max_reject=largest)
    if unknown := sorted(set(given or {}) - set(limits)):
        raise ValueError(f"bounds: unknown coefficients {', '.join(unknown)}; known are {', '.join(limits)}")
    return limits | dict(given or {})


def _anchored(model: SpeculationModel, rows: Sequence[Row], anchor: tuple[float, float] | None) -> SpeculationModel:
    """Return a model fitted to speed-ups with the times of plain steps that are known, where any are."""
    plain = [(row.batch_size, row.t_ar_ms, row.top_k) for row in rows if row.t_ar_ms is not None]
    if anchor is not None:
        plain = [(*anchor, model.top_k)]
    if not plain:
        return model
    factors = [ms / float(model.target_time(batch, top_k=k)) for batch, ms, k in plain]
    return replace(model.scaled(float(np.median(factors))), source="fitted to speed-ups, anchored to plain steps")


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
