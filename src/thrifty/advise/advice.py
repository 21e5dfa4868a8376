"""The front door: describe a workload, get its ledger, what would change it, and how far each would reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thrifty._common.checks import one_of, whole
from thrifty._common.ledger import Resource, Task, Workload
from thrifty.advise import hardware
from thrifty.advise.account import Account, Part
from thrifty.advise.facts import workload
from thrifty.advise.model import dtype_of, read_decoder
from thrifty.advise.offers import Offer, offers, pairs
from thrifty.advise.reach import Reach, reaches
from thrifty.advise.training import OBJECTIVES, Training, account


@dataclass(frozen=True)
class Advice:
    """What ``thrifty advise`` found.

    Args:
        workload: One line that says what was asked.
        account: The ledger now.
        offers: Methods, by their saving on the binding resource; those that do not apply come last.
        pairs: Two that apply, together.
        reach: The largest sequence, batch and model, now and with each of them; empty where memory is not counted.
    """

    workload: str
    account: Account
    offers: Sequence[Offer]
    pairs: Sequence[Offer] = ()
    reach: Sequence[Reach] = ()

    @property
    def best(self) -> Offer | None:
        """The offer that saves most of the binding resource, if any does."""
        first = next((offer for offer in self.offers if offer.applies), None)
        return first if first is not None and first.saving > 0 else None


def advise_training(
    model: str | Path | Any,
    *,
    device: str = "h100-80gb",
    optimizer: str = "adamw",
    length: int = 4096,
    batch: int = 1,
    dtype: str = "bf16",
    gpus: int = 1,
    objective: str = "sft",
    lora_rank: int = 0,
    checkpointing: bool = True,
    rank: int = 128,
    accumulated: bool = False,
    profiles: str | Path | None = None,
) -> Advice:
    """Say where a training step's memory and time go, and which methods would change it.

    Args:
        model: A ``config.json``, a folder that holds one, or a ``PretrainedConfig``; no weights are read.
        device: A profile's name or JSON file; see :func:`thrifty.advise.device`.
        optimizer: A profile's name or JSON file; see :func:`thrifty.advise.optimizer`.
        length: Tokens of a sequence.
        batch: Examples a step and device.
        dtype: Of weights and activations: ``"bf16"``, ``"fp16"`` or ``"fp32"``.
        gpus: Devices over which weights, gradients and state are sharded (FSDP, ZeRO-3).
        objective: ``"sft"``, ``"dpo"`` or ``"grpo"``.
        lora_rank: Of adapters on all linear layers; 0: all weights are trained.
        checkpointing: Layers are recomputed in the backward pass.
        rank: Of a low-rank optimizer.
        accumulated: Gradients are accumulated over several batches, and so are there throughout a step.
        profiles: A folder of further device and optimizer profiles.

    Returns:
        The ledger, the offers, the pairs and the reach.

    Raises:
        ValueError: An argument is out of range, unknown, or does not go with another.
        ImportError: transformers is not installed.

    Example:
        >>> from transformers import LlamaConfig
        >>> tiny = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=256, num_hidden_layers=4,
        ...     num_attention_heads=4)
        >>> advice = advise_training(tiny, length=8192, device="rtx-3090")
        >>> advice.account.fits, [offer.method for offer in advice.offers if offer.applies]
        (True, ['streambp'])
    """
    job = training_job(
        model,
        device=device,
        optimizer=optimizer,
        length=length,
        batch=batch,
        dtype=dtype,
        gpus=gpus,
        objective=objective,
        lora_rank=lora_rank,
        checkpointing=checkpointing,
        rank=rank,
        accumulated=accumulated,
        profiles=profiles,
    )
    now = account(job)
    found = offers(workload(job, now), now)
    return Advice(described(job), now, found, pairs(found, now), reaches(job, found))


def training_job(
    model: str | Path | Any,
    *,
    device: str = "h100-80gb",
    optimizer: str = "adamw",
    length: int = 4096,
    batch: int = 1,
    dtype: str = "bf16",
    gpus: int = 1,
    objective: str = "sft",
    lora_rank: int = 0,
    checkpointing: bool = True,
    rank: int = 128,
    accumulated: bool = False,
    profiles: str | Path | None = None,
) -> Training:
    """Read and check the arguments of :func:`advise_training`."""
    one_of("objective", objective, OBJECTIVES)
    for name, value in (("length", length), ("batch", batch), ("gpus", gpus), ("rank", rank)):
        whole(name, value)
    whole("lora_rank", lora_rank, least=0)
    kept = hardware.optimizer(optimizer, profiles)
    if lora_rank and set(kept.matrix) & {"mr", "nr"}:
        raise ValueError(f"optimizer: {kept.name} is for whole weights, and --lora trains adapters; use adamw")
    return Training(
        read_decoder(model),
        hardware.device(device, profiles),
        kept,
        length,
        batch,
        dtype_of(dtype),
        gpus,
        objective,  # type: ignore[arg-type]
        lora_rank,
        checkpointing,
        rank,
        accumulated,
        anchor=max(128, min(length, 4096)),
    )


def advise_decisions(*, rows: int, features: int, queries: int = 0, depth: int = 4) -> Advice:
    """Say what a decision tree on a table, and recourse from it, would cost and save.

    Args:
        rows: Of the table.
        features: Columns.
        queries: People who ask what would have changed their decision.
        depth: Of the tree.

    Raises:
        ValueError: A number is not positive.

    Example:
        >>> advice = advise_decisions(rows=5000, features=30, queries=1000)
        >>> {offer.method: offer.delta.total(Resource.SECONDS) < 0 for offer in advice.offers if offer.applies}
        {'ellice': True, 'trees': False}
    """
    for name, value in (("rows", rows), ("features", features), ("depth", depth)):
        whole(name, value)
    whole("queries", queries, least=0)
    fit = 2e-8 * rows * features * max(1.0, (rows).bit_length())
    seconds = {"fitting a tree": fit} | ({"recourse by gradients": 1.6e-2 * queries} if queries else {})
    parts = tuple(Part(name, Resource.SECONDS, amount, _FORMULAS[name]) for name, amount in seconds.items())
    job = Workload(
        Task.TABULAR_CLASSIFICATION,
        {"rows": rows, "features": features, "depth": depth} | ({"queries": queries} if queries else {}),
    )
    now = Account(parts, seconds)
    return Advice(f"decisions on {rows} rows of {features} features", now, offers(job, now))


_FORMULAS = {
    "fitting a tree": "2e-8 s · rows · features · log2(rows): sorting each feature",
    "recourse by gradients": "1.6e-2 s · queries, the authors' library on one thread",
}


def advise_data(
    model: str | Path | Any,
    *,
    pool: int,
    selected: int,
    tokens: int = 2048,
    epochs: int = 2,
    device: str = "h100-80gb",
    selection: str = "none",
    profiles: str | Path | None = None,
) -> Advice:
    """Say what fine-tuning on a pool costs, and what choosing from it would save.

    Args:
        model: As in :func:`advise_training`.
        pool: Examples at hand.
        selected: Examples to be chosen.
        tokens: Of an example.
        epochs: Passes over what is trained on.
        device: A profile's name or JSON file.
        selection: How examples are chosen now: ``"none"``, ``"rds+"``, ``"mid-perplexity"`` or ``"less"``.
        profiles: A folder of further profiles.

    Raises:
        ValueError: A number is not positive, or the model or the selection is unknown.
    """
    for name, value in (("pool", pool), ("selected", selected), ("tokens", tokens), ("epochs", epochs)):
        whole(name, value)
    one_of("selection", selection, ("none", "rds+", "mid-perplexity", "less"))
    decoder, place = read_decoder(model), hardware.device(device, profiles)
    trained = pool if selection == "none" else selected
    training = 6.0 * decoder.active * tokens * trained * epochs
    choosing = {"none": 0.0, "less": 6.0}.get(selection, 2.0) * decoder.active * tokens * pool
    parts = [
        Part("training", Resource.FLOPS, training, "6 · weights · tokens · examples · epochs"),
        Part("examples trained on", Resource.EXAMPLES, trained, "the pool, or what is selected"),
    ]
    seconds = {"training": training / place.flops["bfloat16"]}
    if choosing:
        parts.append(
            Part("choosing", Resource.FLOPS, choosing, "2 (forward) or 6 (gradients) · weights · tokens · pool")
        )
        seconds["choosing"] = choosing / place.flops["bfloat16"]
    facts: dict[str, float | str] = {
        "parameters": decoder.active, "layers": decoder.layers, "pool": pool, "selected": selected, "sequence": tokens,
        "epochs": epochs, "selection": selection,
    }  # fmt: skip
    now = Account(tuple(parts), seconds, rate=place.flops["bfloat16"])
    said = f"fine-tuning {decoder.name} on {trained} of {pool} examples of {tokens} tokens, {epochs} epochs"
    return Advice(said, now, offers(Workload(Task.LM_FINETUNING, facts), now))


def described(job: Training) -> str:
    """Return a job in one line."""
    tuned = f"LoRA r={job.lora_rank}" if job.lora_rank else "all weights"
    return (
        f"{job.objective} of {job.model.name} ({job.parameters / 1e9:.3g} B), {tuned}, "
        f"{job.batch} x {job.length} tokens, {job.optimizer.name}, {job.dtype}, {job.gpus} x {job.device.name}"
    )


__all__ = ["Advice", "Reach", "advise_data", "advise_decisions", "advise_training"]
