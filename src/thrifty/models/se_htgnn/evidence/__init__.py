"""What `thrifty bench se-htgnn` measures: errors of forecasts, and what they cost in training, beside HTGNN and others.

Workloads, splits and thresholds were fixed before the first run. Costs are compared at equal depth and width, and each
is gated by the test error: not above HTGNN's beyond the spread over seeds.
"""

from __future__ import annotations

from thrifty.bench.claims import Claim, Gate, Target
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence

ACCURATE = Gate("MAE on test days", margin=0.0, by="sd")
PAIR = ("SE-HTGNN", "HTGNN")

CLAIMS = (
    Claim(
        id="mae",
        text="Flights, MAE: standard deviations over seeds by which it is above HTGNN's.",
        about="quality",
        unit="sd",
        contenders=PAIR,
        target=Target("<=", 1.0),
        published="COVID-19, MAE: 497 ± 5, HTGNN 555 ± 34",
        budget="full",
    ),
    Claim(
        id="vs-naive",
        text="Flights, MAE over the best of persistence, last week's value, yesterday's mean and the per-node median.",
        about="quality",
        unit="ratio",
        contenders=("SE-HTGNN", "per-node median", "persistence", "seasonal naive"),
        target=Target("<", 1.0),
    ),
    Claim(
        id="vs-ridge",
        text="Flights, MAE over that of a ridge regression on each airport's own lags.",
        about="quality",
        unit="ratio",
        contenders=("SE-HTGNN", "ridge on own lags"),
    ),
    Claim(
        id="second-workload",
        text="COVID-19 in English regions, MAE: standard deviations over seeds by which it is above HTGNN's.",
        about="quality",
        unit="sd",
        contenders=PAIR,
        target=Target("<=", 1.0),
        budget="full",
    ),
    Claim(
        id="links",
        text="Ecomm, links of the next day: AUC, less HTGNN's.",
        about="quality",
        unit="points",
        contenders=PAIR,
        published="AUC: HTGNN 76.8 ± 6.4, DHGAS 86.6",
        budget="full",
    ),
    Claim(
        id="parameters",
        text="HTGNN has at least 20 times the parameters, at one layer (T = 7, d = 16; no language prior counted).",
        about="parameters",
        unit="ratio",
        contenders=PAIR,
        target=Target(">=", 20.0),
        gate=ACCURATE,
    ),
    Claim(
        id="epoch-time",
        text="An epoch is at least 5 times as fast as HTGNN's at T = 7, both vectorised, one layer.",
        about="time",
        unit="ratio",
        contenders=PAIR,
        target=Target(">=", 5.0),
        gate=ACCURATE,
        published="whole training on a GPU: COVID-19 64 s, HTGNN 1403 s",
    ),
    Claim(
        id="epoch-time-30",
        text="An epoch is at least 10 times as fast as HTGNN's at T = 30, both vectorised, one layer.",
        about="time",
        unit="ratio",
        contenders=PAIR,
        target=Target(">=", 10.0),
        gate=ACCURATE,
    ),
    Claim(
        id="memory",
        text="A training step takes at most half of HTGNN's peak memory (T = 7, one layer).",
        about="memory",
        unit="ratio",
        contenders=PAIR,
        target=Target("<=", 0.5),
        gate=ACCURATE,
    ),
    Claim(
        id="linear-in-T",
        text="A step's time grows with T to a power of at most 1.1, from 7 to 60 snapshots.",
        about="scaling",
        unit="exponent",
        contenders=("SE-HTGNN",),
        target=Target("<=", 1.1),
    ),
    Claim(
        id="prior-ablation",
        text="Flights, MAE with MiniLM's prior, less that with a uniform one, in minutes.",
        about="mechanism",
        unit="min",
        contenders=("SE-HTGNN",),
        published="COVID-19, MAE: language prior 497, random 542, average 521, zero 524",
        budget="full",
    ),
)


def prepare() -> None:
    """Compile the passes, which is done once an installation."""
    import torch

    from thrifty.models.se_htgnn import Edges, HeteroTemporalData
    from thrifty.models.se_htgnn.evidence.contenders import network

    edges = {("a", "to", "a"): Edges(torch.tensor([[0], [1]]), torch.tensor([0]))}
    data = HeteroTemporalData({"a": 2}, edges, {"a": torch.ones(2, 2, 1)})
    for name in PAIR:
        network(name, data, window=2)(data.windows([2], 2))["a"].sum().backward()


def run(ctx: Context) -> Evidence:
    """Measure errors first, which the gates need; then costs; then, in a full run, the rest."""
    from thrifty.models.se_htgnn.evidence import ablation, accuracy, costs, covid, links

    evidence = ctx.evidence("365 days of New York's flights (336 776): tomorrow's mean delay at every destination")
    with evidence.needs(
        "mae", "vs-naive", "vs-ridge", "parameters", "epoch-time", "epoch-time-30", "memory", "linear-in-T"
    ):
        gate = accuracy.show(ctx, evidence)
        costs.show(ctx, evidence, gate)
    if ctx.full:
        with evidence.needs("second-workload"):
            if not ctx.late(evidence, "second-workload", needs=90):
                covid.show(ctx, evidence)
        with evidence.needs("prior-ablation"):
            if not ctx.late(evidence, "prior-ablation", needs=120):
                ablation.show(ctx, evidence)
        with evidence.needs("links"):
            if not ctx.late(evidence, "links", needs=120):
                links.show(ctx, evidence)
    return evidence
