"""``AmorLIPTrainer``: Hugging Face's ``Trainer`` for CLIP models, with a loss that has a state of its own."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty._common.runs import world
from thrifty._common.weights import load_saved
from thrifty.training.amorlip.admission import caption_ids
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.hosts import embedding_width, run_towers
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.temperature import (
    LARGEST_SCALE,
    clamp_logit_scale,
    logit_scale_of,
    temperature_param_groups,
    temperature_rate,
)

_transformers = require("transformers", extra="vision")
_log = logging.getLogger(__name__)

#: The loss's state, in a checkpoint's folder.
STATE = "contrastive_loss.pt"


class AmorLIPTrainer(_transformers.Trainer):  # type: ignore[misc, name-defined]
    """``transformers.Trainer`` that trains two towers contrastively.

    Batches hold what the model is called with (``pixel_values``, ``input_ids`` ...; ``image`` and ``text`` for
    open_clip), and may hold ``index``, each pair's number in the data set, for losses that need it. The loss is told
    every epoch (those of a stream it counts by its own ``steps_per_epoch``) and of accumulated batches, its state goes
    into every checkpoint, and s stays at most 100, or what it is to begin with. A pair that a last batch leaves alone
    has no negatives, and is left out.

    Args:
        model: ``CLIPModel``, ``SiglipModel``, or a CLIP model of open_clip.
        args: ``TrainingArguments``; ``remove_unused_columns=False``, since models do not name all of these columns.
        loss: A module called as ``open_clip.ClipLoss``; by default an :class:`AmorLIPLoss`.
        config: Settings of the default loss; none: the defaults for as many epochs as ``args`` has.
        gather: Of the default loss.
        skip_repeats: Pairs whose captions are equal, token by token, are no negatives of each other.
        lr_tau: A rate of the temperature's own, constant, a third once 1/s ≤ 0.03; by default it shares the schedule.
        betas: Of AdamW.
        eps: Of AdamW.
        **more: What ``Trainer`` takes.

    Raises:
        ValueError: ``remove_unused_columns`` is on, the model has no ``logit_scale``, or the loss cannot skip repeats.

    Example:
        >>> from transformers import CLIPConfig, CLIPModel, TrainingArguments
        >>> small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> vision = small | {"image_size": 16, "patch_size": 8}
        >>> model = CLIPModel(CLIPConfig(text_config=small, vision_config=vision, projection_dim=8))
        >>> rows = [{"pixel_values": torch.randn(3, 16, 16), "input_ids": torch.tensor([1, i, 2])} for i in range(8)]
        >>> args = TrainingArguments("run", max_steps=2, per_device_train_batch_size=4, remove_unused_columns=False,
        ...                          report_to="none", disable_tqdm=True, save_strategy="no", use_cpu=True)
        >>> AmorLIPTrainer(model, args, train_dataset=rows).train().global_step  # doctest: +ELLIPSIS
        {'train_runtime': ...
        2

    Source:
        arXiv 2505.18983, algorithm 1 and appendix C.
    """

    def __init__(
        self,
        model: nn.Module,
        args: Any = None,
        *,
        loss: nn.Module | None = None,
        config: AmorLIPConfig | None = None,
        gather: Literal["global", "local"] = "global",
        skip_repeats: bool = False,
        lr_tau: float | None = None,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-6,
        **more: Any,
    ) -> None:
        if args is None or args.remove_unused_columns:
            raise ValueError(
                "args: expected TrainingArguments(remove_unused_columns=False), got it on: it would drop inputs"
            )
        self.optimizer: torch.optim.Optimizer | None = None
        self.lr_tau, self._betas, self._eps = lr_tau, betas, eps
        super().__init__(model, args, **more)
        self.model_accepts_loss_kwargs = False  # each call's loss is a mean over its own batch
        self.loss = (loss or self._default_loss(config, gather)).to(self.args.device)
        self.skip_repeats, self._met_alone = skip_repeats, False
        if skip_repeats and not isinstance(self.loss, AmorLIPLoss):
            raise ValueError(f"skip_repeats: expected it with AmorLIPLoss, got {type(self.loss).__name__}")
        self.largest_scale = max(LARGEST_SCALE, float(logit_scale_of(model).detach().exp()))
        self.add_callback(_callback(self))

    def _default_loss(self, config: AmorLIPConfig | None, gather: Literal["global", "local"]) -> AmorLIPLoss:
        rank, ranks = world()
        samples = len(self.train_dataset) if hasattr(self.train_dataset, "__len__") else None
        if config is None:
            epochs = self.args.num_train_epochs
            if self.args.max_steps > 0:
                pairs = self.args.train_batch_size * self.args.gradient_accumulation_steps * ranks
                epochs = self.args.max_steps * pairs / samples if samples else 0
            config = AmorLIPConfig(epochs=math.ceil(epochs) or None)
        return AmorLIPLoss(
            embedding_width(self.model), config, num_samples=samples, gather=gather, rank=rank, world_size=ranks
        )

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the contrastive loss of a batch; in evaluation the loss learns nothing.

        Args:
            model: The towers, wrapped or not.
            inputs: A batch: what the model is called with, and ``index`` where there is one.
            return_outputs: Return the features too.

        Returns:
            The loss, or (loss, features by name); without gradient and 0 for a pair that is alone.

        Raises:
            ValueError: The loss needs ``index``, and the batch has none.
        """
        batch = dict(inputs)
        index = batch.pop("index", None)
        found = run_towers(model, batch)
        self.loss.train(model.training)
        extra: dict[str, Tensor] = {}
        if getattr(self.loss, "needs_index", False):
            if index is None:
                raise ValueError(f"index: {type(self.loss).__name__} needs each pair's number, and the batch has none")
            extra["index"] = index
        if self.skip_repeats:
            extra["caption_ids"] = caption_ids(batch["input_ids" if "input_ids" in batch else "text"])
        if isinstance(self.loss, AmorLIPLoss) and model.training:
            usual = self.args.gradient_accumulation_steps
            self.loss.accum_freq = getattr(self, "current_gradient_accumulation_steps", usual)  # an epoch's last: fewer
        if self._is_alone(found.image):
            loss = 0.0 * (found.image.sum() + found.text.sum() + found.logit_scale.sum())
        else:
            loss = self.loss(found.image, found.text, found.logit_scale, found.logit_bias, **extra)
        return (loss, {"image_features": found.image, "text_features": found.text}) if return_outputs else loss

    def _is_alone(self, features: Tensor) -> bool:
        """Tell whether a batch has no negatives, and say so the first time."""
        ranks = 1 if getattr(self.loss, "gather", "") == "local" else getattr(self.loss, "world_size", 1)
        alone = len(features) * ranks < 2
        if alone and not self._met_alone:
            _log.warning("a batch of one pair has no negatives and is left out; dataloader_drop_last would drop it")
        self._met_alone = self._met_alone or alone
        return alone

    @torch.no_grad()
    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Tensor | None, None, None]:
        """Return the loss of an evaluation batch; ``None`` for a pair that is alone."""
        with self.compute_loss_context_manager():
            loss, features = self.compute_loss(model, self._prepare_inputs(inputs), return_outputs=True)
        return None if self._is_alone(features["image_features"]) else loss.detach(), None, None

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Make AdamW with a group of its own for the temperature."""
        if self.optimizer is None:
            groups = temperature_param_groups(
                self.model, self.args.learning_rate, lr_tau=self.lr_tau, weight_decay=self.args.weight_decay
            )
            self.optimizer = torch.optim.AdamW(groups, lr=self.args.learning_rate, betas=self._betas, eps=self._eps)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule that the arguments name; with ``lr_tau`` the temperature's rate stays out of it."""
        made = super().create_scheduler(num_training_steps, optimizer)
        if self.lr_tau is not None:
            scale = logit_scale_of(self.model)
            for place, group in enumerate(self.create_optimizer().param_groups):
                if group.get("name") == "temperature":
                    made.lr_lambdas[place] = lambda _: temperature_rate(1.0, float(scale.detach().exp()))
        return made

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the loss's state too: it is part of what a run goes on from."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            torch.save({"loss": type(self.loss).__name__, "state": self.loss.state_dict()}, Path(output_dir, STATE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            held = load_saved(Path(checkpoint, STATE), name="checkpoint", device=self.args.device)
            if held["loss"] != type(self.loss).__name__:
                raise ValueError(f"loss: {checkpoint} is of {held['loss']}, got {type(self.loss).__name__}")
            self.loss.load_state_dict(held["state"])


