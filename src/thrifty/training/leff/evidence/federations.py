"""One run of one contender: the same clients, batches and rounds for all of a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thrifty.training.leff.client import LeffClient
from thrifty.training.leff.evidence import sentences
from thrifty.training.leff.evidence.contenders import CENTRAL, VARIANTS, contender, settings
from thrifty.training.leff.rivals import Leff, federate

#: Rounds, and a client's steps and sentences a step.
ROUNDS, STEPS, BATCH = 8, 3, 8


def run(
    name: str, alpha: float, seed: int, *, lr: float | None = None, held_out: str = "test", data: Path | None = None
) -> dict[str, Any]:
    """Federate, and evaluate behind the last round.

    Args:
        name: Of the contender.
        alpha: Of the Dirichlet distribution.
        seed: Of the partition, the head and everything that is drawn.
        lr: Learning rate; the contender's own by default.
        held_out: The split that is evaluated.
        data: A user's own table.

    Returns:
        ``accuracy`` (percent), ``loss``, ``down`` and ``up`` (bytes by round), ``memory`` (peak bytes of a client with
        capacity 1), ``trained`` (bytes of gradients and optimiser there), and for LEFF ``coverage``.
    """
    everyone = sentences.make_clients(alpha, seed, data)
    config = settings(name, seed, STEPS, BATCH, lr)
    if name == CENTRAL:  # one party with all sentences, and as many steps as all clients together
        everyone = [LeffClient("all", sentences.load(data)["train"].columns, capacity=6)]
        config = config.with_overrides(max_steps=STEPS * len(sentences.CAPACITIES))
    model = sentences.make_model(seed)
    proxy = sentences.proxy_batches(data) if name in VARIANTS else None
    method = contender(name, model, config, proxy)
    split = sentences.load(data)[held_out]
    trace = federate(method, everyone, ROUNDS, lambda m: sentences.evaluate(m, split), every=ROUNDS)
    weak = min(trace.clients)
    found: dict[str, Any] = {
        **trace.scores[-1],
        "down": trace.down,
        "up": trace.up,
        "memory": trace.clients[weak]["peak_bytes"],
        "trained": trace.clients[weak]["trained_bytes"],
    }
    if isinstance(method, Leff):
        found["coverage"] = method.server.history.coverage()
    return found
