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
WINDOW, WIDTH, EPOCHS = 3, 16, 8


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

    def one(name: str, seed: int) -> list[float]:
        return _auc(data, name, seed)

    found = ctx.runs(evidence, ("SE-HTGNN", "HTGNN"), ctx.seeds(quick=1, full=2), one, workload=LABEL)
    for name, runs in found.items():
        columns = {title: Measurement.of([100 * run[i] for run in runs], "%") for i, title in enumerate(("AUC", "AP"))}
        evidence.row(name, columns, workload=LABEL)
    if len(found) == 2:
        ours, theirs = (
            Measurement.of([100 * run[0] for run in found[name]], "points") for name in ("SE-HTGNN", "HTGNN")
        )
        evidence.measured("links", ours.minus(theirs))


def _auc(data: HeteroTemporalData, name: str, seed: int) -> list[float]:
    types, triples = data.metadata()
    metadata = (types, [t for t in triples if "meets" not in t[1]])
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(seed)
        kind = SEHTGNN if name == "SE-HTGNN" else HTGNN
        model: nn.Module = kind(metadata, {}, WIDTH, 1, num_layers=1, window=WINDOW, num_nodes=data.num_nodes)
        objective = LinkObjective(model, ANY, WIDTH, seed=seed)
        fit(objective, batches(data, WINDOW), np.arange(WINDOW, 8), lambda: -_scores(objective, data, 8)[0],
            Recipe(EPOCHS, 1e-2, 1e-5, batch_size=2, patience=3, seed=seed))  # fmt: skip
        return _scores(objective, data, 9)


@torch.no_grad()
def _scores(objective: LinkObjective, data: HeteroTemporalData, day: int) -> list[float]:
    z = objective.model.encode(data.windows([day], WINDOW), ["user", "item"])  # type: ignore[operator]
    pairs = [positive_edges(data, ANY, day), negative_edges(data, ANY, day, np.random.default_rng(day))]
    scores = [objective.score(z["user"][0, :, 0], z["item"][0, :, 0], some).numpy() for some in pairs]
    found = link_metrics(np.concatenate(scores), np.repeat([1, 0], [len(scores[0]), len(scores[1])]))
    return [found["auc"], found["ap"]]
