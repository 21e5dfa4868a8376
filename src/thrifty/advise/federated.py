"""The ledger of a round of federated fine-tuning: a client's memory and arithmetic, and what travels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from thrifty._common.checks import number, whole
from thrifty._common.ledger import Resource, Workload
from thrifty.advise.account import Account, Part
from thrifty.advise.advice import Advice
from thrifty.advise.facts import workload
from thrifty.advise.offers import offers, pairs
from thrifty.advise.reach import reaches
from thrifty.advise.remarks import remarks
from thrifty.advise.training import account
from thrifty.advise.tuning import described, training_job


def advise_federated(
    model: str | Path | Any, *, clients: int, steps: int = 10, uplink: float = 20.0, **settings: Any
) -> Advice:
    """Say what a round costs a client, and which methods would change it.

    Args:
        model: As in :func:`thrifty.advise.advise_training`.
        clients: That take part in a round.
        steps: Updates that a client makes in a round.
        uplink: Mbit/s that a client sends and receives.
        **settings: Of the training on a client, as in :func:`thrifty.advise.training_job`.

    Returns:
        The ledger of one client and round (FLOPs of all steps), the offers, the pairs and the reach.

    Raises:
        ValueError: An argument is out of range or unknown.

    Example:
        >>> from transformers import GPT2Config
        >>> tiny = GPT2Config(vocab_size=512, n_embd=64, n_layer=4, n_head=4, n_positions=512)
        >>> found = advise_federated(tiny, clients=10, device="rtx-3090", length=256, lora_rank=4)
        >>> found.account.binding.words
        'communication'
    """
    whole("clients", clients)
    whole("steps", steps)
    number("uplink", uplink, "Mbit/s above 0", least=1e-9)
    job = training_job(model, **settings)
    now = account(job)
    sent = 2.0 * job.trained * job.width
    parts = tuple(
        replace(part, amount=part.amount * steps, formula=f"steps · ({part.formula})")
        if part.resource in (Resource.FLOPS, Resource.TRANSFER)
        else part
        for part in now.parts
    )
    parts += (
        Part("sent and received by it", Resource.TRANSFER, sent, "2 · trained weights · bytes"),
        Part(
            "at the server, of the other clients",
            Resource.TRANSFER,
            sent * (clients - 1),
            "(clients − 1) times the same",
        ),
    )
    seconds = {name: value * steps for name, value in now.seconds.items()}
    seconds["communication"] = seconds.get("communication", 0.0) + sent * 8 / (uplink * 1e6)
    round_ = Account(parts, seconds, now.capacity, now.rate, now.moment)
    asked = workload(job, now)
    asked = Workload(asked.task, {**asked.facts, "clients": clients, "steps": steps, "sent_bytes": sent})
    found = offers(asked, round_)
    said = f"a round of {clients} clients, {steps} steps each: {described(job)}"
    return Advice(said, round_, found, pairs(found, round_), reaches(job, found), remarks(job))
