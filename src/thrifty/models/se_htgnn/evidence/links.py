"""Reported: which pairs of users and items meet on the next day, on the data that the literature uses (Ecomm).

Four kinds of meeting (click, buy, cart, favourite, as DHGAS calls them), each with its reverse; ids are all that is
known of users and items. Day 8 validates, day 9 tests; pairs with a node that no earlier day has seen are left out.
The file comes from DyHATR and is read from the folder of extra data.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.models.se_htgnn import SEHTGNN, Edges, HeteroTemporalData, negative_edges
from thrifty.models.se_htgnn.evidence.covid import extra_file
from thrifty.models.se_htgnn.fitting import Recipe, batches, fit
from thrifty.models.se_htgnn.metrics import link_metrics
from thrifty.models.se_htgnn.objectives import LinkObjective
from thrifty.models.se_htgnn.rivals.htgnn import HTGNN
from thrifty.models.se_htgnn.splits import positive_edges

LABEL, FILE = "Ecomm, links of the next day", "ecomm_edge_train.txt"
NAMES = {1: "click", 2: "buy", 3: "cart", 4: "favorite"}
ANY = ("user", "meets", "item")
PAIR = ("SE-HTGNN", "HTGNN")
VALIDATION, TEST = 8, 9  # days
WINDOW, WIDTH, EPOCHS, PATIENCE = 3, 16, 20, 6

#: From ``tuning.py``: the rates of the best AUC on the validation day.
RATES = {"SE-HTGNN": 1e-2, "HTGNN": 3e-2}


def graph() -> HeteroTemporalData:
    """Return the graph, with a relation for whatever kind of meeting.

    Raises:
        thrifty.bench.carried.UnavailableError: The file is not there.
    """
    table = np.loadtxt(extra_file(FILE), dtype=np.int64)
    users, source = np.unique(table[:, 0], return_inverse=True)
    items, target = np.unique(table[:, 1], return_inverse=True)
    _, day = np.unique(table[:, 3], return_inverse=True)
    edges = {}
    for code, name in NAMES.items():
        kind = table[:, 2] == code
        edges["user", name, "item"] = _edges(source[kind], target[kind], day[kind])
    edges[ANY] = _edges(source, target, day)
    data = HeteroTemporalData({"user": len(users), "item": len(items)}, edges)
    return data.with_reverse()


def _edges(source: np.ndarray, target: np.ndarray, day: np.ndarray) -> Edges:
    held = np.unique(np.stack([day, source, target]), axis=1)
    return Edges(torch.from_numpy(held[1:]), torch.from_numpy(held[0]))


def show(ctx: Context, evidence: Evidence) -> None:
    """Train both, and report how well links are told from pairs that are none."""
    data = graph()
    found = ctx.runs(
        evidence,
        PAIR,
        ctx.seeds(quick=1, full=2),
        lambda name, seed: one(data, name, seed, RATES[name], device=ctx.device),
        workload=LABEL,
    )
    for name, runs in found.items():
        columns = {title: Measurement.of([100 * run[key] for run in runs], "%") for title, key in
                   (("AUC", "auc"), ("AP", "ap"))}  # fmt: skip
        evidence.row(name, columns, workload=LABEL)
    if len(found) == len(PAIR):
        ours, theirs = (Measurement.of([100 * run["auc"] for run in found[name]], "points") for name in PAIR)
        evidence.measured("links", ours.minus(theirs))


def one(
    data: HeteroTemporalData, name: str, seed: int, lr: float, *, test: bool = True, device: str = "cpu"
) -> dict[str, float]:
    """Train a contender, and return its best AUC on the validation day, and AUC and AP on the test day."""
    types, triples = data.metadata()
    metadata = (types, [t for t in triples if "meets" not in t[1]])
    kind = {"SE-HTGNN": SEHTGNN, "HTGNN": HTGNN}[name]
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = kind(metadata, {}, WIDTH, 1, num_layers=1, window=WINDOW, num_nodes=data.num_nodes)
        objective = LinkObjective(model, ANY, WIDTH, seed=seed).to(device)
        fitted = fit(objective, batches(data, WINDOW, device), np.arange(WINDOW, VALIDATION),
                     lambda: -scores(objective, data, VALIDATION)["auc"],
                     Recipe(EPOCHS, lr, 1e-5, batch_size=1, patience=PATIENCE, seed=seed))  # fmt: skip
        return {"validation": -fitted.best_score, **(scores(objective, data, TEST) if test else {})}


@torch.no_grad()
def scores(objective: LinkObjective, data: HeteroTemporalData, day: int) -> dict[str, float]:
    """Return AUC and AP of a day's links against as many pairs that are none."""
    device = next(objective.parameters()).device
    z = objective.model.encode(data.windows([day], WINDOW, device), ["user", "item"])  # type: ignore[operator]
    pairs = [positive_edges(data, ANY, day), negative_edges(data, ANY, day, np.random.default_rng(day))]
    found = [objective.score(z["user"][0, :, 0], z["item"][0, :, 0], some).cpu().numpy() for some in pairs]
    return link_metrics(np.concatenate(found), np.repeat([1, 0], [len(found[0]), len(found[1])]))
