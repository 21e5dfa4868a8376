"""How many measurements a fit needs, and which: the paper's selection study (arXiv 2505.19645, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.fit import fit_speculation_model
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.rows import Row, stride_sample


@dataclass(frozen=True)
class Selection:
    """A fit to some of the rows, judged on all of them.

    Args:
        count: Rows that were fitted to.
        batches: The batch sizes among them.
        rmse: Root mean squared error of the speed-ups of all rows.
        error_sum: The sum of squared errors, which the paper prints as "MSE".
        warnings: Of the fit.
    """

    count: int
    batches: tuple[float, ...]
    rmse: float
    error_sum: float
    warnings: tuple[str, ...]


def selection_study(rows: Sequence[Row], counts: Sequence[int], **fitting: Any) -> list[Selection]:
    """Fit to every ⌈n/m⌉-th row for several m, and judge each fit on all rows.

    Args:
        rows: All measurements, each with γ, σ and speed-up.
        counts: Values of m.
        fitting: Passed on to :func:`~thrifty.inference.speculation.fit.fit_speculation_model`.

    Returns:
        For each m how many rows were fitted to, and the errors on all.

    Raises:
        ValueError: An m is not in [1, n], the rows lack σ or the speed-up, or a fit is refused.

    Example:
        >>> true = SpeculationModel(8, 2, 20.0, 1.05, 2.0, 0.05, 0.3, 0.1, 0.4, 0.01, 0.05, 0.001)
        >>> survives = Acceptance.from_rate(0.8)
        >>> rows = [
        ...     Row(b, 2, 8, 2, 0.8133, float(true.speedup(b, 2, survives)), float(true.target_time(b)),
        ...         float(true.target_time(b, 3)), float(true.draft_time(b)), float(true.reject_time(b)))
        ...     for b in (1, 2, 4, 8, 16, 32, 64, 128)
        ... ]
        >>> (four,) = selection_study(rows, [4])
        >>> four.batches, four.rmse < 0.01
        ((1, 4, 16, 64), True)

    Source:
        Huang et al., "MoESD", NeurIPS 2025, arXiv 2505.19645, section 4.3.
    """
    found = []
    for count in counts:
        sample = stride_sample(rows, count)
        result = fit_speculation_model(sample, **fitting)
        errors = speedup_errors(result.model, rows)
        found.append(
            Selection(
                len(sample),
                tuple(sorted({row.batch_size for row in sample})),
                float(np.sqrt(np.mean(errors**2))),
                float(errors @ errors),
                result.warnings,
            )
        )
    return found


def speedup_errors(model: SpeculationModel, rows: Sequence[Row]) -> np.ndarray:
    """Return predicted less measured speed-up of each row that has one, at the row's own γ, σ and K."""
    errors = []
    for row in rows:
        if row.speedup is None or row.sigma is None or not row.gamma:
            continue
        acceptance = Acceptance.from_sigma(min(1.0, row.sigma), row.gamma)
        top_k = row.top_k if model.num_experts > 1 else None
        predicted = model.speedup(row.batch_size, row.gamma, acceptance, top_k=top_k)
        errors.append(float(predicted) - row.speedup)
    if not errors:
        raise ValueError("rows: none has gamma, sigma and speedup")
    return np.array(errors)
