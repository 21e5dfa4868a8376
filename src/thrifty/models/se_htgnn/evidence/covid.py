"""The second workload: new cases of COVID-19 in 129 English regions, and who moved where, over 61 days of 2020.

One node type; movements make five relations: the stronger and the weaker half of each day's flows between regions,
their reverses, and who stayed in a region. Features: log(1 + cases); tomorrow's cases are forecast. Chosen, and its
threshold fixed, before the first run. The file comes from PyTorch Geometric Temporal and is read from the folder of
extra data.
"""

from __future__ import annotations

import json
import os
import statistics
from functools import cache
from pathlib import Path

import torch

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.se_htgnn import Edges, HeteroTemporalData, Split, temporal_split
from thrifty.models.se_htgnn.evidence.accuracy import gap
from thrifty.models.se_htgnn.evidence.contenders import WINDOW, train
from thrifty.models.se_htgnn.metrics import regression_metrics
from thrifty.models.se_htgnn.rivals import naive

LABEL, FILE = "English regions, COVID-19 cases", "england_covid.json"
HELD_OUT, EPOCHS, PATIENCE = 10, 100, 25
PAIR = ("SE-HTGNN", "HTGNN")

#: Windows a step: there are 34 in all (the paper's code updates after each).
BATCH = 4

#: From ``tuning.py``.
RATES = {"SE-HTGNN": 1e-2, "HTGNN": 3e-3}


def extra_file(name: str) -> Path:
    """Return a file of the folder of extra data.

    Raises:
        UnavailableError: It is not there.
    """
    folder = os.environ.get("THRIFTY_DATA")
    if not folder or not Path(folder, name).exists():
        raise UnavailableError(
            f"{name} is no package's: it is read from the folder that THRIFTY_DATA names, if that has it"
        )
    return Path(folder, name)


@cache
def graph() -> HeteroTemporalData:
    """Return the graph.

    Raises:
        UnavailableError: The file is not there.
    """
    found = json.loads(extra_file(FILE).read_text())
    cases = torch.tensor(found["y"], dtype=torch.float32)
    flows: dict[str, list[torch.Tensor]] = {"strong_flow": [], "weak_flow": [], "stays": []}
    for day in range(len(cases)):
        index = torch.tensor(found["edge_mapping"]["edge_index"][str(day)]).T
        weight = torch.tensor(found["edge_mapping"]["edge_weight"][str(day)])
        within = index[0] == index[1]
        heavy = weight >= weight[~within].median()
        for name, kept in (("strong_flow", heavy & ~within), ("weak_flow", ~heavy & ~within), ("stays", within)):
            flows[name].append(index[:, kept])
    edges = {("region", name, "region"): Edges(torch.cat(parts, 1), _days(parts)) for name, parts in flows.items()}
    for name in ("strong_flow", "weak_flow"):
        held = edges["region", name, "region"]
        edges["region", f"rev_{name}", "region"] = Edges(held.index.flip(0), held.snapshot)
    return HeteroTemporalData(
        {"region": cases.shape[1]}, edges, {"region": torch.log1p(cases)[..., None]}, {"region": cases}
    )


def _days(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.full((part.shape[1],), day) for day, part in enumerate(parts)])


def show(ctx: Context, evidence: Evidence) -> None:
    """Train both on the first days, and compare on the last ten."""
    data, parts = graph(), split()
    found = ctx.runs(
        evidence, PAIR, ctx.seeds(quick=2, full=3),
        lambda name, seed: one(data, name, seed, RATES[name], device=ctx.device),
        workload=LABEL,
    )  # fmt: skip
    y = data.y["region"].numpy()
    guesses = {
        "persistence": naive.persistence(y, parts.test, parts.train),
        "seasonal naive": naive.seasonal(y, parts.test, parts.train),
        "ridge on own lags": naive.ridge(y, parts.test, parts.train, parts.validation),
    }
    for name, guess in guesses.items():
        mae = regression_metrics(guess, y[parts.test])["mae"]
        evidence.row(name, {"MAE": Measurement.of(mae, "cases")}, workload=LABEL)
    errors = {name: [run["mae"] for run in runs] for name, runs in found.items()}
    for name, values in errors.items():
        evidence.row(name, {"MAE": Measurement.of(values, "cases")}, workload=LABEL)
    if len(errors) == len(PAIR):
        ours, theirs = (errors[name] for name in PAIR)
        reason = f"{statistics.mean(ours):.2f} and {statistics.mean(theirs):.2f} cases"
        evidence.measured("second-workload", gap(ours, theirs), reason=reason)


def split() -> Split:
    """Return the last ten days to test, ten before them to stop by, and the rest."""
    return temporal_split(graph(), WINDOW, HELD_OUT, HELD_OUT)


def one(
    data: HeteroTemporalData, name: str, seed: int, lr: float, *, test: bool = True, device: str = "cpu"
) -> dict[str, float]:
    """Train a contender, and return its errors."""
    return train(name, data, "region", split(), seed, epochs=EPOCHS, lr=lr, batch=BATCH, patience=PATIENCE, log=True,
                 test=test, device=device)  # fmt: skip
