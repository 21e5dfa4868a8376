"""Samples a batch at a time, with their positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate


class Batches(Dataset[tuple[Any, Tensor]]):
    """A data set whose items are whole batches, with their positions: it is asked for lists of those.

    Args:
        dataset: Of samples.
        collate: As in ``DataLoader``. Without one, tensors are indexed as a whole, which gives the same.
    """

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] | None = None) -> None:
        self.dataset, self.collate = dataset, collate

    def __getitem__(self, indices: list[int]) -> tuple[Any, Tensor]:
        at = torch.tensor(indices)
        if self.collate is None and isinstance(self.dataset, TensorDataset):
            return [tensor[at] for tensor in self.dataset.tensors], at
        several = getattr(self.dataset, "__getitems__", None)
        samples = [self.dataset[index] for index in indices] if several is None else several(indices)
        return (self.collate or default_collate)(samples), at


def as_it_is(batch: Any) -> Any:
    """Return a batch unchanged: a ``collate_fn`` that workers find by name."""
    return batch
