"""Experiment 4: whole generations. Lossless, faster for a mixture than for a dense model, as the equation has it."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import Any

import torch

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.speculation.acceptance import Acceptance
from thrifty.inference.speculation.decode import SpeculativeDecoder, SpeculativeStats
from thrifty.inference.speculation.evidence.models import EXPERTS, OFTEN, calibrated_pair, own_text, prompts, set_top_k
from thrifty.inference.speculation.fit import fit_speculation_model
from thrifty.inference.speculation.measure import generation_row, measure_generation, steady_rounds
from thrifty.inference.speculation.model import SpeculationModel
from thrifty.inference.speculation.passes import Passes
from thrifty.inference.speculation.rows import Row

GAMMA, PROMPT, NEW = 4, 16, 24
BATCHES, SPARSE = (1, 4, 16, 32), 4
#: Draft lengths and tokens of a row that are compared with the target alone.
GAMMAS, LOSSLESS = (0, 1, 4, 6), 24
#: Cells that are timed to fit the models whose predictions are tested: 16 for each of two K.
CELLS, WIDTHS = (1, 4, 16, 64), (1, 2, 4, 7)
#: Turns that passes and generations take, one behind the other.
TURNS = 4


def show_lossless(ctx: Context, evidence: Evidence) -> list[float]:
    """Count tokens that differ from what the target alone gives through its own ``generate``, in float32."""
    target, draft = calibrated_pair(SPARSE, 0.3, seed=ctx.seed, dtype=torch.float32, hidden=64)
    lengths = (9, 3, 16, 1, 7, 12, 5, 16)
    ids = prompts(len(lengths), max(lengths), seed=ctx.seed) + 0
    mask = torch.arange(max(lengths)) >= max(lengths) - torch.tensor(lengths)[:, None]
    ids = ids * mask
    settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": LOSSLESS}
    alone = [target.generate(ids[i : i + 1, -n:], **settings)[0, n:] for i, n in enumerate(lengths)]
    differing, survivals = 0, []
    for gamma in GAMMAS:
        out = SpeculativeDecoder(target, draft, gamma).generate(ids, mask, **settings)
        differing += sum(int((out.sequences[i, ids.shape[1] :] != alone[i]).sum()) for i in range(len(lengths)))
        survivals.append(out.stats.survival())
    evidence.row(
        "ours",
        {
            "tokens compared": Measurement.of(len(GAMMAS) * len(lengths) * LOSSLESS, "tokens"),
            "tokens that differ": Measurement.of(differing, "tokens"),
            "first drafts accepted": Measurement.of(survivals[-1][0], "share"),
        },
        workload="greedy, float32, 8 ragged prompts, 0 to 6 drafts",
    )
    evidence.measured("lossless", Measurement.of(differing, "tokens"))
    return [float(differing)]


def show_accounting(ctx: Context, evidence: Evidence, differing: list[float]) -> None:
    """Compare a round's wall clock with equation 4, whose parts are timed separately."""
    target, draft = calibrated_pair(8, OFTEN, seed=ctx.seed)
    batches = (1, 8, 32) if ctx.full else (8,)
    turns = 2 * TURNS if ctx.full else TURNS
    errors = []
    for batch in batches:
        found = ctx.once(f"accounting at batch {batch}", ctx.seed, lambda b=batch: _account(target, draft, b, turns))
        errors.append(abs(found.pop("error")))
        metrics = {name: Measurement.of(ms, "ms", timed=True) for name, ms in found.items()}
        evidence.row("ours", metrics, workload=f"a round at batch {batch}, {GAMMA} drafts, K=8")
    gate = (differing * len(errors), [0.0] * len(errors))
    evidence.measured("accounting", Measurement.of(errors, "relative", timed=True), gate=gate)


