"""Training a CLIP model on local image-text pairs: what ``thrifty amorlip train`` runs, with any of the losses.

The recipe is open_clip's and the paper's (arXiv 2505.18983, appendix C): AdamW (0.9, 0.98), linear warm-up and
cosine, clip at norm 1, no weight decay on the temperature, s at most 100.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from thrifty._common.checks import number, one_of, whole
from thrifty._common.extras import require
from thrifty._common.files import write_whole
from thrifty._common.runs import Progress, enter_run, join, reporter, training_arguments, world
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.hosts import Host, embedding_width, load_host, lock_tower
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.pairs import Pairs, Shards, collate, expand, read_pairs
from thrifty.training.amorlip.rivals import FastCLIPLoss, NeuCLIPLoss, SogCLRLoss
from thrifty.training.amorlip.temperature import reset_logit_scale

LOSSES = ("amorlip", "clip", "siglip", "sogclr", "fastclip", "neuclip")
#: Losses that know one process only.
ALONE = ("sogclr", "fastclip", "neuclip")


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        model: As :func:`~thrifty.training.amorlip.hosts.load_host` takes it.
        loss: One of :data:`LOSSES`.
        epochs: Passes over the data.
        batch: Pairs a step of each process.
        lr: Peak rate of the towers.
        lr_tau: Rate of the temperature, constant; ``None``: it shares the schedule, at a quarter of ``lr``.
        weight_decay: Of matrices.
        warmup: Steps of the linear warm-up.
        precision: Of the towers: ``"fp32"`` or ``"bf16"``.
        lock: ``"image"`` or ``"text"``: a tower that stays as it is; ``""``: none.
        checkpoint: Weights that an open_clip model begins with.
        reset_scale: Begin at CLIP's initial temperature; without it, at the model's own.
        gather: With several processes: ``"global"`` or ``"local"``.
        workers: Of the data loader.
        skip_repeats: Pairs with equal captions are no negatives of each other (AmorLIP only).
        amor: Settings of AmorLIP (:class:`~thrifty.training.amorlip.AmorLIPConfig`).
        seed: Of the order of the data, and of the networks.
    """

    model: str
    loss: str = "amorlip"
    epochs: int = 32
    batch: int = 256
    lr: float = 5e-4
    lr_tau: float | None = None
    weight_decay: float = 0.2
    warmup: int = 500
    precision: str = "fp32"
    lock: str = ""
    checkpoint: str = ""
    reset_scale: bool = False
    gather: str = "global"
    workers: int = 0
    skip_repeats: bool = False
    amor: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("loss", self.loss, LOSSES)
        one_of("lock", self.lock, ("", "image", "text"))
        one_of("gather", self.gather, ("global", "local"))
        for name in ("epochs", "batch"):
            whole(name, getattr(self, name))
        for name in ("warmup", "workers", "seed"):
            whole(name, getattr(self, name), least=0)
        number("lr", self.lr, "a number above 0", least=1e-12)
        for name in ("amor", "skip_repeats"):
            if getattr(self, name) and self.loss != "amorlip":
                raise ValueError(f"{name}: expected it with the loss 'amorlip' only, got {self.loss!r}")
        AmorLIPConfig(**{"epochs": self.epochs, **self.amor})


