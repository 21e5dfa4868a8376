"""A real language model: SmolLM2 of 30 layers, fine-tuned on four domains of sentences that four clients hold."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import torch

from thrifty.bench.data import smollm2, vader
from thrifty.training.leff.client import LeffClient
from thrifty.training.leff.config import LeffConfig
from thrifty.training.leff.evidence.contenders import FEDAVG, FEDLORA, OURS
from thrifty.training.leff.rivals import Averaging, FedLoRA, Leff, Method, federate

CAPACITIES, ROUNDS, STEPS, BATCH, LENGTH = (1, 2, 6, 30), 2, 3, 4, 32
#: Of one order for all, and not tuned: the run is too short to tell rates apart.
RATES = {OURS: 1e-4, FEDAVG: 1e-4, FEDLORA: 1e-3}


@cache
def _model() -> tuple[Any, Any]:
    return smollm2.load()


def _columns(texts: list[str]) -> dict[str, torch.Tensor]:
    _, tokenizer = _model()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    tokens = tokenizer(texts, max_length=LENGTH, truncation=True, padding="max_length", return_tensors="pt")
    mask = tokens["attention_mask"]
    return {
        "input_ids": tokens["input_ids"],
        "attention_mask": mask,
        "labels": torch.where(mask.bool(), tokens["input_ids"], -100),
    }


def run(name: str, seed: int) -> dict[str, Any]:
    """Federate, and return the loss (nats a token) on sentences of all domains before and after, and traffic."""
    model = deepcopy(_model()[0])
    domains = list(vader.load().values())
    pick = torch.Generator().manual_seed(seed)
    texts = [[domain[i].text for i in torch.randperm(len(domain), generator=pick)[:60].tolist()] for domain in domains]
    clients = [
        LeffClient(str(i), _columns(mine[: STEPS * BATCH * ROUNDS]), capacity)
        for i, (mine, capacity) in enumerate(zip(texts, CAPACITIES, strict=True))
    ]
    held_out = _columns([text for mine in texts for text in mine[40:48]])
    proxy_columns = _columns([text for mine in texts for text in mine[50:54]])
    proxy = [{k: v[i : i + BATCH] for k, v in proxy_columns.items() if k != "labels"} for i in range(0, 16, BATCH)]
    config = LeffConfig(
        lr=RATES[name], max_steps=STEPS, batch_size=BATCH, seed=seed, importance="clients", compression_rate=0.2,
        distill_steps=4, distill_every=2,
    )  # fmt: skip

    @torch.no_grad()
    def loss(m: Any) -> dict[str, float]:
        m.eval()
        return {
            "loss": sum(float(m(**{k: v[i : i + 8] for k, v in held_out.items()}).loss) for i in (0, 8, 16, 24)) / 4
        }

    before = loss(model)["loss"]
    method: Method
    if name == OURS:
        method = Leff(model, config, proxy)
    else:
        method = Averaging(model, config) if name == FEDAVG else FedLoRA(model, config, 8)
    trace = federate(method, clients, ROUNDS, loss, every=ROUNDS)
    weak = trace.clients["0"]
    return {
        "before": before, "loss": trace.scores[-1]["loss"], "up": trace.up[-1], "down": trace.down[-1],
        "memory": weak["peak_bytes"], "step": weak["step_seconds"],
    }  # fmt: skip
