"""A picture of a cost model: target efficiency and speed-up over the batch, for several draft lengths."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.rows import Row


def plot_model(
    path: str | Path,
    model: SpeculationModel,
    acceptance: Acceptance,
    *,
    gammas: Sequence[int] = (1, 2, 4, 7),
    max_batch: int = 256,
    rows: Sequence[Row] = (),
    context: float = 0.0,
    force: bool = False,
) -> Path:
    """Draw target efficiency (left) and speed-up (right) over the batch size.

    Args:
        path: ``.png`` or ``.svg``.
        model: The cost model.
        acceptance: How much of a draft survives.
        gammas: Draft lengths, a line each.
        max_batch: The largest batch.
        rows: Measurements to draw as points: speed-ups of these draft lengths, adjusted to ``acceptance``.
        context: Tokens in each request's cache.
        force: Replace a file that is there.

    Raises:
        ValueError: The name ends in something else.
        ImportError: matplotlib is not installed.
    """
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in ("png", "svg"):
        raise ValueError(f"path: expected a name that ends in .png or .svg, got {path}")
    require("matplotlib", extra="bench")
    from matplotlib.figure import Figure  # without pyplot: no global state

    batches = np.unique(np.geomspace(1, max_batch, 200).round()).astype(int)
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for gamma in gammas:
        efficiency = model.target_efficiency(batches, model.width(gamma), context=context)
        left.plot(batches, efficiency, label=f"γ = {gamma}")
        (line,) = right.plot(batches, model.speedup(batches, gamma, acceptance, context=context), label=f"γ = {gamma}")
        points = [r for r in rows if r.gamma == gamma and r.speedup and r.sigma]
        if points:
            gained = float(acceptance.sigma(gamma))
            adjusted = [(r.speedup or 0.0) * gained / (r.sigma or 1.0) for r in points]
            right.plot([r.batch_size for r in points], adjusted, "o", color=line.get_color())
    right.axhline(1.0, color="0.5", linewidth=0.8)
    for axes, name in ((left, "target efficiency"), (right, "speed-up")):
        axes.set(xscale="log", xlabel="batch size", ylabel=name)
        axes.legend()
    if model.measured_batches is not None:
        right.axvline(model.measured_batches[1], color="0.8", linestyle=":")
    figure.suptitle(f"{model.num_experts} experts, {model.top_k} of a token ({model.source})")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return write_whole(path, buffer.getvalue(), force=force)
