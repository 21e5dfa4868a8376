"""``AmorLIPTrainer``: Hugging Face's ``Trainer`` for CLIP models, with a loss that has a state of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty._common.runs import world
from thrifty.training.amorlip.config import AmorLIPConfig
from thrifty.training.amorlip.hosts import embedding_width, run_towers
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.temperature import (
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
    every epoch (those of a stream it counts by its own ``steps_per_epoch``), its state goes into every checkpoint, and
    s is clamped after every step.

    Args:
        model: ``CLIPModel``, ``SiglipModel``, or a CLIP model of open_clip.
        args: ``TrainingArguments``; ``remove_unused_columns=False``, since models do not name all of these columns.
        loss: A module called as ``open_clip.ClipLoss``; by default an :class:`AmorLIPLoss`.
        config: Settings of the default loss; none: the defaults for as many epochs as ``args`` has.
        gather: Of the default loss.
        lr_tau: A rate of the temperature's own, constant, a third once 1/s ≤ 0.03; by default it shares the schedule.
        betas: Of AdamW.
        eps: Of AdamW.
        **more: What ``Trainer`` takes.

    Raises:
        ValueError: ``remove_unused_columns`` is on.

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
        if loss is None:
            rank, ranks = world()
            data = self.train_dataset
            if config is None and self.args.max_steps <= 0:
                config = AmorLIPConfig(epochs=max(1, round(self.args.num_train_epochs)))
            loss = AmorLIPLoss(
                embedding_width(model), config, num_samples=len(data) if hasattr(data, "__len__") else None,
                gather=gather, rank=rank, world_size=ranks,
            )  # fmt: skip
        self.loss = loss.to(self.args.device)
        self.add_callback(_callback(self))

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        """Return the contrastive loss of a batch; in evaluation the loss learns nothing.

        Args:
            model: The towers, wrapped or not.
            inputs: A batch: what the model is called with, and ``index`` where there is one.
            return_outputs: Return the features too.

        Returns:
            The loss, or (loss, features by name).

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
        loss = self.loss(found.image, found.text, found.logit_scale, found.logit_bias, **extra)
        return (loss, {"image_features": found.image, "text_features": found.text}) if return_outputs else loss

    @torch.no_grad()
    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Tensor, None, None]:
        """Return the loss of an evaluation batch."""
        with self.compute_loss_context_manager():
            return self.compute_loss(model, self._prepare_inputs(inputs)).detach(), None, None

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
            torch.save(self.loss.state_dict(), Path(output_dir, STATE))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            state = torch.load(Path(checkpoint, STATE), map_location=self.args.device, weights_only=True)
            self.loss.load_state_dict(state)


def _callback(trainer: AmorLIPTrainer) -> Any:
    """Tell the loss of epochs, and clamp s."""

    def on_epoch_begin(_: Any, args: Any, state: Any, __: Any, **___: Any) -> None:
        epoch, listeners = int((state.epoch or 0.0) + 1e-6), [trainer.loss, trainer.train_dataset]
        if not hasattr(trainer.train_dataset, "__len__"):  # all steps are one epoch to Transformers
            steps = getattr(trainer.loss, "steps_per_epoch", None)  # by which the loss counts for itself
            epoch, listeners = state.global_step // (steps or 1), [trainer.train_dataset]
        for listener in listeners:
            if hasattr(listener, "set_epoch"):
                listener.set_epoch(epoch)

    def on_optimizer_step(_: Any, args: Any, state: Any, __: Any, **___: Any) -> None:
        clamp_logit_scale(trainer.model)

    base = _transformers.TrainerCallback
    return type("Contrastive", (base,), {"on_epoch_begin": on_epoch_begin, "on_optimizer_step": on_optimizer_step})()