def _callback(trainer: AmorLIPTrainer) -> Any:
    """Tell the loss of epochs and of steps, and clamp s."""

    def on_epoch_begin(_: Any, args: Any, state: Any, __: Any, train_dataloader: Any = None, **___: Any) -> None:
        loss = trainer.loss
        epoch, listeners = int((state.epoch or 0.0) + 1e-6), [trainer.train_dataset]
        if not hasattr(trainer.train_dataset, "__len__"):  # all steps are one epoch to Transformers
            steps = getattr(loss, "steps_per_epoch", None)  # by which the loss counts for itself
            epoch = state.global_step // (steps or 1)
        elif isinstance(loss, AmorLIPLoss):
            loss.set_epoch(epoch, math.ceil(len(train_dataloader) / args.gradient_accumulation_steps))
        else:
            listeners = [loss, *listeners]
        for listener in listeners:
            if hasattr(listener, "set_epoch"):
                listener.set_epoch(epoch)

    def on_optimizer_step(_: Any, args: Any, state: Any, __: Any, **___: Any) -> None:
        loss = trainer.loss
        if isinstance(loss, AmorLIPLoss) and loss.amortizer.calls:  # fewer batches were accumulated than usual
            loss.finish_step()
        clamp_logit_scale(trainer.model, trainer.largest_scale)

    base = _transformers.TrainerCallback
    return type("Contrastive", (base,), {"on_epoch_begin": on_epoch_begin, "on_optimizer_step": on_optimizer_step})()