def show_pairs(ctx: Context, evidence: Evidence, differing: list[float]) -> list[Row]:
    """Generate with a sparse and with a dense target; predict both from a fit to passes alone.

    Returns:
        The speed-ups of the sparse one.
    """
    measured: dict[int, list[Row]] = {}
    survival: dict[int, list[list[float]]] = {}
    models: dict[int, SpeculationModel] = {}
    for k in (SPARSE, EXPERTS):
        label = f"whole generations, K={k}"
        record = ctx.once(label, ctx.seed, lambda k=k: _generate(ctx.seed, k))
        measured[k] = [Row(**row) for row in record["rows"]]
        survival[k] = record["survival"]
        models[k] = fit_speculation_model([Row(**row) for row in record["cells"]]).model
    ratios, errors = [], []
    for k, rows in measured.items():
        name = f"K={k} of {EXPERTS}" if k < EXPERTS else "dense (K=E)"
        for row, curve in zip(rows, survival[k], strict=True):
            acceptance = Acceptance.from_survival(curve)
            predicted = float(models[k].speedup(row.batch_size, GAMMA, acceptance))
            errors.append(abs(predicted / (row.speedup or 1.0) - 1))
            metrics = {
                "speed-up": Measurement.of(row.speedup or 0.0, "ratio", timed=True),
                "predicted": Measurement.of(predicted, "ratio", timed=True),
                "sigma": Measurement.of(row.sigma or 0.0, "share"),
            }
            evidence.row(name, metrics, workload=f"end to end, batch {row.batch_size:g}, {GAMMA} drafts")
    for sparse, dense in zip(measured[SPARSE], measured[EXPERTS], strict=True):
        if sparse.batch_size in (16, 32):
            ratios.append((sparse.speedup or 0.0) / (dense.speedup or 1.0))
    evidence.measured(
        "moe-beats-dense-at-medium-batch", Measurement.of(min(ratios), "ratio", timed=True), gate=(differing, [0.0]),
        reason=", ".join(f"{r:.2f} at batch {b}" for r, b in zip(ratios, (16, 32), strict=True)),
    )  # fmt: skip
    evidence.measured(
        "prediction", Measurement.of(max(errors), "relative", timed=True),
        reason=f"mean {statistics.mean(errors):.1%} over {len(errors)} speed-ups",
    )  # fmt: skip
    return measured[SPARSE]


def _account(target: Any, draft: Any, batch: int, turns: int) -> dict[str, float]:
    """Return a round of a generation, and what equation 4 makes of parts that are timed in turn with it, in ms.

    The error is the median over turns, each of which compares what was timed one behind the other.
    """
    found = []
    with threads(1):
        text = own_text(target, draft)
        passes = Passes(target, [batch], [GAMMA + 1], context=PROMPT + NEW // 2, draft=draft, text=text)
        for turn in range(turns):
            passes.sample()
            stats = [s for ids in _prompts(batch, turn) for s in measure_generation(target, draft, ids, [GAMMA])[GAMMA]]
            wall = statistics.median(r.total_ms for r in steady_rounds(stats, batch))
            found.append({"wall": wall} | _equation(passes.rows(since=turn)[-1]))
    medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return medians | {"error": statistics.median(one["wall"] / one["equation"] - 1 for one in found)}


def _prompts(batch: int, seed: int) -> list[torch.Tensor]:
    """Return prompts, for a batch of one several times: one alone may be lucky."""
    return [prompts(batch, PROMPT, seed=seed + i) for i in range(4 if batch == 1 else 1)]


def _equation(row: Row) -> dict[str, float]:
    """Return the parts of a round and their sum, by equation 4."""
    draft, verify, reject = (ms or 0.0 for ms in (row.t_draft_ms, row.t_verify_ms, row.t_reject_ms))
    parts = {"drafting": GAMMA * draft, "verifying": verify, "rejecting": reject}
    return {"equation": sum(parts.values()), **parts}


def _generate(seed: int, k: int) -> dict[str, Any]:
    """Return rows of whole generations, how drafts survived in each, and the passes that a model is fitted to.

    Passes and generations take turns: each of the medians has a share of every mood of the machine.
    """
    target, draft = calibrated_pair(k, OFTEN, seed=seed)
    set_top_k(target, k)
    found: dict[int, dict[int, list[SpeculativeStats]]] = {batch: {0: [], GAMMA: []} for batch in BATCHES}
    with threads(1):
        text = own_text(target, draft, seed=seed)
        passes = Passes(target, CELLS, WIDTHS, context=PROMPT + NEW // 2, draft=draft, text=text)
        for _ in range(TURNS):
            passes.sample()
            for batch in BATCHES:
                for ids in _prompts(batch, seed):
                    for gamma, stats in measure_generation(target, draft, ids, [0, GAMMA], new_tokens=NEW).items():
                        found[batch][gamma] += stats
    rows = [asdict(generation_row(target, of[GAMMA], of[0], batch, GAMMA)) for batch, of in found.items()]
    survival = [
        SpeculativeStats([r for one in of[GAMMA] for r in one.rounds if r.batch == batch]).survival()
        for batch, of in found.items()
    ]
    return {"rows": rows, "survival": survival, "cells": [asdict(row) for row in passes.rows()]}
