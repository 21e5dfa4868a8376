"""How long a step takes on square weights: SUMO, torch's Muon and galore-torch, refreshes apart and spread (E5)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import Optimizer

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.sumo.evidence.contenders import make

SIDE, RANK, GAP = 1024, 64, 200
QUICK_WEIGHTS, FULL_WEIGHTS = 1, 24

Gates = dict[str, tuple[list[float], list[float]]]


def show(ctx: Context, evidence: Evidence, gates: Gates) -> None:
    """Steps between refreshes of all weights; the refresh of one weight; and both, spread over the interval."""
    count = FULL_WEIGHTS if ctx.full else QUICK_WEIGHTS
    workload = f"{count} weights of {SIDE} × {SIDE}, rank {RANK}, refresh every {GAP} steps"
    ctx.progress(0, 2, "optimizer steps")
    steps = ctx.time(
        {name: _step(_ready(name, count, ctx.device)) for name in ("SUMO", "GaLore", "Muon")},
        repeats=7 if ctx.full else 5,
        at_most=40.0 if ctx.full else 3.0,
    )
    ctx.progress(1, 2, "refreshes of the subspace")
    # A refreshing step of one weight, less a plain step of one weight, is the refresh.
    single = ctx.time(
        {
            f"{name}{kind}": _step(_ready(name, 1, ctx.device), fresh=bool(kind))
            for name in ("SUMO", "GaLore")
            for kind in ("", ", refreshing")
        },
        repeats=5 if ctx.full else 3,
        at_most=15.0 if ctx.full else 3.0,
    )
    plain = {name: timing.seconds for name, timing in steps.items()}
    refresh = {name: _less(single[f"{name}, refreshing"].seconds, single[name].seconds) for name in ("SUMO", "GaLore")}
    spread = {name: _plus(plain[name], refresh[name], count / GAP) for name in refresh}
    for name, step in plain.items():
        metrics = {"step": step, "threads": Measurement.of(steps[name].threads, "threads", timed=True)}
        if name in refresh:
            metrics |= {"refresh of one weight": refresh[name], "step, refreshes spread": spread[name]}
        evidence.row(name, metrics, workload=workload)
    flops = count * 2 * 2 * SIDE * SIDE * RANK
    bound = flops / (1e9 * ctx.ceilings["flops"].median)
    limit = f"{plain['SUMO'].median / bound:.1f} times its two products with the basis at the machine's best rate"
    evidence.measured("step-time-vs-muon", plain["SUMO"].over(plain["Muon"]), gate=gates["Muon"], limit=limit)
    evidence.measured("step-time-vs-galore", plain["SUMO"].over(plain["GaLore"]), gate=gates["GaLore"], limit=limit)
    evidence.measured("spread-step-time-vs-galore", spread["SUMO"].over(spread["GaLore"]), gate=gates["GaLore"])
    evidence.measured("refresh-time-vs-galore", refresh["SUMO"].over(refresh["GaLore"]), gate=gates["GaLore"])


def _ready(name: str, count: int, device: str) -> Optimizer:
    """An optimizer that has its state and stands well before its next refresh, with gradients to step on."""
    rng = torch.Generator().manual_seed(0)
    model = nn.Sequential(*(nn.Linear(SIDE, SIDE, bias=False) for _ in range(count))).to(device)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=rng).to(device)
    # An interval that the timing never reaches: refreshes are timed by themselves.
    optimizer = make(name, model, 1e-6, rank=RANK, gap=10**6)
    optimizer.step()
    for state in optimizer.state.values():
        if "basis" in state:
            state["step"].fill_(100)  # the ten steps after a refresh, in which the residual is watched, are 5 % of all
    return optimizer


def _step(optimizer: Optimizer, fresh: bool = False) -> Callable[[], object]:
    if not fresh:
        return optimizer.step

    def refreshing() -> None:
        for part in getattr(optimizer, "parts", [optimizer]):
            for state in part.state.values():
                if "refreshed_at" in state:
                    state["refreshed_at"].fill_(-(10**6))
                if "projector" in state:
                    state["projector"].ortho_matrix = None
        optimizer.step()

    return refreshing


def _less(a: Measurement, b: Measurement) -> Measurement:
    return Measurement.of([x - b.median for x in a.values], "s", timed=True)


def _plus(step: Measurement, refresh: Measurement, share: float) -> Measurement:
    return Measurement.of([x + share * refresh.median for x in step.values], "s", timed=True)
