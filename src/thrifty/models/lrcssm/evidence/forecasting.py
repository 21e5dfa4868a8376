"""One small row of forecasting, reported: eight steps ahead on the pressure series of PigCVP."""

from __future__ import annotations

import statistics

import numpy as np
import torch
from torch.nn import functional

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.data import timeseries
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.models.lrcssm.evidence.contenders import RATES, make_layer
from thrifty.models.lrcssm.network import LrcSSMModel

AHEAD, STRIDE, UPDATES = 8, 8, 150


def show(ctx: Context, evidence: Evidence) -> None:
    """Train two layers to predict the value eight steps on, at every step."""
    errors = {}
    for name in ("LrcSSM", "nn.GRU"):
        ctx.progress(0, 1, f"{name}: forecasting")
        seeds = ctx.seeds(quick=1, full=2)
        found = [ctx.once(f"{name}, forecasting", seed, _error, name, seed) for seed in seeds]
        errors[name] = found
        evidence.row(
            name, {"squared error over the last value's": Measurement.of(found, "ratio")},
            workload=f"PigCVP, {AHEAD} steps ahead (reported)",
        )  # fmt: skip
    evidence.measured("forecasting", Measurement.of(errors["LrcSSM"], "ratio"),
                      reason=f"nn.GRU: {statistics.mean(errors['nn.GRU']):.3g}")  # fmt: skip


def _error(name: str, seed: int) -> float:
    train, test = (torch.from_numpy(np.stack([x[0, ::STRIDE] for x in part.X])) for part in timeseries.load("PigCVP"))
    center, scale = train.mean(), train.std()
    train, test = (train - center) / scale, (test - center) / scale
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(seed)
        layer = make_layer(name, 32, train.shape[1])
        model = LrcSSMModel(1, 1, d_model=32, d_state=32, n_layers=1, per_step=True, task="regression", layers=[layer])
        optimizer = torch.optim.Adam(model.parameters(), lr=RATES[name])
        for step in range(UPDATES):
            rows = torch.from_numpy(np.random.default_rng([seed, step]).integers(0, len(train), 16))
            loss = _loss(model, train[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with torch.no_grad():
            naive = functional.mse_loss(test[:, :-AHEAD], test[:, AHEAD:])
            return float(_loss(model.eval(), test) / naive)


def _loss(model: LrcSSMModel, x: torch.Tensor) -> torch.Tensor:
    """Predict the change from the last value."""
    now, later = x[:, :-AHEAD], x[:, AHEAD:]
    return functional.mse_loss(now + model(now.unsqueeze(-1)).squeeze(-1), later)
