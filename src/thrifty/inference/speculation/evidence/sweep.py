"""Timing the mixture over K, batch and tokens of a request, for experiments 1 and 2, on one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from thrifty.bench.context import Context
from thrifty.bench.timing import threads
from thrifty.inference.speculation.evidence.models import mixture, set_top_k
from thrifty.inference.speculation.passes import profile_target
from thrifty.inference.speculation.rows import Row

CONTEXT = 16


def sweep(
    ctx: Context, seed: int, top_k: Sequence[int], batches: Sequence[int], widths: Sequence[int], repeats: int
) -> dict[int, list[Row]]:
    """Return rows by K: the weights are those of one seed for all K."""
    model: Any = None

    def measure(k: int) -> list[dict[str, Any]]:
        nonlocal model
        if model is None:
            model = mixture(k, seed=seed)
        set_top_k(model, k)
        with threads(1):
            rows = profile_target(model, batches, widths, context=CONTEXT, repeats=repeats, seed=seed)
        return [asdict(row) for row in rows]

    found = {}
    for k in top_k:
        label = f"mixture K={k}, batches {list(batches)}, widths {list(widths)}, {repeats} repeats"
        found[k] = [Row(**record) for record in ctx.once(label, seed, lambda k=k: measure(k))]
    return found


def efficiency(rows: Sequence[Row], width: int) -> dict[int, float]:
    """Return T_T(B, 1) / T_T(B, width) by batch."""
    return {
        int(row.batch_size): row.t_ar_ms / row.t_verify_ms
        for row in rows
        if row.verify_tokens == width and row.t_ar_ms and row.t_verify_ms
    }
