"""The second workload: new cases of COVID-19 in 129 English regions, and who moved where, over 61 days of 2020.

One node type; movements between regions make four relations: the stronger and the weaker half of each day's flows,
and their reverses. Features: log(1 + cases); tomorrow's cases are forecast. Chosen, and its threshold fixed, before the
first run. The file comes from PyTorch Geometric Temporal and is read from the folder of extra data.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from thrifty.bench.carried import UnavailableError
from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.models.se_htgnn import Edges, HeteroTemporalData, temporal_split
from thrifty.models.se_htgnn.evidence.accuracy import gap
from thrifty.models.se_htgnn.evidence.contenders import WINDOW, train
from thrifty.models.se_htgnn.metrics import regression_metrics
from thrifty.models.se_htgnn.rivals import naive

LABEL, FILE = "English regions, COVID-19 cases", "england_covid.json"
HELD_OUT, EPOCHS, PATIENCE = 10, 100, 25


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


def graph() -> HeteroTemporalData:
    """Return the graph.

    Raises:
        UnavailableError: The file is not there.
    """
    found = json.loads(extra_file(FILE).read_text())
    cases = torch.tensor(found["y"], dtype=torch.float32)
    strong, weak = [], []
    for day in range(len(cases)):
        index = torch.tensor(found["edge_mapping"]["edge_index"][str(day)]).T
        weight = torch.tensor(found["edge_mapping"]["edge_weight"][str(day)])
        heavy = weight >= weight.median()
        strong.append(index[:, heavy])
        weak.append(index[:, ~heavy])
    edges = {("region", name, "region"): Edges(torch.cat(parts, 1), _days(parts)) for name, parts in
             (("strong_flow", strong), ("weak_flow", weak))}  # fmt: skip
    data = HeteroTemporalData(
        {"region": cases.shape[1]}, edges, {"region": torch.log1p(cases)[..., None]}, {"region": cases}
    )
    return data.with_reverse()


def _days(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.full((part.shape[1],), day) for day, part in enumerate(parts)])


def show(ctx: Context, evidence: Evidence) -> None:
    """Train both on the first days, and compare on the last ten."""
    data = graph()
    split = temporal_split(data, WINDOW, HELD_OUT, HELD_OUT)

    def one(name: str, seed: int) -> dict[str, float]:
        return train(name, data, "region", split, seed, epochs=EPOCHS, patience=PATIENCE, log=True)

    found = ctx.runs(evidence, ("SE-HTGNN", "HTGNN"), ctx.seeds(quick=2, full=3), one, workload=LABEL)
    y = data.y["region"].numpy()
    for name, guess in (("persistence", naive.persistence(y, split.test, split.train)),
                        ("seasonal naive", naive.seasonal(y, split.test, split.train))):  # fmt: skip
        mae = regression_metrics(guess, y[split.test])["mae"]
        evidence.row(name, {"MAE": Measurement.of(mae, "cases")}, workload=LABEL)
    errors = {name: [run["mae"] for run in runs] for name, runs in found.items()}
    for name, values in errors.items():
        evidence.row(name, {"MAE": Measurement.of(values, "cases")}, workload=LABEL)
    if len(errors) == 2:
        evidence.measured("second-workload", gap(errors["SE-HTGNN"], errors["HTGNN"]))
