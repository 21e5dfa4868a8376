"""Jacobians and gradients under weights that grow: raw, certified, and nn.GRU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.lrcssm import LRCCell
from thrifty.models.lrcssm.inputs import blend
from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.newton import solve
from thrifty.models.lrcssm.solvers.options import SolveOptions
from thrifty.models.lrcssm.solvers.recurrence import Recurrence, adjoint_states

FACTORS = (1, 4, 12, 40, 120)
T, D, N = 200, 64, 8


def show(ctx: Context, evidence: Evidence) -> None:
    """Record both claims."""
    worst = growth = 0.0
    curves = {}
    for label, rho in (("raw", None), ("certified, ρ = 0.99", 0.99), ("certified, ρ = 1", 1.0)):
        for factor in FACTORS:
            ctx.progress(FACTORS.index(factor), len(FACTORS), f"stability: {label}")
            found = [_jacobians(factor, rho, size, ctx.seed) for size in (1.0, 1000.0)]
            J = torch.cat(found)
            largest = float(J.abs().max())
            norms = _norms(found[0])
            metrics = {
                "largest |J|": Measurement.of(largest, ""),
                "gradient over 200 steps": Measurement.of(float(norms[0] / norms[-1]), "ratio"),
            }
            evidence.row(f"LrcSSM, {label}", metrics, workload=f"weights × {factor}")
            if rho is not None:
                worst = max(worst, largest / rho)
                growth = max(growth, float(norms.max() / norms[-1]))
            if factor in {1, 120}:
                curves[f"{label}, × {factor}"] = _by_lag(norms)
    for factor in FACTORS:
        norms = _gru_norms(factor, ctx.seed)
        metrics = {"gradient over 200 steps": Measurement.of(float(norms[0] / norms[-1]), "ratio")}
        evidence.row("nn.GRU", metrics, workload=f"weights × {factor}")
        if factor in {1, 120}:
            curves[f"nn.GRU, × {factor}"] = _by_lag(norms)
    evidence.measured("stability", Measurement.of(worst, "ratio"))
    evidence.measured("gradient-norms", Measurement.of(growth, "ratio"))
    evidence.curves("Gradient by lag", "lag", "norm", curves, log_y=True)


@torch.no_grad()
def _jacobians(factor: float, rho: float | None, size: float, seed: int) -> Tensor:
    """Return the Jacobians along the states that inputs of this size lead to, (2, T, D)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cell = LRCCell(N, D, rho=rho, init="reference", dtype=torch.float64)
        u = size * torch.randn(2, T, N, dtype=torch.float64)
    for parameter in cell.parameters():
        parameter.mul_(factor)
    problem = Recurrence(cell, cell.precompute(u), (2, T), *blend(u, None, 1.0, rho))
    x0 = torch.zeros(2, D, dtype=torch.float64)
    x, _ = solve(problem, x0, SolveOptions("sequential"))
    J: Tensor = problem.phi_and_jacobian(shifted(x, x0))[1]
    return J


def _norms(J: Tensor) -> Tensor:
    """Return the norm of the last state's gradient by each state before it."""
    g = torch.zeros_like(J)
    g[:, -1] = 1.0
    norms: Tensor = adjoint_states(J, g).norm(dim=(0, 2))
    return norms


def _gru_norms(factor: float, seed: int) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cell, u = nn.GRUCell(N, D, dtype=torch.float64), torch.randn(T, 2, N, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(factor)
    h = torch.zeros(2, D, dtype=torch.float64, requires_grad=True)
    states = []
    for row in u:
        h = cell(row, h)
        h.retain_grad()
        states.append(h)
    h.sum().backward()  # type: ignore[no-untyped-call]
    return torch.stack([state.grad.norm() for state in states if state.grad is not None])


def _by_lag(norms: Tensor) -> tuple[range, list[float]]:
    """A gradient that has vanished is drawn at the bottom of the logarithm's scale."""
    lags = range(0, T, 10)
    return lags, [max(float(norms[-1 - lag]), 1e-30) for lag in lags]
