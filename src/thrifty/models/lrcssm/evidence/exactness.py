"""States and gradients of every cell, solved in parallel, against the recurrence in order on autograd's tape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.lrcssm import DiagonalRNN, newton_solve
from thrifty.models.lrcssm.cells import DiagonalCell, make_cell
from thrifty.models.lrcssm.solvers.recurrence import Recurrence

CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "LRC": ("lrc", {}),
    "LRC, symmetric": ("lrc", {"elastance": "symmetric"}),
    "LRC, elastance reads the input": ("lrc", {"elastance_input": True}),
    "LRC, certified": ("lrc", {"rho": 0.99}),
    "LRC, complex": ("lrc-complex", {}),
    "LRC, linear": ("lrc-linear", {}),
    "LRC, dense": ("lrc-dense", {}),
    "STC": ("stc", {}),
    "GRU": ("gru", {}),
    "MGU": ("mgu", {}),
    "LSTM": ("lstm", {}),
}
T, D = 60, 8


def show(ctx: Context, evidence: Evidence) -> float:
    """Record the claim, and return the relative difference of the layer that is timed, in single precision."""
    worst = 0.0
    for done, (label, (kind, options)) in enumerate(CELLS.items()):
        ctx.progress(done, len(CELLS), f"exactness of {label}")
        states, gradients, n_iter = _differences(kind, options, ctx.seed)
        worst = max(worst, states, gradients)
        evidence.row(
            label,
            {
                "states differ by": Measurement.of(states, "relative"),
                "gradients differ by": Measurement.of(gradients, "relative"),
                "Newton iterations": Measurement.of(n_iter, "iterations"),
            },
            workload=f"exactness, float64, T = {T}, D = {D}",
        )
    evidence.measured("exact", Measurement.of(worst, "relative"))
    return _single(ctx.seed)


def _differences(kind: str, options: dict[str, Any], seed: int) -> tuple[float, float, int]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        cell = make_cell(kind, 4, D, dtype=torch.float64, **options)
        u = torch.randn(2, T, 4, dtype=torch.float64)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.mul_(1.5)
    x, info = newton_solve(cell, u, tol=1e-12)
    y = _in_order(cell, u)
    weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape)
    ours, theirs = (_gradients(cell, states, weights) for states in (x, y))
    scale = max(float(g.abs().max()) for g in theirs)
    gap = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    return float((x - y).detach().abs().max()), gap / max(1.0, scale), int(info.n_iter.max())


def _in_order(cell: DiagonalCell, u: Tensor) -> Tensor:
    problem = Recurrence(cell, cell.precompute(u), (u.shape[0], u.shape[1]))
    x = torch.zeros(len(u), cell.hidden_size, dtype=cell.state_dtype)
    states = []
    for t in range(u.shape[1]):
        x = problem.at(t, x)
        states.append(x)
    return torch.stack(states, 1)


def _gradients(cell: DiagonalCell, states: Tensor, weights: Tensor) -> list[Tensor]:
    found = torch.autograd.grad((states * weights).real.sum(), list(cell.parameters()), allow_unused=True)
    return [g for g in found if g is not None]


@torch.no_grad()
def _single(seed: int) -> float:
    """Compare Newton and the compiled recurrence in float32 with the recurrence in order in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layer, u = DiagonalRNN("lrc", 64, 64), torch.randn(1, 1024, 64)
    newton = DiagonalRNN(layer.cell, solver="newton")
    exact = DiagonalRNN("lrc", 64, 64, solver="sequential", dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    y = exact(u.double())[0]
    return max(float((one(u)[0] - y).abs().max() / y.abs().max()) for one in (layer, newton))
