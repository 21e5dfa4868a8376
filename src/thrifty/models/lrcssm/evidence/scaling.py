"""How time, iterations, memory and depth of one layer grow with the length of its input."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import timeseries
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak
from thrifty.bench.timing import threads
from thrifty.models.lrcssm import DiagonalRNN, Levels, affine_scan
from thrifty.models.lrcssm.evidence.speed import AUTO, NEWTON, D, both_ways


def show(ctx: Context, evidence: Evidence, difference: float) -> None:
    """Record the claims about scaling and memory; ``difference`` is that of the layer from the recurrence in order."""
    _depth(evidence)
    _iterations(evidence)
    _memory(ctx, evidence, difference)
    _lengths(ctx, evidence)


def _lengths(ctx: Context, evidence: Evidence) -> None:
    """Time against length; the exponent is the slope of a straight line through the logarithms."""
    lengths = (1024, 4096, 16384)
    layer, newton = (_layer(solver, ctx) for solver in ("auto", "newton"))
    calls: dict[str, Callable[[], object]] = {}
    for t in lengths:
        u = torch.randn(1, t, D, generator=torch.Generator().manual_seed(ctx.seed)).to(ctx.device)
        calls[f"{AUTO}, {t}"], calls[f"{NEWTON}, {t}"] = both_ways(layer, u), both_ways(newton, u)
    found = ctx.time(calls, at_most=20.0 if ctx.full else 2.0)
    curves = {}
    for name in (AUTO, NEWTON):
        rounds = list(zip(*(found[f"{name}, {t}"].seconds.values for t in lengths), strict=True))
        slopes = [float(np.polyfit(np.log(lengths), np.log(times), 1)[0]) for times in rounds]
        median = [found[f"{name}, {t}"].seconds.median for t in lengths]
        curves[name] = (lengths, median)
        metrics = {f"T = {t}": found[f"{name}, {t}"].seconds for t in lengths}
        exponent = Measurement.of(slopes, "exponent", timed=True)
        evidence.row(name, {"exponent": exponent, **metrics}, workload="time by length, B = 1")
        if name == AUTO:
            evidence.measured("linear-in-T", exponent)
    evidence.curves("Forward and backward by length", "T", "s", curves, log_x=True, log_y=True)


def _layer(solver: str, ctx: Context) -> DiagonalRNN:
    with torch.random.fork_rng():
        torch.manual_seed(ctx.seed)
        return DiagonalRNN("lrc", D, D, solver=solver).to(ctx.device)  # type: ignore[arg-type]


def signal(longest: int, channels: int = 8) -> Tensor:
    """Return real pressure series one after the other, each standardised, as one long sequence of several channels."""
    train, _ = timeseries.load("PigCVP")
    rows = [(x[0] - x[0].mean()) / (x[0].std() + 1e-6) for x in islice(train.X, 80)]
    each = -(-longest // len(rows[0]))
    columns = [np.concatenate(rows[i * each : (i + 1) * each])[:longest] for i in range(channels)]
    return torch.from_numpy(np.stack(columns, axis=1)).unsqueeze(0)


@torch.no_grad()
def _iterations(evidence: Evidence) -> None:
    """Newton iterations on real signals of growing length, all steps at once."""
    u, ratios = signal(16384), []
    for init, factor in (("standard", 1), ("reference", 1), ("reference", 4)):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layer = DiagonalRNN("lrc", u.shape[2], D, solver="newton", chunk=u.shape[1], init=init)
        for parameter in layer.parameters():
            parameter.mul_(factor)
        lengths = (64, 256, 1024, 4096, 16384)
        counts = [int(layer(u[:, :t], return_info=True)[2].n_iter.max()) for t in lengths]
        metrics = {f"T = {t}": Measurement.of(n, "iterations") for t, n in zip(lengths, counts, strict=True)}
        evidence.row(NEWTON, metrics, workload=f"iterations on real signals, {init} initialisation × {factor}")
        ratios.append(max(counts) / min(counts))
    evidence.measured("iterations-flat", Measurement.of(max(ratios), "ratio"))


def _memory(ctx: Context, evidence: Evidence, difference: float) -> None:
    steps, shares = 4096, {}
    u = torch.randn(1, steps, D, generator=torch.Generator().manual_seed(ctx.seed)).to(ctx.device)
    for name, solver in ((AUTO, "auto"), (NEWTON, "newton")):
        layer = _layer(solver, ctx)
        both_ways(layer, u)()  # gradients exist from here on
        with threads(1):
            peak = allocated_peak(both_ways(layer, u), device=ctx.device)
        shares[name] = peak / (12 * steps * D * 4)
        metrics = {"peak": Measurement.of(peak / 1e6, "MB"), "of 12 numbers": Measurement.of(shares[name], "ratio")}
        evidence.row(name, metrics, workload=f"memory, T = {steps}, B = 1")
    evidence.measured("memory", Measurement.of(shares[AUTO], "ratio"), gate=difference)


def _depth(evidence: Evidence) -> None:
    worst = 0.0
    for t in (64, 1000, 1024, 16384):
        levels = Levels()
        affine_scan(torch.ones(1, t, 1), torch.ones(1, t, 1), backend="tree", levels=levels)
        worst = max(worst, levels.count / (2 * math.ceil(math.log2(t))))
    evidence.measured("depth", Measurement.of(worst, "ratio"))