def train(
    recipe: Recipe,
    data: str,
    out: Path,
    *,
    num_samples: int | None = None,
    image_field: str = "image",
    caption_field: str = "caption",
    save_every: int = 500,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train, or fine-tune, and save; an interrupted run goes on from its last checkpoint.

    Under ``torchrun`` every process takes pairs of its own, and all of them are negatives.

    Args:
        recipe: How.
        data: A table, .jsonl file or folder of pairs, or tar shards as ``shards-{000..012}.tar``.
        out: Folder of the run: checkpoints, and at the end the model.
        num_samples: Pairs of an epoch; needed for shards.
        image_field: The column of paths.
        caption_field: The column of captions.
        save_every: Steps between checkpoints.
        progress: Told (step, steps, loss) at every logged step.

    Returns:
        ``steps``, ``samples``, ``first_loss``, ``last_loss`` (of the loss's own scale) and ``resumed``.

    Raises:
        ValueError: A setting is out of range, or a run with other settings is in ``out``.
        OSError: There is no model or no data, or ``out`` holds something else.
    """
    transformers = require("transformers", extra="vision")
    from thrifty.training.amorlip.trainer import AmorLIPTrainer

    join()
    ranks = world()[1]
    if recipe.loss in ALONE and ranks > 1:
        raise ValueError(f"loss: expected one process with {recipe.loss!r}, got {ranks}")
    host = load_host(recipe.model, Path(recipe.checkpoint) if recipe.checkpoint else None, seed=recipe.seed)
    pairs, samples = _data(recipe, data, host, num_samples, image_field, caption_field)
    per_epoch = samples // (recipe.batch * ranks)
    if not per_epoch:
        raise ValueError(
            f"batch: expected at most the {samples} pairs of the data over {ranks} processes, got {recipe.batch}"
        )
    settings = asdict(recipe) | {"amor": dict(recipe.amor), "data": data, "samples": samples, "processes": ranks}
    checkpoint, done = enter_run(out, "amorlip", settings)
    steps = recipe.epochs * per_epoch
    if done["global_step"] < steps:
        transformers.set_seed(recipe.seed)
        if recipe.reset_scale:
            reset_logit_scale(host.model)
        if recipe.lock:
            lock_tower(host.model, recipe.lock)  # type: ignore[arg-type]
        arguments = training_arguments(
            out, precision=recipe.precision, save_every=save_every, max_steps=steps, learning_rate=recipe.lr,
            per_device_train_batch_size=recipe.batch, weight_decay=recipe.weight_decay, max_grad_norm=1.0,
            warmup_steps=min(recipe.warmup, steps // 2), lr_scheduler_type="cosine", seed=recipe.seed, logging_steps=1,
            remove_unused_columns=False, dataloader_drop_last=True, dataloader_num_workers=recipe.workers,
        )  # fmt: skip
        loss = make_loss(recipe, host.model, samples, per_epoch)
        trainer = AmorLIPTrainer(
            host.model, arguments, loss=loss, skip_repeats=recipe.skip_repeats, lr_tau=recipe.lr_tau,
            train_dataset=pairs, data_collator=collate, callbacks=[reporter(progress)],
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=checkpoint)
        done = {"global_step": trainer.state.global_step, "log_history": trainer.state.log_history}
        if trainer.is_world_process_zero():
            host.save(out)
            if isinstance(loss, AmorLIPLoss):
                loss.config.save_pretrained(out, force=True)
    losses = [entry["loss"] for entry in done["log_history"] if "loss" in entry]
    result = {
        "steps": done["global_step"],
        "samples": samples,
        "first_loss": losses[0] if losses else None,
        "last_loss": losses[-1] if losses else None,
        "resumed": checkpoint is not None,
    }
    if world()[0] == 0:
        write_whole(out / "result.json", json.dumps(result, indent=1) + "\n", force=True)
    return result


def make_loss(recipe: Recipe, model: nn.Module, samples: int, per_epoch: int) -> nn.Module:
    """Return the loss that a recipe names.

    Raises:
        ImportError: open_clip is not installed (``"clip"`` and ``"siglip"`` are its own).
    """
    rank, ranks = world()
    if recipe.loss == "amorlip":
        config = AmorLIPConfig(**{"epochs": recipe.epochs, "seed": recipe.seed, **recipe.amor})
        return AmorLIPLoss(
            embedding_width(model), config, num_samples=samples, steps_per_epoch=per_epoch, rank=rank,
            world_size=ranks, gather=recipe.gather,  # type: ignore[arg-type]
        )  # fmt: skip
    if recipe.loss == "sogclr":
        return SogCLRLoss(samples)
    if recipe.loss == "fastclip":
        return FastCLIPLoss(samples, gamma_epochs=max(1, recipe.epochs // 2))
    if recipe.loss == "neuclip":
        return NeuCLIPLoss(embedding_width(model))
    open_clip = require("open_clip", extra="vision")
    if recipe.loss == "siglip":
        if getattr(model, "logit_bias", None) is None:
            raise ValueError(
                "loss: expected a model with a logit_bias for 'siglip' (init_logit_bias in its configuration)"
            )
        siglip: nn.Module = open_clip.loss.SigLipLoss(rank=rank, world_size=ranks)
        return siglip
    clip: nn.Module = open_clip.ClipLoss(local_loss=True, gather_with_grad=True, rank=rank, world_size=ranks)
    return clip


def _data(
    recipe: Recipe, data: str, host: Host, num_samples: int | None, image_field: str, caption_field: str
) -> tuple[Any, int]:
    if data.endswith(".tar"):
        if recipe.loss in ("sogclr", "fastclip"):
            raise ValueError(
                f"data: expected a table or folder with {recipe.loss!r}, which numbers its pairs, got shards"
            )
        if num_samples is None:
            raise ValueError("num_samples: expected the pairs of an epoch with tar shards, got none")
        shards = Shards(expand(data), host.training_image, host.tokenize, seed=recipe.seed)
        return shards, whole("num_samples", num_samples)
    pairs = read_pairs(Path(data), image_field=image_field, caption_field=caption_field)
    return Pairs(pairs, host.training_image, host.tokenize), num_samples or len(pairs)
