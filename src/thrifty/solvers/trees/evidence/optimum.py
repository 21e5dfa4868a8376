"""How near hill-climbing comes to an optimal tree of depth 3, and how much sooner it is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import keel
from thrifty.bench.evidence import Evidence
from thrifty.solvers.trees.evidence.value import fit_cart, fit_hill_climb

#: ConTree proves its tree within seconds on the first two; the others take it up to minutes.
QUICK_TABLES = ("banana", "pima")
FULL_TABLES = (*QUICK_TABLES, "german", "phoneme", "magic")
DEPTH = 3
TIME_LIMIT = 120.0  # seconds a table for ConTree


def show(ctx: Context, evidence: Evidence) -> None:
    """Fit all three on four fifths of each table; where ConTree runs out of time, its best tree counts."""
    gaps, ratios, errors = [], [], []
    tables = FULL_TABLES if ctx.full else QUICK_TABLES
    for done, name in enumerate(tables):
        ctx.progress(done, len(tables), f"optimal trees, {name}")
        found = ctx.attempt(evidence, "ConTree", ctx.once, f"optimum {name}", ctx.seed, compare, name, ctx.seed)
        if found is None:
            return
        for contender, (train, test, seconds) in found.items():
            evidence.row(
                contender,
                {
                    "training errors": Measurement.of(train, "errors"),
                    "test error": Measurement.of(100 * test, "%"),
                    "time": Measurement.of(seconds, "s", timed=True),
                },
                workload=f"{name}, depth {DEPTH}, one split",
            )
        cart, ours, best = (found[contender] for contender in ("CART", "hill-climb", "ConTree"))
        if cart[0] > best[0]:
            gaps.append(100 * (cart[0] - ours[0]) / (cart[0] - best[0]))
        ratios.append(best[2] / ours[2])
        errors.append((ours[1], best[1]))
    evidence.measured("gap-to-optimal", Measurement.of(gaps, "%"))
    ours_test, best_test = zip(*errors, strict=True)
    evidence.measured(
        "time-to-optimal", Measurement.of(ratios, "ratio", timed=True), gate=(list(ours_test), list(best_test))
    )


def compare(name: str, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return training errors, test error and seconds of each contender."""
    ConTree = require("pycontree", extra="bench").ConTree
    table = keel.load(name)
    X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.2, stratify=table.y, random_state=seed)
    fits: dict[str, Callable[[], Any]] = {
        "CART": lambda: fit_cart(X, y, DEPTH, seed),
        "hill-climb": lambda: fit_hill_climb(X, y, DEPTH, seed),
        "ConTree": lambda: ConTree(max_depth=DEPTH, time_limit=TIME_LIMIT).fit(X, y),
    }
    found = {}
    for contender, fit in fits.items():
        began = time.perf_counter()
        model = fit()
        seconds = time.perf_counter() - began
        train = float((np.asarray(model.predict(X)) != y).sum())
        found[contender] = (train, float((np.asarray(model.predict(X_test)) != y_test).mean()), seconds)
    return found
