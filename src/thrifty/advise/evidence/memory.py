"""Peaks that torch's allocator reports for whole training steps, beside what the adviser says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thrifty._common.extras import require
from thrifty.advise.account import Account
from thrifty.advise.evidence.families import MIXTURES, configuration, model
from thrifty.advise.evidence.families import smollm2 as pretrained
from thrifty.advise.facts import workload
from thrifty.advise.hardware import device, optimizer
from thrifty.advise.job import Training
from thrifty.advise.model import read_decoder
from thrifty.advise.offers import delta_of
from thrifty.advise.training import account
from thrifty.bench import registry
from thrifty.bench.memory import allocated_peak

MODES = ("none", "checkpoint", "streambp")
#: What each profile is held against; the others of the table have no maintained implementation here.
OPTIMIZERS = ("adamw", "sgd-momentum", "sgd", "lion", "adafactor", "muon", "galore", "sumo")


def family(name: str, mode: str, length: int = 512) -> tuple[float, float]:
    """Return (measured, predicted) bytes that a family's backward pass holds at most, weights included."""
    dtype = "bfloat16" if name in MIXTURES else "float32"
    config = configuration(name)
    return backward(model(config, dtype), config, mode, length, dtype)


def smollm2(mode: str, length: int = 1024) -> tuple[float, float]:
    """Return (measured, predicted) bytes of a backward pass of a pretrained model, SmolLM2-135M-Instruct."""
    made = pretrained()
    return backward(made, made.config, mode, length, "float32")


def backward(made: Any, config: Any, mode: str, length: int, dtype: str) -> tuple[float, float]:
    """Return (measured, predicted) bytes of weights and one backward pass of a model."""
    weights = sum(p.numel() * p.element_size() for p in made.parameters())
    with _mode(made, mode, length):
        step = _step(made, config, length)
        step()
        made.zero_grad(set_to_none=True)
        measured = weights + allocated_peak(step)
    predicted, _ = foretold(config, mode, length, dtype, "sgd")
    return measured, predicted


def foretold(config: Any, mode: str, length: int, dtype: str, state: str, rank: int = 16) -> tuple[float, Account]:
    """Return the peak that the adviser predicts, and its ledger before any method."""
    job = Training(
        read_decoder(config), device("a100"), optimizer(state), length, dtype=dtype,
        checkpointing=mode != "none", rank=rank,
    )  # fmt: skip
    now = account(job)
    if mode != "streambp":
        return now.memory, now
    delta = delta_of(registry.get("streambp"), workload(job, now))
    return now.memory_after(delta), now


def whole_step(state: str, length: int = 512, rank: int = 16) -> tuple[float, float]:
    """Return (measured, predicted) bytes of weights, state and a step with its optimizer, of a small Llama."""
    from thrifty.training.sumo.memory import optimizer_state_bytes

    config = configuration("llama")
    made = model(config, "float32")
    made.activation_checkpointing_enable({"use_reentrant": False})
    chosen = _OPTIMIZERS[state](made, rank)
    run = _step(made, config, length)

    def step() -> None:
        run()
        for each in chosen:
            each.step()
            each.zero_grad(set_to_none=True)

    step()
    held = sum(p.numel() * p.element_size() for p in made.parameters())
    held += sum(optimizer_state_bytes(each)["total"] for each in chosen)
    measured = held + allocated_peak(step)
    return measured, foretold(config, "checkpoint", length, "float32", state, rank)[0]


def _step(made: Any, config: Any, length: int) -> Callable[[], None]:
    import torch

    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, config.get_text_config().vocab_size, (1, length), generator=generator)

    def step() -> None:
        made(input_ids=ids, labels=ids, use_cache=False).loss.backward()

    return step


def _mode(made: Any, mode: str, length: int) -> Any:
    from contextlib import nullcontext

    from thrifty.training.streambp import enable_streambp

    if mode == "streambp":
        return enable_streambp(made, check=False)
    if mode == "checkpoint":
        made.activation_checkpointing_enable({"use_reentrant": False})
    return nullcontext()


def _split(made: Any) -> tuple[list[Any], list[Any]]:
    """Return the matrices of the layers, and all other weights."""
    inside = {id(p) for layer in made.model.layers for p in layer.parameters() if p.ndim == 2}
    parameters = list(made.parameters())
    return [p for p in parameters if id(p) in inside], [p for p in parameters if id(p) not in inside]


def _muon(made: Any, rank: int) -> list[Any]:
    import torch

    matrices, others = _split(made)
    return [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=1e-3, foreach=False)]


def _galore(made: Any, rank: int) -> list[Any]:
    galore = require("galore_torch", extra="bench")
    matrices, others = _split(made)
    low = {"params": matrices, "rank": rank, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}
    return [galore.GaLoreAdamW([{"params": others}, low], lr=1e-3)]


def _sumo(made: Any, rank: int) -> list[Any]:
    from thrifty.training.sumo import SUMO, sumo_param_groups

    return [SUMO(sumo_param_groups(made, rank=rank), lr=1e-3)]


def _torch(name: str, **settings: Any) -> Callable[[Any, int], list[Any]]:
    def make(made: Any, rank: int) -> list[Any]:
        import torch

        return [getattr(torch.optim, name)(made.parameters(), lr=1e-3, **settings)]

    return make


def _lion(made: Any, rank: int) -> list[Any]:
    from pytorch_optimizer import Lion

    return [Lion(made.parameters(), lr=1e-4)]


_OPTIMIZERS: dict[str, Callable[[Any, int], list[Any]]] = {
    "adamw": _torch("AdamW", foreach=False),
    "sgd-momentum": _torch("SGD", momentum=0.9, foreach=False),
    "sgd": _torch("SGD", foreach=False),
    "lion": _lion,
    "adafactor": _torch("Adafactor", foreach=False),
    "muon": _muon,
    "galore": _galore,
    "sumo": _sumo,
}
