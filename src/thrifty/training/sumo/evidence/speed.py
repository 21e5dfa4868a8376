"""How long a step takes on square weights: SUMO, torch's Muon and galore-torch, refreshes apart and spread (E5)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.optim import Optimizer

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.training.sumo.evidence.contenders import make, state_holders
from thrifty.training.sumo.matrix import matrix_of
from thrifty.training.sumo.optimizer import SUMO
from thrifty.training.sumo.refresh import refresh

GAP = 200

#: (number of weights, side, rank); the quick one keeps the proportion of rank to side.
QUICK, FULL = (12, 512, 32), (24, 1024, 64)

Gates = dict[str, tuple[list[float], list[float]]]


def show(ctx: Context, evidence: Evidence, gates: Gates) -> None:
    """Steps between refreshes of all weights; the refresh of one weight; and both, spread over the interval."""
    count, side, rank = FULL if ctx.full else QUICK
    workload = f"{count} weights of {side} × {side}, rank {rank}, refresh every {GAP} steps"

    def ready(name: str, weights: int) -> Optimizer:
        return _ready(name, weights, side, rank, ctx.device)

    ctx.progress(0, 2, "optimizer steps")
    steps = ctx.time(
        {name: ready(name, count).step for name in ("SUMO", "GaLore", "Muon")},
        repeats=7 if ctx.full else 5,
        at_most=40.0 if ctx.full else 3.0,
    )
    ctx.progress(1, 2, "refreshes of the subspace")
    refreshes = ctx.time(
        {name: _refresh(ready(name, 1), rank) for name in ("SUMO", "GaLore")},
        repeats=5 if ctx.full else 3,
        at_most=15.0 if ctx.full else 2.0,
    )
    plain = {name: timing.seconds for name, timing in steps.items()}
    renewal = {name: timing.seconds for name, timing in refreshes.items()}
    spread = {name: _plus(plain[name], renewal[name], count / GAP) for name in renewal}
    for name in plain:
        metrics = steps[name].metrics("step")
        if name in renewal:
            metrics |= {"refresh of one weight": renewal[name], "step, refreshes spread": spread[name]}
        evidence.row(name, metrics, workload=workload)
    flops = count * 2 * 2 * side * side * rank
    bound = flops / (1e9 * ctx.ceilings["flops"].median)
    limit = f"{plain['SUMO'].median / bound:.1f} times its two products with the basis at the machine's best rate"
    evidence.measured("step-time-vs-muon", plain["SUMO"].over(plain["Muon"]), gate=gates["Muon"], limit=limit)
    evidence.measured("step-time-vs-galore", plain["SUMO"].over(plain["GaLore"]), gate=gates["GaLore"], limit=limit)
    evidence.measured("spread-step-time-vs-galore", spread["SUMO"].over(spread["GaLore"]), gate=gates["GaLore"])
    evidence.measured("refresh-time-vs-galore", renewal["SUMO"].over(renewal["GaLore"]), gate=gates["GaLore"])


def _ready(name: str, count: int, side: int, rank: int, device: str) -> Optimizer:
    """An optimizer that has its state and stands well before its next refresh, with gradients to step on."""
    rng = torch.Generator().manual_seed(0)
    model = nn.Sequential(*(nn.Linear(side, side, bias=False) for _ in range(count))).to(device)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=rng).to(device)
    # An interval that the timing never reaches: refreshes are timed by themselves.
    optimizer = make(name, model, 1e-6, rank=rank, gap=10**6)
    optimizer.step()
    for state in optimizer.state.values():
        if "basis" in state:
            state["step"].fill_(100)  # the ten steps after a refresh, in which the residual is watched, are 5 % of all
    return optimizer


def _refresh(optimizer: Optimizer, rank: int) -> Callable[[], object]:
    """What the optimizer does at a refresh of its one weight, and at no other step."""
    if isinstance(optimizer, SUMO):
        group = optimizer.param_groups[0]
        weight = group["params"][0]
        matrix = matrix_of("weight", 0, weight, group, optimizer.state[weight])
        return lambda: refresh([matrix], group, optimizer.seed)
    (galore,) = state_holders(optimizer)
    weight = galore.param_groups[0]["params"][0]
    return partial(galore.state[weight]["projector"].get_orthogonal_matrix, weight.grad, rank, type="right")


def _plus(step: Measurement, refresh: Measurement, share: float) -> Measurement:
    return Measurement.of([x + share * refresh.median for x in step.values], "s", timed=True)
