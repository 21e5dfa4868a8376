"""Training on a selection with its weights: a column in the data set, and a mixin for a ``Trainer``'s losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from thrifty.data.influence.losses import LossFn, call_model, default_loss
from thrifty.data.influence.results import SelectionResult

#: The column that holds an example's weight.
COLUMN = "example_weight"


def weighted_dataset(dataset: Any, result: SelectionResult) -> Any:
    """Return the chosen rows of a ``datasets.Dataset`` with their weights in the column ``example_weight``."""
    chosen = dataset.select(result.indices.tolist())
    return chosen.add_column(COLUMN, np.asarray(result.weights, dtype=np.float32))


class WeightedLossMixin:
    """Weighs each example's loss by its column ``example_weight``; batches without it are trained as ever.

    Put it before ``transformers.Trainer`` (or TRL's ``SFTTrainer``)::

        class WeightedTrainer(WeightedLossMixin, Trainer): ...

    The loss of a batch is the mean of w_i ℓ_i, where ℓ_i is the mean over the example's own label tokens.
    ``example_loss`` may be set to another loss than that of the model's head. With weights from a selection, the paper
    found that training *without* them is the more stable choice.
    """

    example_loss: LossFn | None = None

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()  # type: ignore[misc]
        if COLUMN not in self._signature_columns:  # type: ignore[has-type]
            self._signature_columns = [*self._signature_columns, COLUMN]  # type: ignore[has-type]

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the weighted mean of the examples' losses."""
        weights = inputs.pop(COLUMN, None)
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
