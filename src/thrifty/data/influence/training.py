"""Training on a selection with its weights: a column in the data set, and a mixin for a ``Trainer``'s losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from thrifty._common.extras import require
from thrifty.data.influence.losses import LossFn, call_model, default_loss
from thrifty.data.influence.results import SelectionResult

#: The column that holds an example's weight.
COLUMN = "example_weight"


def weighted_dataset(dataset: Any, result: SelectionResult) -> Any:
    """Return the chosen rows with their weights in the column ``example_weight``, as a ``datasets.Dataset``.

    Args:
        dataset: The pool that was selected from: a ``datasets.Dataset``, or a list of dictionaries.
        result: The selection.

    Returns:
        One row a chosen example, in the order of the selection.

    Raises:
        ValueError: The selection is of a larger pool.

    Example:
        >>> from thrifty.data.influence import random_selection
        >>> pool = [{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}]
        >>> weighted_dataset(pool, random_selection(pool, 2)).column_names
        ['input_ids', 'example_weight']
    """
    if len(result.indices) and int(result.indices.max()) >= len(dataset):
        raise ValueError(
            f"dataset: the selection has index {int(result.indices.max())}, the data set {len(dataset)} rows; give the "
            "pool that was selected from"
        )
    if not hasattr(dataset, "select"):
        dataset = require("datasets", extra="llm").Dataset.from_list([dict(row) for row in dataset])
    chosen = dataset.select(result.indices.tolist())
    return chosen.add_column(COLUMN, np.asarray(result.weights, dtype=np.float32))


class WeightedLossMixin:
    """Weighs each example's loss by its column ``example_weight``; batches without it are trained as ever.

    Put it before ``transformers.Trainer``::

        class WeightedTrainer(WeightedLossMixin, Trainer): ...

    The data collator has to keep the column: those of transformers do; that of TRL's ``SFTTrainer`` does not, so that
    it needs one of yours.

    The loss of a batch is the mean of w_i ℓ_i, where ℓ_i is the mean over the example's own label tokens.
    ``example_loss`` may be set to another loss than that of the model's head. With weights from a selection, the paper
    found that training *without* them is the more stable choice.

    Attributes:
        example_loss: Model outputs and batch to one loss an example; ``None`` for the loss of the model's head.

    Raises:
        ValueError: The training set has the column, and the data collator dropped it.

    Example:
        >>> from transformers import Trainer
        >>> class WeightedTrainer(WeightedLossMixin, Trainer):
        ...     pass
        >>> WeightedTrainer.compute_loss is WeightedLossMixin.compute_loss
        True

    Source:
        arXiv 2505.19051: L(θ; S, w) = (1/|S|) Σ w_i ℓ(θ; S_i).
    """

    example_loss: LossFn | None = None

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        if COLUMN not in self._signature_columns:  # type: ignore[has-type]
            self._signature_columns = [*self._signature_columns, COLUMN]  # type: ignore[has-type]

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the weighted mean of the examples' losses.

        Args:
            model: As in ``Trainer``.
            inputs: The batch; the weights are taken out of it.
            return_outputs: Also return the model's outputs.
            num_items_in_batch: As in ``Trainer``; unused where there are weights.

        Returns:
            The loss, or the loss and the outputs.

        Raises:
            ValueError: The training set has weights, and the data collator dropped them.
        """
        weights = inputs.pop(COLUMN, None)
        held: Any = getattr(self, "train_dataset", None)
        if weights is None and model.training and COLUMN in (getattr(held, "column_names", None) or ()):
            raise ValueError(
                f"data_collator: it dropped the column {COLUMN}; give one that keeps it, or a data set without it"
            )
        # A plain mean over the batch: whether the host still divides it by the accumulation steps is told here.
        self.loss_is_scaled_for_ga = None if weights is None else False
        if weights is None:
            return super().compute_loss(  # type: ignore[misc]
                model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
            )
        loss_fn = self.example_loss or default_loss(model)
        outputs = call_model(model, inputs)
        losses = loss_fn(outputs, inputs)
        loss = weighted_mean(losses, weights)
        return (loss, outputs) if return_outputs else loss


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Return (1/B) Σ w_i ℓ_i: the weights are 1 on average over the selection, so their sum divides nothing."""
    return (losses * weights.to(losses).reshape(losses.shape)).mean()
