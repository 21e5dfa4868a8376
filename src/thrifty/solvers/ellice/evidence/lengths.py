"""Experiments A and B: how far answers are at the same certificate, and whether the true Rashomon set accepts them."""

from __future__ import annotations

from typing import Any

import numpy as np

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.solvers.ellice import ElliCE, RashomonEllipsoid
from thrifty.solvers.ellice.evidence import contenders, tables
from thrifty.solvers.ellice.evidence.tables import L2, Case
from thrifty.solvers.ellice.logistic import with_constant
from thrifty.solvers.ellice.rivals import margin_until_certified
from thrifty.solvers.ellice.true_rashomon import true_worst_logit

EPSILON = 0.01
OURS, BOXED, LIBRARY, MARGIN = "ElliCE exact", "ElliCE exact, data bounds", "ellice 0.1.4", "margin"
#: For the true Rashomon set, which is that of the objective's minimum: the centre is that minimum too.
REFIT, STRICT = "ElliCE exact, refit", "ElliCE exact, refit, true set"


def show(ctx: Context, evidence: Evidence) -> None:
    """Every table, at ε = 0.01; the authors' package keeps to the training range, and so does our second row."""
    persons = 40 if ctx.full else 6
    found: dict[str, dict[str, Any]] = {}
    names = tables.names(ctx)
    for done, name in enumerate(names):
        ctx.progress(done, len(names), f"lengths: {name}")
        case = tables.case(ctx, name, ctx.seed, persons)
        with threads(1):  # matrices this small gain nothing from more
            measured = ctx.attempt(
                evidence, LIBRARY, ctx.once, f"lengths {name}", ctx.seed, compare, case, workload=name
            )
        if measured is None:
            continue
        found[name] = measured
        for who in (OURS, REFIT, STRICT, BOXED, LIBRARY, MARGIN, "nominal"):
            metrics = {
                "mean L2": Measurement.of(measured[who], ""),
                "certified": Measurement.of(measured[f"{who} ok"], ""),
            }
            if who in (REFIT, STRICT):
                metrics["valid on the true set"] = Measurement.of(measured[f"{who}, true"], "share")
                metrics["lowest true logit"] = Measurement.of(measured[f"{who}, lowest"], "")
            if who == OURS:
                metrics["surface models within ε"] = Measurement.of(measured["coverage"], "share")
            evidence.row(who, metrics, workload=name)
    if not found:
        return
    ratios = [case[BOXED] / case[f"{LIBRARY} same persons"] for case in found.values()]
    evidence.measured(
        "shorter-at-same-certificate",
        Measurement.of(float(np.mean(ratios)), "ratio"),
        gate=([1 - case[f"{BOXED} ok"] for case in found.values()], [0.0] * len(found)),
        reason="by table: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(found, ratios, strict=True)),
    )
    evidence.measured(
        "never-longer-than-margin",
        Measurement.of(max(case["against margin"] for case in found.values()), "ratio"),
        gate=([1 - case[f"{OURS} ok"] for case in found.values()], [0.0] * len(found)),
    )
    evidence.measured(
        "true-rashomon-validity",
        Measurement.of(min(case[f"{REFIT}, true"] for case in found.values()), "share"),
        reason="by table: "
        + ", ".join(
            f"{name} {case[f'{REFIT}, true']:.2f} (lowest logit {case[f'{REFIT}, lowest']:.3f})"
            for name, case in found.items()
        ),
    )
    evidence.measured(
        "true-set-when-asked",
        Measurement.of(min(case[f"{STRICT}, true"] for case in found.values()), "share"),
        reason=f"at {np.mean([case[STRICT] / case[REFIT] for case in found.values()]):.3f} times the distance",
    )
    points = {who: (found, [case[who] for case in found.values()]) for who in (BOXED, OURS, LIBRARY, MARGIN)}
    evidence.curves(f"Distance at the same certificate (ε = {EPSILON})", "", "mean L2", points, kind="bar")


def compare(case: Case) -> dict[str, float]:
    """Answer the rejected persons by every contender, and certify all answers alike."""
    near = RashomonEllipsoid(EPSILON, L2).fit(case.model, case.X, case.y)
    rows = case.rejected

    def certified(answers: np.ndarray) -> np.ndarray:
        whole = np.isfinite(answers).all(axis=1)
        fine = np.zeros(len(answers), bool)
        fine[whole] = near.robust_logit(answers[whole]) >= 0
        return fine

    explainer = ElliCE(case.model, epsilon=EPSILON, l2=L2, bounds=None).fit(case.X, case.y)
    refit = ElliCE(case.model, epsilon=EPSILON, l2=L2, bounds=None, center="refit").fit(case.X, case.y)
    strict = ElliCE(case.model, epsilon=EPSILON, l2=L2, bounds=None, center="refit", certify="rashomon").fit(
        case.X, case.y
    )
    boxed = ElliCE(case.model, epsilon=EPSILON, l2=L2).fit(case.X, case.y)
    answers = {
        OURS: explainer.explain(rows).counterfactuals.to_numpy(float),
        REFIT: refit.explain(rows).counterfactuals.to_numpy(float),
        STRICT: strict.explain(rows).counterfactuals.to_numpy(float),
        BOXED: boxed.explain(rows).counterfactuals.to_numpy(float),
        "nominal": explainer.with_epsilon(0.0).explain(rows).counterfactuals.to_numpy(float),
        MARGIN: margin_until_certified(rows, near.ellipsoid_),
        LIBRARY: contenders.library(case.model, case.X, case.y, EPSILON, L2)(rows),
    }
    far = {who: np.linalg.norm(found - rows, axis=1) for who, found in answers.items()}
    fine = {who: certified(found) for who, found in answers.items()}
    found: dict[str, float] = {}
    for who, distance in far.items():
        found[who] = float(np.nanmean(distance))
        found[f"{who} ok"] = float(fine[who].mean())
    same = fine[LIBRARY] & fine[BOXED]
    found[f"{LIBRARY} same persons"] = float(far[LIBRARY][same].mean()) * found[BOXED] / float(far[BOXED][same].mean())
    both = np.isfinite(far[MARGIN])
    found["against margin"] = float(np.max(far[OURS][both] / far[MARGIN][both]))
    training, minimum = with_constant(case.X), refit.rashomon_
    for who in (REFIT, STRICT):
        worst = true_worst_logit(
            with_constant(answers[who]), 1, training, case.y, L2, minimum.objective_ + EPSILON,
            minimum.ellipsoid_.theta,
        )  # fmt: skip
        found[f"{who}, true"], found[f"{who}, lowest"] = float((worst >= 0).mean()), float(worst.min())
    found["coverage"] = near.coverage(200, on_surface=True, random_state=0)
    return found
