"""A federation in one process: deterministic, resumable after any round, with clients that fail on purpose."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import nn

from thrifty._common.checks import one_of, whole
from thrifty._common.files import write_whole
from thrifty.training.leff.capacity import compute_share
from thrifty.training.leff.client import LeffClient, measured_by_clients
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.importance import Batch, LossFn
from thrifty.training.leff.rounds import History, RoundRecord, Update, finite
from thrifty.training.leff.server import LeffServer

#: What becomes of a reply, by round and client: ``None``: it comes; ``"lost"``: never; ``"late"``: in the next round.
Faults = Callable[[int, str], Literal["lost", "late"] | None]
Evaluate = Callable[[nn.Module], Mapping[str, float]]


def simulate(
    model: nn.Module,
    clients: Sequence[LeffClient],
    proxy: Sequence[Batch] | None = None,
    rounds: int = 20,
    config: LeffConfig | None = None,
    *,
    loss_fn: LossFn | None = None,
    evaluate: Evaluate | None = None,
    faults: Faults | None = None,
    out: str | Path | None = None,
    layers: str | None = None,
    progress: Callable[[RoundRecord], object] | None = None,
) -> History:
    """Run a federation in this process; the model is trained in place.

    Clients run one after the other on models that share what is frozen with the global one, so that memory holds one
    model, one block and the stand-ins, however many clients there are.

    Args:
        model: The global model.
        clients: All of them; who takes part in a round is drawn.
        proxy: Public batches, for importance and stand-ins.
        rounds: Until so many are finished.
        config: Of the federation.
        loss_fn: For importance on the server; the model's own by default.
        evaluate: Called with the model (in evaluation mode) behind every round; its numbers go to the ledger.
        faults: Replies that get lost or come a round late.
        out: A folder for checkpoints, one a round (the last two are kept); a run that is there goes on, bit by bit.
        layers: Path of the layers, where they are not found.
        progress: Called with every round's record.

    Returns:
        The ledger.

    Raises:
        ValueError: Two clients have one name, a setting does not fit, or the run in ``out`` has other settings.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> tiny = GPT2Config(n_embd=8, n_layer=4, n_head=2)
        >>> ids = torch.arange(32).reshape(4, 8)
        >>> clients = [LeffClient(n, {"input_ids": ids, "labels": ids}, capacity=1 + i) for i, n in enumerate("abc")]
        >>> config = LeffConfig(compression="drop", sampler="random", lr=1e-3)
        >>> history = simulate(GPT2LMHeadModel(tiny), clients, rounds=2, config=config)
        >>> len(history.rounds), history.up < history.down
        (2, True)

    Source:
        Shen et al., NeurIPS 2025, section 3.
    """
    whole("rounds", rounds)
    by_name = {client.name: client for client in clients}
    if len(by_name) < len(clients):
        raise ValueError(f"clients: expected different names, got {sorted(client.name for client in clients)}")
    server = LeffServer(model, config, proxy, loss_fn, layers=layers)
    folder = Path(out) if out is not None else None
    late: list[Update] = []
    if folder is not None and (last := last_checkpoint(folder)) is not None:
        server.load(last)
        late += [Update(name, round_, {}, 0) for name, round_ in json.loads((last / "late.json").read_text())]
    while server.round < rounds:
        record = _one_round(server, by_name, faults, late)
        if evaluate is not None:
            model.eval()
            record.evaluation = finite(evaluate(model))
        if folder is not None:
            keep_checkpoint(server, folder, late)
        if progress is not None:
            progress(record)
    model.eval()
    return server.history


def _one_round(
    server: LeffServer, clients: Mapping[str, LeffClient], faults: Faults | None, late: list[Update]
) -> RoundRecord:
    round_ = server.round + 1
    reports = [clients[name].report(round_) for name in server.participants(list(clients))]
    orders = server.plan(reports, measured_by_clients(clients, reports, server.view, round_, server.config))
    for update in late:  # of the round before: refused, and noted
        server.receive(update)
    late.clear()
    slowest = 0.0
    for order in orders:
        client = server.client_model(order)
        server.sending(order, client)
        update = clients[order.client].train(client, order.round, server.config)
        fault = faults(order.round, order.client) if faults is not None else None
        one_of("faults", fault, (None, "lost", "late"))
        steps = update.metrics["steps"] * compute_share(order.layout)
        if fault is None:
            server.receive(update)
            slowest = max(slowest, steps / clients[order.client].speed)
        elif fault == "late":
            late.append(update)
    record = server.finish()
    record.simulated_seconds = slowest
    return record


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint in a folder."""
    whole_ones = [path.parent for path in folder.glob("round-*/history.json")]
    return max(whole_ones, default=None)


def keep_checkpoint(server: LeffServer, folder: Path, late: Sequence[Update] = ()) -> None:
    """Write the round's checkpoint, and remove all but the last two."""
    path = folder / f"round-{server.round:05d}"
    shutil.rmtree(path, ignore_errors=True)  # one that was cut off
    waiting = [[update.client, update.round] for update in late]  # they will be refused, whatever they hold
    write_whole(path / "late.json", json.dumps(waiting) + "\n", force=True)
    server.save(path)
    for older in sorted(folder.glob("round-*"))[:-2]:
        shutil.rmtree(older)
