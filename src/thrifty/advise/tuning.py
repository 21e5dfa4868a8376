"""The ledger of training a language model on one or more devices: a job read from what a user has, and its advice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thrifty._common.checks import one_of, whole
from thrifty.advise import hardware
from thrifty.advise.advice import Advice
from thrifty.advise.facts import workload
from thrifty.advise.job import MOST, OBJECTIVES, OFFLOADED, SEQUENCES, Training
from thrifty.advise.model import dtype_of, read_decoder
from thrifty.advise.offers import offers, pairs
from thrifty.advise.reach import reaches
from thrifty.advise.remarks import remarks
from thrifty.advise.training import account


def advise_training(model: str | Path | Any, **settings: Any) -> Advice:
    """Say where a training step's memory and time go, and which methods would change it.

    Args:
        model: A ``config.json``, a folder that holds one, or a ``PretrainedConfig``; no weights are read.
        **settings: ``length``, ``batch``, ``optimizer``, ``device`` and all others of :func:`training_job`.

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
    job = training_job(model, **settings)
    now = account(job)
    found = offers(workload(job, now), now)
    return Advice(described(job), now, found, pairs(found, now), reaches(job, found), remarks(job))


def training_job(
    model: str | Path | Any,
    *,
    device: str = "h100-80gb",
    optimizer: str = "adamw",
    length: int = 4096,
    batch: int = 1,
    dtype: str = "bf16",
    gpus: int = 1,
    context_parallel: int = 1,
    objective: str = "sft",
    lora_rank: int = 0,
    checkpointing: bool = True,
    fused_head: bool = False,
    offload: Iterable[str] = (),
    rank: int = 128,
    accumulated: bool = False,
    generated: int | None = None,
    profiles: str | Path | None = None,
) -> Training:
    """Read and check what is known of a training job.

    Args:
        model: A ``config.json``, a folder that holds one, or a ``PretrainedConfig``; no weights are read.
        device: A profile's name or JSON file; see :func:`thrifty.advise.device`.
        optimizer: A profile's name or JSON file; see :func:`thrifty.advise.optimizer`.
        length: Tokens of a sequence.
        batch: Examples a step and device (or group of devices that share a sequence).
        dtype: Of weights and activations: ``"bf16"``, ``"fp16"`` or ``"fp32"``.
        gpus: Devices over which weights, gradients and state are sharded (FSDP, ZeRO-3).
        context_parallel: Of these, how many share a sequence, each with a slice of its tokens.
        objective: ``"sft"``, ``"dpo"`` or ``"grpo"``.
        lora_rank: Of adapters on all linear layers; 0: all weights are trained.
        checkpointing: Layers are recomputed in the backward pass.
        fused_head: Logits and loss are computed for a few tokens at a time (TRL's and Liger's heads).
        offload: What is kept in the host's memory: ``"checkpoints"``, ``"optimizer"`` (with the gradients),
            ``"weights"``.
        rank: Of a low-rank optimizer.
        accumulated: Gradients are accumulated over several batches, and so are there throughout a step.
        generated: Tokens of each answer that GRPO generates; ``None``: half of the sequence.
        profiles: A folder of further device and optimizer profiles.

    Raises:
        ValueError: An argument is out of range, unknown, or does not go with another.
        ImportError: transformers is not installed.

    Example:
        >>> from transformers import LlamaConfig
        >>> tiny = LlamaConfig(vocab_size=512, hidden_size=64, intermediate_size=256, num_hidden_layers=4,
        ...     num_attention_heads=4)
        >>> training_job(tiny, length=512, gpus=8, context_parallel=4).tokens
        128.0
    """
    one_of("objective", objective, OBJECTIVES)
    sizes = {"length": length, "batch": batch, "gpus": gpus, "context_parallel": context_parallel, "rank": rank}
    for name, value in sizes.items():
        if whole(name, value) > MOST[name]:
            raise ValueError(f"{name}: expected at most {MOST[name]}, got {value}")
    whole("lora_rank", lora_rank, least=0)
    away = frozenset(offload)
    for each in away:
        one_of("offload", each, OFFLOADED)
    if "checkpoints" in away and not checkpointing:
        raise ValueError("offload: expected checkpointing with 'checkpoints', got checkpointing=False")
    if gpus % context_parallel:
        raise ValueError(f"gpus: expected a multiple of context_parallel = {context_parallel}, got {gpus}")
    if generated is not None and (objective != "grpo" or not 0 <= generated < length):
        raise ValueError(f"generated: expected fewer tokens than the sequence's {length}, in grpo, got {generated!r}")
    kept = hardware.optimizer(optimizer, profiles)
    if lora_rank and set(kept.matrix) & {"mr", "nr"}:
        raise ValueError(f"optimizer: {kept.name} is for whole weights, and --lora trains adapters; use adamw")
    decoder = read_decoder(model)
    if 0 < decoder.positions < length:
        raise ValueError(f"length: expected at most the {decoder.positions} positions of {decoder.name}, got {length}")
    widest = max(max(shape) for shape in decoder.matrices)
    for name, value in (("lora_rank", lora_rank), ("rank", rank if set(kept.matrix) & {"mr", "nr"} else 0)):
        if value > widest:
            raise ValueError(f"{name}: expected at most the {widest} rows of the widest weight, got {value}")
    return Training(
        decoder,
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
        fused_head,
        away,
        context_parallel,
        (length // 2 if generated is None else generated) if objective == "grpo" else 0,
        asked=(length, batch),
    )


def described(job: Training) -> str:
    """Return a job in one line."""
    tuned = f"LoRA r={job.lora_rank}" if job.lora_rank else "all weights"
    ways = [f"{SEQUENCES[job.objective]} sequences an example"] if SEQUENCES[job.objective] > 1 else []
    ways += [f"{', '.join(sorted(job.offload))} on the host"] if job.offload else []
    ways += ["fused head"] if job.fused_head else []
    ways += [f"{job.context_parallel} devices a sequence"] if job.context_parallel > 1 else []
    ways += [f"{job.generated} tokens generated"] if job.generated else []
    return ", ".join(
        [
            f"{job.objective} of {job.model.name} ({job.parameters / 1e9:.3g} B), {tuned}",
            f"{job.batch} x {job.length} tokens, {job.optimizer.name}, {job.dtype}, {job.gpus} x {job.device.name}",
            *ways,
        ]
    )
