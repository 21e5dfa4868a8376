"""What a fit found and what it is worth: residuals, limits that were met, covariance, and bands by refitting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.activation import Floats
from thrifty.inference.speculation.bounds import Bounds
from thrifty.inference.speculation.fit_speedups import Speedups, fit_speedups
from thrifty.inference.speculation.fit_times import Times, fit_times
from thrifty.inference.speculation.model import TIMES, SpeculationModel
from thrifty.inference.speculation.rows import Row


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
        >>> from thrifty.inference.speculation import Row, fit_speculation_model
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
    _refit: Refit = field(repr=False)

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
class Refit:
    """Fits once more to rows drawn with replacement, from where the first fit ended."""

    rows: tuple[Row, ...]
    objective: str
    bounds: Bounds
    max_ridge: float | None
    start: SpeculationModel

    def __call__(self, rng: np.random.Generator) -> SpeculationModel:
        """Return the model of one more draw of the rows."""
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
        return replace(self.start, **named(x, self.max_ridge))


def named(x: Floats, max_ridge: float) -> dict[str, Any]:
    """Return the model's fields out of what a fit to speed-ups gives: ``TIMES``, λ and growth."""
    found: dict[str, Any] = dict(zip(TIMES, (float(value) for value in x[:-2]), strict=True))
    return found | {"ridge": float(x[-2] * max_ridge), "growth": float(x[-1])}


def at_limit(value: float, low: float, high: float) -> bool:
    """Tell whether a parameter ended at a limit that is not merely zero."""
    span = high - low if np.isfinite(high) else max(abs(value), 1e-12)
    return (low > 0 and value - low < 1e-3 * span) or (np.isfinite(high) and high - value < 1e-3 * span)


def spread(jacobian: Floats, residuals: Floats) -> tuple[Floats, float]:
    """Return the covariance of the free parameters, and the condition of the scaled Jacobian."""
    count = jacobian.shape[1]
    values = np.linalg.svd(jacobian / np.maximum(np.linalg.norm(jacobian, axis=0), 1e-300), compute_uv=False)
    covariance = np.linalg.pinv(jacobian.T @ jacobian) * float(residuals @ residuals) / max(1, len(residuals) - count)
    smallest = values[-1] if len(values) == count else 0.0
    return np.asarray(covariance), float(values[0] / smallest) if smallest > 1e-12 * values[0] else float("inf")
