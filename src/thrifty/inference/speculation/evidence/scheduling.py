"""Experiment 3: a schedule from 20 timed passes, run live beside fixed lengths, other rules, and every length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.evidence.models import (
    EXPERTS,
    OFTEN,
    SELDOM,
    calibrated_pair,
    own_text,
    prompts,
    set_epsilon,
)
from thrifty.inference.speculation.fit import fit_speculation_model
from thrifty.inference.speculation.measure import measure_generation, steady_rate
from thrifty.inference.speculation.passes import profile_target
from thrifty.inference.speculation.rivals import ema_gamma, threshold_gamma
from thrifty.inference.speculation.schedule import one_sided, recommend_schedule

TOP_K, PROMPT, NEW = 4, 16, 20
CELLS, WIDTHS = (1, 4, 16, 64, 128), (1, 2, 4, 7)  # 20 timed passes of the target
BATCHES, GRID = (1, 4, 16, 64), (0, 1, 2, 3, 4, 5, 7)


def show(ctx: Context, evidence: Evidence, differing: list[float]) -> None:
    """Recommend from few passes and the acceptance of one run; compare with what every length really gives."""
    target, draft = calibrated_pair(TOP_K, OFTEN, seed=ctx.seed)
    with threads(1):
        text = own_text(target, draft, seed=ctx.seed)
        cells = profile_target(target, CELLS, WIDTHS, context=PROMPT + NEW // 2, repeats=3, draft=draft, text=text)
    model = fit_speculation_model(cells).model
    shares: dict[str, list[float]] = {}
    epsilon = OFTEN
    for wanted in (OFTEN, SELDOM):
        set_epsilon(target, epsilon, wanted)
        epsilon = wanted
        record = ctx.once(f"grid of lengths at {wanted}", ctx.seed, lambda: _grid(target, draft, ctx.seed))
        acceptance = Acceptance.from_survival(record["survival"])
        rates = np.array(record["rates"])  # a row a length, a column a batch
        schedule = recommend_schedule(model, acceptance, max_batch=max(CELLS), max_gamma=max(GRID))
        rules: dict[str, Callable[[int], int]] = {
            "ours, from 20 passes": schedule.gamma,
            "fixed, 4 drafts": lambda batch: 4,
            "4 drafts, none above batch 16": threshold_gamma,
            "EMA policy (SGLang's defaults)": lambda batch: ema_gamma(batch, acceptance),  # noqa: B023
            "no speculation": lambda batch: 0,
        }
        gamma, on, share = one_sided(rates)
        for name, rule in rules.items():
            lengths = [_nearest(rule(batch)) for batch in BATCHES]
            found = [rates[GRID.index(g), i] / rates[:, i].max() for i, g in enumerate(lengths)]
            shares.setdefault(name, []).extend(found)
            metrics = {
                f"batch {b}": Measurement.of(s, "of the best", timed=True) for b, s in zip(BATCHES, found, strict=True)
            }
            drafts = ", ".join(map(str, lengths))
            evidence.row(name, metrics, workload=f"live, alpha {acceptance.alpha:.2f} (lengths {drafts})")
        evidence.row(
            "best one-sided rule, found on this grid", {"mean": Measurement.of(share, "of the best", timed=True)},
            workload=f"live, alpha {acceptance.alpha:.2f} ({GRID[gamma]} drafts at {on} of {len(BATCHES)} batches)",
        )  # fmt: skip
        best = [GRID[int(i)] for i in rates.argmax(axis=0)]
        points = {f"alpha {acceptance.alpha:.2f}": (BATCHES, best)}
        evidence.curves("Best draft length, measured", "batch size", "draft tokens", points, log_x=True)
    ours = shares["ours, from 20 passes"]
    others = "; ".join(f"{name}: {np.mean(values):.3f}" for name, values in shares.items() if "ours" not in name)
    evidence.measured(
        "schedule", Measurement.of(float(np.mean(ours)), "of the best", timed=True), gate=(differing, [0.0]),
        reason=f"worst {min(ours):.3f}; {others} (K={TOP_K} of {EXPERTS})",
    )  # fmt: skip


def _grid(target: Any, draft: Any, seed: int) -> dict[str, Any]:
    """Return tokens a millisecond for every length and batch, and how drafts survive at a batch that none is for."""
    with threads(1):
        probe = measure_generation(target, draft, prompts(8, PROMPT, seed=seed + 1), [max(GRID)], new_tokens=NEW)
        rates = np.zeros((len(GRID), len(BATCHES)))
        for i, batch in enumerate(BATCHES):
            # One prompt alone may be lucky: more of them stand for batch 1 and 4.
            seeds = range(seed, seed + max(1, 8 // batch // 2))
            runs = [
                measure_generation(target, draft, prompts(batch, PROMPT, seed=s), GRID, new_tokens=NEW) for s in seeds
            ]
            for j, gamma in enumerate(GRID):
                rates[j, i] = steady_rate([stats for run in runs for stats in run[gamma]], batch)
    curve = probe[max(GRID)][0].acceptance().curve(max(GRID))
    return {"survival": curve.tolist(), "rates": rates.tolist()}


def _nearest(gamma: int) -> int:
    """Return the length of the grid that stands for another."""
    return min(GRID, key=lambda g: (abs(g - gamma), g))
