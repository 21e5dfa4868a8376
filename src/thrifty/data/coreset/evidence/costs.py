"""What a check and a selection cost: against a check on all data, and against a pursuit that is solved anew."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.evidence.training import OURS
from thrifty.data.coreset.gradients import LastLayerGradients
from thrifty.data.coreset.pursuit import matching_pursuit
from thrifty.data.coreset.rivals import resolved_pursuit
from thrifty.data.coreset.signal import gradient_snr

FULL_CHECK = "gradient of all data"
RESOLVED = "pursuit solved anew at each pick"


def monitor_cost(ctx: Context, evidence: Evidence, correlations: list[float]) -> None:
    """Time a check of a tenth of 10 000 samples, and one by the gradient of all of them; both with their passes.

    Args:
        ctx: Of the run.
        evidence: Where the rows go.
        correlations: Of the ratio with the discrepancy: the gate, that they are −0.6 or below.
    """
    torch.manual_seed(ctx.seed)
    data = TensorDataset(torch.randn(10_000, 784), torch.arange(10_000) % 10)
    model = nn.Sequential(
        nn.Linear(784, 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    coreset = Coreset(model, data, budget=0.1, initial="random", scoring_batch_size=1000)
    coreset.begin_epoch(1)
    subset = coreset.subset
    assert subset is not None
    times = ctx.timed(
        evidence,
        {
            OURS: lambda: gradient_snr(coreset.gradients(subset.indices)),
            FULL_CHECK: coreset.discrepancy,
        },
        workload="a check, 10 000 samples, a tenth of them in the subset",
        quick=2.0,
        full=10.0,
    )
    evidence.measured(
        "monitor-cost", times[OURS].over(times[FULL_CHECK]), gate=(correlations, [-0.6] * len(correlations))
    )


def selection_speed(ctx: Context, evidence: Evidence) -> None:
    """Time the selection within one class of ten: 100 of 1000 samples, last layer of 128 inputs and 10 classes."""
    torch.manual_seed(ctx.seed)
    labels = torch.zeros(1000, dtype=torch.int64)
    inputs = torch.randn(1000, 128).relu()
    logits = inputs @ torch.randn(128, 10) * 0.2
    gradients = LastLayerGradients(logits.softmax(1) - nn.functional.one_hot(labels, 10), inputs, labels=labels)
    target = gradients.combine(torch.ones(1000))
    rows = gradients.means([torch.tensor([at]) for at in range(1000)]).values.double().numpy()
    theirs_target = rows.sum(0)
    times = ctx.timed(
        evidence,
        {
            OURS: lambda: matching_pursuit(gradients, target, 100, eps=0.0),
            RESOLVED: lambda: resolved_pursuit(rows, theirs_target, 100, eps=0.0),
        },
        workload="100 of 1000 samples of a class",
        quick=4.0,
        full=30.0,
    )
    mine = matching_pursuit(gradients, target, 100, eps=0.0)
    _, _, residual = resolved_pursuit(rows, theirs_target, 100, eps=0.0)
    evidence.measured("selection-speed", times[RESOLVED].over(times[OURS]), gate=([mine.residual / residual], [1.0]))
    evidence.row("selection of 1000 from 10 000", {"time": _whole_selection(ctx)}, workload="a class after the other")


def _whole_selection(ctx: Context) -> Measurement:
    from thrifty.data.coreset.selectors import GradMatch

    torch.manual_seed(ctx.seed)
    labels = torch.arange(10_000) % 10
    inputs = torch.randn(10_000, 128).relu()
    errors = torch.randn(10_000, 10).softmax(1) - nn.functional.one_hot(labels, 10)
    gradients = LastLayerGradients(errors, inputs, labels=labels)
    timing = ctx.time({OURS: lambda: GradMatch(eps=0.0).select(gradients, 1000)}, repeats=3, at_most=4.0)
    return timing[OURS].seconds
