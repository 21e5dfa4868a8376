"""E1b: on embeddings that stay as they are, the network forgets the noise of the batches that it was fitted to."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.training.amorlip.amortizer import PartitionAmortizer
from thrifty.training.amorlip.evidence.contenders import OURS
from thrifty.training.amorlip.partition import estimate_log_partition

SAMPLES, DIM, SCALE, BATCH, STEPS = 512, 32, 5.0, 32, 2000


def show(ctx: Context, evidence: Evidence) -> None:
    """Measure the squared error of log Z by the batch and by the network, over a part of the set and over all of it."""
    seeds = ctx.seeds(quick=1, full=3)
    with threads(1):
        found = [ctx.once("frozen", seed, fit, seed) for seed in seeds]
    columns = {name: Measurement.of([run[name] for run in found], "nats²") for name in ("batch", "network")}
    workload = f"{SAMPLES} frozen embeddings in 8 clusters, s = {SCALE:g}, {STEPS} batches of {BATCH}"
    evidence.row("the batch's own", {"squared error": columns["batch"]}, workload=workload)
    bias = Measurement.of([run["bias"] for run in found], "nats")
    evidence.row(OURS, {"squared error": columns["network"], "mean error": bias}, workload=workload)
    evidence.measured("frozen-embeddings", columns["batch"].over(columns["network"]))


def fit(seed: int) -> dict[str, float]:
    """Fit to small batches, and hold against the exact partition functions."""
    generator = torch.Generator().manual_seed(seed)
    u, v = _clusters(generator)
    exact = estimate_log_partition(u, v, SCALE)
    amortizer = PartitionAmortizer(DIM, num_samples=SAMPLES, hidden_factor=1.0, amor_steps=1, seed=seed)
    errors = []
    for _ in range(STEPS):
        rows = torch.randperm(SAMPLES, generator=generator)[:BATCH]
        target, _ = amortizer.fit_batch(u[rows], v[rows], SCALE)
        errors.append((target - exact[rows]).square().mean())
    off = amortizer.predict(u, v, which="online")[0] - exact
    return {
        "batch": float(torch.stack(errors).mean()),
        "network": float(off.square().mean()),
        "bias": float(off.mean()),
    }


def _clusters(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    centres = functional.normalize(torch.randn(8, DIM, generator=generator), dim=1)
    of = torch.randint(8, (SAMPLES,), generator=generator)
    u, v = (
        functional.normalize(centres[of] + 0.15 * torch.randn(SAMPLES, DIM, generator=generator), dim=1) for _ in "uv"
    )
    return u, v
