"""What training costs: parameters, time of an epoch, peak memory, and how both grow with the window."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.memory import allocated_peak, resident_peak
from thrifty.bench.timing import threads
from thrifty.models.se_htgnn import Edges, HeteroTemporalData
from thrifty.models.se_htgnn.evidence import flights
from thrifty.models.se_htgnn.evidence.accuracy import Gate
from thrifty.models.se_htgnn.evidence.contenders import BATCH, WINDOW, network, train
from thrifty.models.se_htgnn.fitting import Recipe, batches, fit
from thrifty.models.se_htgnn.objectives import RegressionObjective
from thrifty.models.se_htgnn.scaling import Scaling

PAIR = ("SE-HTGNN", "HTGNN")
LONG = 30
LENGTHS = (7, 15, 30, 60)


def show(ctx: Context, evidence: Evidence, gate: Gate | None) -> None:
    """Record the claims about cost; without a gate on quality, only how time grows."""
    _grows(ctx, evidence)
    if gate is None:
        return
    _parameters(evidence, gate)
    ctx.progress(1, 4, "peak memory")
    peaks = {name: _peak(name, 1, WINDOW, ctx.device) for name in PAIR}
    for name, peak in peaks.items():
        evidence.row(
            name, {"peak": Measurement.of(peak / 1e6, "MB")}, workload=f"a step of {BATCH} windows, T = {WINDOW}"
        )
    reason = "by the allocator's events"
    if ctx.full and ctx.device == "cpu":
        grown = {name: resident_peak(f"{__name__}:one_step", name, WINDOW) / 1e6 for name in PAIR}
        reason += (
            f"; by a fresh process's high-water mark {grown[PAIR[0]]:.0f} and {grown[PAIR[1]]:.0f} MB, imports too"
        )
    evidence.measured("memory", Measurement.of(peaks[PAIR[0]] / peaks[PAIR[1]], "ratio"), gate=gate, reason=reason)
    ctx.progress(2, 4, "an epoch's time")
    for claim, window, held in (("epoch-time", WINDOW, gate), ("epoch-time-30", LONG, _gate_of_long(ctx, gate))):
        for layers in (1, 2) if ctx.full else (1,):
            share = 19 if ctx.full else 2
            calls = {name: steps(name, layers, window, share, ctx.device) for name in PAIR}
            if ctx.full and window == WINDOW and layers == 1:
                more = ("HGT + GRU", "DyHATR-like")
                calls |= {name: steps(name, layers, window, share, ctx.device) for name in more}
            label = f"{share} steps of {BATCH} windows, T = {window}, {layers} layer{'s' if layers > 1 else ''}"
            seconds = ctx.timed(evidence, calls, workload=label, quick=1, full=15, what="forward, backward, update")
            if layers == 1:
                why = "an epoch is 19 steps" if window == WINDOW else _why(ctx)
                evidence.measured(claim, seconds["HTGNN"].over(seconds["SE-HTGNN"]), gate=held, reason=why)
    if ctx.full:
        _synthetic(ctx, evidence)


def steps(name: str, layers: int, window: int, count: int, device: str = "cpu") -> Callable[[], object]:
    """Return a call that trains a contender on the first steps of an epoch."""
    data, split = flights.graph(), flights.split(window)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = network(name, data, layers, window)
    objective = RegressionObjective(model, flights.TARGET, Scaling.of(data.y[flights.TARGET][split.train]))
    objective, targets = objective.to(device), split.train[: BATCH * count]
    return lambda: fit(objective, batches(data, window, device), targets, None, Recipe(1, batch_size=BATCH))


def one_step(name: str, window: int) -> None:
    """Train a contender on one step, for a fresh process whose memory is watched."""
    steps(name, 1, window, 1)()


def _peak(name: str, layers: int, window: int, device: str = "cpu") -> int:
    call = steps(name, layers, window, 1, device)
    call()
    with threads(1):
        return allocated_peak(call, device=device)


def _parameters(evidence: Evidence, gate: Gate) -> None:
    data = flights.graph()
    counts = {layers: [_count(network(name, data, layers)) for name in PAIR] for layers in (1, 2)}
    prior = 2 * 384 * 16 + 1
    why = (
        f"{counts[1][0]} and {counts[1][1]} at one layer; {counts[2][1] / counts[2][0]:.1f} times at two; at the "
        f"published depths (1 and 2) {counts[2][1] / counts[1][0]:.1f} times; a prior projected from 384 adds {prior}"
    )
    evidence.measured("parameters", Measurement.of(counts[1][1] / counts[1][0], "ratio"), gate=gate, reason=why)


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def _gate_of_long(ctx: Context, gate: Gate) -> Gate:
    """In a full run, train at T = 30 too."""
    if not ctx.full or ctx.late(ctx.evidence(""), needs=300):
        return gate
    split = flights.split(LONG)

    def error(name: str, seed: int) -> float:
        return train(name, flights.graph(), flights.TARGET, split, seed, epochs=10, window=LONG, patience=4,
                     device=ctx.device)["mae"]  # fmt: skip

    ours, theirs = ([ctx.once(f"{name}, T = {LONG}", seed, error, name, seed) for seed in (0, 1)] for name in PAIR)
    return ours, theirs


def _why(ctx: Context) -> str:
    return "gated by training at T = 30" if ctx.full else "gated by training at T = 7; a full run trains at T = 30"


def _grows(ctx: Context, evidence: Evidence) -> None:
    """Time of a step against the window's length, at the same number of windows."""
    ctx.progress(0, 4, "time against the window")
    calls = {str(T): steps("SE-HTGNN", 1, T, 1, ctx.device) for T in LENGTHS}
    found = ctx.time(calls, repeats=5, at_most=10 if ctx.full else 0.5)
    seconds = np.array([found[str(T)].seconds.median for T in LENGTHS])
    slope = float(np.polyfit(np.log(LENGTHS), np.log(seconds), 1)[0])
    times = ", ".join(f"T = {T}: {1e3 * s:.1f} ms" for T, s in zip(LENGTHS, seconds, strict=True))
    evidence.measured("linear-in-T", Measurement.of(slope, "exponent", timed=True), reason=times)
    evidence.curves("A step's time against the window", "snapshots T", "seconds", {"SE-HTGNN": (LENGTHS, seconds)},
                    log_x=True, log_y=True)  # fmt: skip


