"""A coreset in Hugging Face's ``Trainer``: any subclass, patched in place, and put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from thrifty._common.extras import require
from thrifty.data.coreset.core import Coreset
from thrifty.data.coreset.loader import CoresetBatchSampler
from thrifty.data.coreset.quadratic import QuadraticTrigger
from thrifty.data.coreset.scoring import split
from thrifty.data.coreset.selectors import InfoBatch

_transformers = require("transformers", extra="llm")

#: The key under which positions travel in a batch.
KEY = "coreset_index"


class _Indexed(Dataset[tuple[int, Any]]):
    """A data set whose samples come with their positions."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.dataset[index]


class _Collate:
    """The trainer's collator, with the positions beside what it gives."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, samples: list[tuple[int, Any]]) -> dict[str, Any]:
        batch = dict(self.collate([sample for _, sample in samples]))
        return batch | {KEY: torch.tensor([index for index, _ in samples])}


class CoresetCallback(_transformers.TrainerCallback, _transformers.trainer_callback.ExportableState):  # type: ignore[misc, name-defined]
    """Lets a ``Trainer`` train on a coreset of its training set, with the weights in its loss.

    The subset is checked at the beginning of each epoch; the trainer's checkpoints hold its state, and a run that is
    resumed goes on with the same subset. Ratios, updates and seconds go to the trainer's own log.

    Args:
        **coreset: Arguments of :class:`Coreset`, other than the model and the data set.

    Raises:
        ValueError: An argument would make epochs of different lengths, which ``Trainer`` does not provide for.

    Example:
        >>> from thrifty.data.coreset import CoresetCallback, GradMatch
        >>> callback = CoresetCallback(budget=0.1, selector=GradMatch())  # then: callback.attach(trainer)

    Source:
        Cheng et al. (2025), algorithm 1.
    """

    def __init__(self, **coreset: Any) -> None:
        if coreset.get("warm_epochs") or coreset.get("full_from") or isinstance(coreset.get("selector"), InfoBatch):
            raise ValueError(
                "coreset: expected epochs of one length with Trainer, got warm_epochs, full_from or InfoBatch; train "
                "with CoresetLoader"
            )
        if isinstance(getattr(coreset.get("monitor"), "trigger", None), QuadraticTrigger):
            raise ValueError("monitor: expected a trigger whose state is small with Trainer, got QuadraticTrigger")
        self._arguments = coreset
        self._trainer: Any = None
        self.coreset: Coreset | None = None

    def attach(self, trainer: Any) -> CoresetCallback:
        """Let a trainer train on a coreset from now on; returns the callback, whose ``remove`` undoes it.

        Args:
            trainer: A ``transformers.Trainer`` with a training set that has a length; its model gives ``logits``.

        Raises:
            ValueError: The callback is attached already, or the budget will not do.
            TypeError: The training set has no length.
        """
        if self._trainer is not None:
            raise ValueError("trainer: expected a callback that is not attached yet, got one that is")
        dataset, collate = _as_trained_on(trainer)
        self.coreset = Coreset(
            trainer.model, dataset, collate_fn=collate, seed=self._arguments.get("seed", trainer.args.seed),
            **{key: value for key, value in self._arguments.items() if key != "seed"},
        )  # fmt: skip
        self._sampler = CoresetBatchSampler(
            self.coreset, trainer._train_batch_size, trainer.args.dataloader_drop_last, self.coreset.seed
        )
        self._loss = trainer.compute_loss
        self._trainer, trainer.compute_loss = trainer, self._compute_loss
        trainer.get_train_dataloader = lambda: self._loader(dataset, collate)
        trainer.add_callback(self)
        return self

    def remove(self) -> None:
        """Put the trainer back as it was."""
        if self._trainer is not None:
            del self._trainer.compute_loss, self._trainer.get_train_dataloader
            self._trainer.remove_callback(self)
            self._trainer = None

    def _loader(self, dataset: Any, collate: Callable[..., Any]) -> DataLoader[Any]:
        args = self._trainer.args
        return DataLoader(
            _Indexed(dataset), batch_sampler=self._sampler, collate_fn=_Collate(collate),
            num_workers=args.dataloader_num_workers, pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            generator=torch.Generator().manual_seed(args.seed),
        )  # fmt: skip

    def _compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        indices: Tensor | None = inputs.pop(KEY, None)
        self._trainer.loss_is_scaled_for_ga = None if indices is None else False
        if indices is None:
            return self._loss(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch)
        assert self.coreset is not None
        given, targets = split(inputs)
        outputs = model(**given)
        losses = self.coreset.scorer.loss(outputs.logits, targets)
        loss = (self.coreset.weights_of(indices).to(losses) * losses).mean()
        return (loss, outputs) if return_outputs else loss

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on with the subset of the checkpoint that the trainer resumes from."""
        held = state.stateful_callbacks.get(type(self).__name__)
        if isinstance(held, dict) and held["attributes"].get("held") is not None:
            assert self.coreset is not None
            self.coreset.load_state_dict(held["attributes"]["held"])

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check the subset."""
        assert self.coreset is not None
        self._sampler.set_epoch(int(state.epoch + 1e-9))
        self.coreset.begin_epoch(self._sampler.epoch + 1)
        row = self.coreset.history[-1]
        self._trainer.log(
            {"coreset/updated": float(row.updated), "coreset/seconds": row.seconds_check + row.seconds_select}
            | ({"coreset/snr": row.snr} if row.checked else {})
        )

    def state(self) -> dict[str, Any]:
        """Return what the trainer's checkpoints shall hold."""
        return {"args": {}, "attributes": {"held": None if self.coreset is None else self.coreset.state_dict()}}


def _as_trained_on(trainer: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the training set and the collator, without the columns that the model does not take."""
    dataset, collate = trainer.train_dataset, trainer.data_collator
    if hasattr(dataset, "column_names") and hasattr(trainer, "_remove_unused_columns"):
        return trainer._remove_unused_columns(dataset, description="training"), collate
    return dataset, trainer._get_collator_with_removed_columns(collate, description="training")
