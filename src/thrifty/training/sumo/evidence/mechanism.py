"""Why an exact factor: errors over condition numbers, and an ill-conditioned quadratic."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.training.sumo import SUMO
from thrifty.training.sumo.orthogonal import relative_error

CONDITIONS = (1.0, 10.0, 1e2, 1e3, 1e4, 1e5, 1e6)
WORKLOAD = "moments of 8 × 64 with singular values log-spaced from 1 to 1/κ"


def show(ctx: Context, evidence: Evidence) -> None:
    """Errors of the orthogonalisers, and, in full mode, steps on the quadratic."""
    with threads(1):  # tiny matrices
        _show(ctx, evidence)


def _show(ctx: Context, evidence: Evidence) -> None:
    seeds = ctx.seeds(quick=3, full=5)
    curves = {}
    errors: dict[str, list[list[float]]] = {}
    for label, method in (
        ("exact (float64 Gram matrix)", "auto"),
        ("exact (QR, small SVD)", "qr_svd"),
        ("Newton-Schulz, 5 steps", "ns5"),
        ("Gram, fp32", "gram32"),
    ):
        errors[method] = [[relative_error(conditioned(8, 64, c, s), method).item() for s in seeds] for c in CONDITIONS]
        curves[label] = [max(float(np.median(e)), 1e-8) for e in errors[method]]
        metrics = {
            f"error at κ = {c:g}": Measurement.of(e, "ratio") for c, e in zip(CONDITIONS, errors[method], strict=True)
        }
        evidence.row(label, {name: value for name, value in metrics.items() if "e+05" not in name}, workload=WORKLOAD)
    places = {label: (CONDITIONS, values) for label, values in curves.items()}
    evidence.curves("Error of the polar factor", "κ(M)", "‖Ô − O‖/‖O‖", places, log_x=True, log_y=True)
    # Up to 1e4: beyond it float32 cannot tell the small singular values of any moment from rounding.
    upto = CONDITIONS.index(1e4) + 1
    worst = [max(errors["auto"][i][s] for i in range(upto)) for s in range(len(seeds))]
    best = [min(errors["ns5"][i][s] for i in range(upto)) for s in range(len(seeds))]
    evidence.measured("svd-vs-newton-schulz", Measurement.of(worst, "ratio").over(Measurement.of(best, "ratio")))
    for label, options in QUADRATIC.items() if ctx.full else ():
        steps = [ctx.once(f"quadratic, {label}", seed, partial(quadratic, seed, options)) for seed in seeds[:3]]
        evidence.row(
            label, {"steps to 1e-3 of the start": Measurement.of(steps, "steps")}, workload="quadratic, cond(H) = 1e4"
        )


def conditioned(r: int, n: int, condition: float, seed: int) -> Tensor:
    """A float32 matrix with the given condition number."""
    rng = torch.Generator().manual_seed(seed)
    U = torch.linalg.qr(torch.randn(r, r, generator=rng, dtype=torch.float64)).Q
    V = torch.linalg.qr(torch.randn(n, r, generator=rng, dtype=torch.float64)).Q
    M: Tensor = U * torch.logspace(0, -math.log10(condition), r, dtype=torch.float64) @ V.T
    return M.float()


#: Each at the best of a grid of rates (:data:`RATES`), on the very problem: what is compared is the reachable.
QUADRATIC = {"orthogonalised exactly": "auto", "by Newton-Schulz": "ns5", "not orthogonalised (SGD with momentum)": ""}
RATES = {"auto": (0.1, 0.2, 0.3, 0.5, 1.0), "ns5": (0.1, 0.2, 0.3, 0.5, 1.0), "": (0.2, 0.5, 1.0, 2.0, 4.0)}
MOST_STEPS = 300


def quadratic(seed: int, orthogonalizer: str) -> int:
    """Return the fewest steps over a grid of rates that bring ½ tr((W−W*)ᵀH(W−W*)) to 1e-3 of its start.

    W* − W₀ has rank 4 and lies along eigenvectors of H that span its condition number of 1e4.
    """
    rng = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(40, 40, generator=rng)).Q
    H = basis * torch.logspace(0, -4, 40) @ basis.T
    goal = basis[:, ::10] @ torch.randn(4, 30, generator=rng)
    return min(_steps(H, goal, lr, orthogonalizer) for lr in RATES[orthogonalizer])


def _steps(H: Tensor, goal: Tensor, lr: float, orthogonalizer: str) -> int:
    weight = nn.Parameter(torch.zeros_like(goal))
    optimizer: torch.optim.Optimizer = torch.optim.SGD([weight], lr=lr, momentum=0.9)
    if orthogonalizer:
        options: dict[str, Any] = {"momentum": 0.0, "update_proj_gap": 1, "residual": "none", "adjust_lr_fn": "none"}
        optimizer = SUMO([weight], rank=4, orthogonalizer=orthogonalizer, lr=lr, **options)
    start = 0.0
    for step in range(MOST_STEPS):
        rest = weight.detach() - goal
        loss = 0.5 * (rest * (H @ rest)).sum().item()
        start = start or loss
        if loss <= 1e-3 * start:
            return step
        weight.grad = H @ rest
        optimizer.param_groups[0]["lr"] = lr * 0.985**step
        optimizer.step()
    return MOST_STEPS