def synthetic(edges: int, snapshots: int) -> HeteroTemporalData:
    """Return a random graph of two types with three relations, so many edges in all snapshots together."""
    g = torch.Generator().manual_seed(0)
    nodes = {"a": max(8, edges // 100), "b": max(4, edges // 400)}
    held = {}
    for triple in (("a", "near", "a"), ("b", "in", "a"), ("a", "has", "b")):
        index = torch.stack([torch.randint(nodes[triple[k]], (edges // 3,), generator=g) for k in (0, 2)])
        held[triple] = Edges(index, torch.randint(snapshots, (edges // 3,), generator=g))
    x = {name: torch.randn(snapshots, count, 4, generator=g) for name, count in nodes.items()}
    return HeteroTemporalData(nodes, held, x, {"a": x["a"][..., 0]})


def _synthetic(ctx: Context, evidence: Evidence) -> None:
    """Report a sweep over larger graphs; whoever would need more than the budget is left out."""
    for edges, T in ((20_000, 10), (200_000, 10), (200_000, 60)):
        if ctx.late(evidence, needs=120):
            return
        data, calls = synthetic(edges, T), {}
        for name in PAIR if LENGTHS[0] == T or T == 10 else PAIR[:1]:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = network(name, data, 1, T).to(ctx.device)
            batch = data.windows([T], T, ctx.device)
            calls[name] = lambda model=model, batch=batch: model(batch, "a")["a"].sum().backward()
        ctx.timed(evidence, calls, workload=f"random graph, {edges} edges, T = {T}, one window", quick=1, full=6)
