"""Tokenised examples as batches: read lazily, trimmed of padding, sorted by length, padded on the right per batch.

Whatever has a length and gives dictionaries will do: a ``datasets.Dataset``, a list, a torch ``Dataset`` or the one
inside a ``DataLoader``. One pass at the beginning learns lengths, which examples carry a loss at all, and a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

Batch = dict[str, Tensor]

#: What padding is filled with; other sequences get 0.
_FILL = {"labels": -100}


@dataclass
class Examples:
    """A pool or a target set.

    Args:
        dataset: What holds the examples.
        name: How messages call it (``"train"``, ``"target"``).
        causal: Labels are predicted from the tokens before them, so that the first one carries no loss.
        vocabulary: Token ids must be below this.
        eos: Appended to every example (``None``: nothing is).
    """

    dataset: Any
    name: str = "train"
    causal: bool = True
    vocabulary: int | None = None
    eos: int | None = None

    def __post_init__(self) -> None:
        if hasattr(self.dataset, "dataset") and hasattr(self.dataset, "batch_size"):  # a DataLoader
            self.dataset = self.dataset.dataset
        if not hasattr(self.dataset, "__len__") or not hasattr(self.dataset, "__getitem__"):
            raise TypeError(
                f"{self.name}: expected a datasets.Dataset, a DataLoader or a sequence of dictionaries, "
                f"got {type(self.dataset).__name__}; a stream has to be collected first"
            )
        if not len(self.dataset):
            raise ValueError(f"{self.name}: expected at least one example, got none")
        content = hashlib.sha256()
        self.lengths = np.zeros(len(self.dataset), dtype=np.int64)
        self.supervised = np.zeros(len(self.dataset), dtype=np.int64)
        self.keys: list[bytes] = []
        for i in range(len(self.dataset)):
            row = self.row(i)
            self.lengths[i] = self._length(row)
            self.supervised[i] = self._supervised(row)
            self._check(i, row)
            self.keys.append(_digest({name: value for name, value in row.items() if name != "labels" and value.dim()}))
            content.update(_digest(row))
        self.digest = content.hexdigest()

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def valid(self) -> Int[np.ndarray, " count"]:
        """Indices of examples that carry a loss."""
        return np.flatnonzero(self.supervised > 0)

    def row(self, index: int) -> Batch:
        """Return one example as tensors, without padding."""
        row = self.dataset[int(index)]
        if not isinstance(row, Mapping):
            raise TypeError(f"{self.name}: expected dictionaries, got {type(row).__name__} at index {index}")
        out = {name: _tensor(value) for name, value in row.items() if _is_numeric(value)}
        if "labels" in row and "labels" not in out and row["labels"] is not None:
            raise ValueError(f"{self.name}: expected numbers as labels at index {index}, got {row['labels']!r}")
        if "labels" not in out and "label" in out:  # as data sets call it, and collators rename it
            out["labels"] = out.pop("label")
        if "input_ids" not in out and not any(value.dim() > 1 for value in out.values()):
            raise ValueError(
                f"{self.name}: expected input_ids (or pixel_values) at index {index}, got {', '.join(row)}; "
                "tokenise first, for instance with thrifty.data.influence.tokenize_examples"
            )
        return self._trimmed(out, index) if "input_ids" in out else out

    def batches(self, indices: Sequence[int] | np.ndarray, batch_size: int) -> Iterator[tuple[np.ndarray, Batch]]:
        """Yield (indices, batch), examples of like length together."""
        indices = np.asarray(indices)
        ordered = indices[np.argsort(self.lengths[indices], kind="stable")]
        for start in range(0, len(ordered), batch_size):
            chosen = ordered[start : start + batch_size]
            yield chosen, self.collate([self.row(i) for i in chosen])

    def collate(self, rows: Sequence[Batch]) -> Batch:
        """Pad rows on the right and stack them."""
        batch: Batch = {}
        fields: list[set[str]] = [set(row) for row in rows]
        if odd := set[str]().union(*fields) - fields[0].intersection(*fields):
            raise ValueError(
                f"{self.name}: expected the same fields in every example, some lack {', '.join(sorted(odd))}"
            )
        for name in rows[0]:
            values = [row[name] for row in rows]
            if values[0].dim() == 1:
                longest = max(len(value) for value in values)
                fill = _FILL.get(name, 0)
                values = [functional.pad(value, (0, longest - len(value)), value=fill) for value in values]
            batch[name] = torch.stack(values)
        if "input_ids" in batch:
            lengths = torch.tensor([self._length(row) for row in rows])
            batch["attention_mask"] = (torch.arange(batch["input_ids"].shape[1]) < lengths[:, None]).long()
        return batch

    def _trimmed(self, row: Batch, index: int) -> Batch:
        """Cut padding off and complete what a causal model expects."""
        ids = row["input_ids"]
        mask = row.pop("attention_mask", None)
        if mask is not None and not bool(mask.all()):
            attended = mask.nonzero().squeeze(1)
            if not len(attended):
                return {name: value[:1] if _is_sequence(value, {"input_ids": ids}) else value
                        for name, value in row.items()} | {"labels": torch.tensor([-100])}  # fmt: skip
            first, last = int(attended[0]), int(attended[-1]) + 1
            if mask.dim() != 1 or last - first != len(attended):
                raise ValueError(
                    f"{self.name}: the attention_mask at index {index} has a hole; expected ones in a row, with zeros "
                    "before or behind them alone (several texts packed together are not told apart)"
                )
            row = {
                name: value[first:last] if value.dim() == 1 and len(value) == len(ids) else value
                for name, value in row.items()
            }
        if self.causal and "labels" not in row:
            row["labels"] = row["input_ids"].clone()
        if self.eos is not None:
            row["input_ids"] = torch.cat([row["input_ids"], torch.tensor([self.eos])])
            row = {"input_ids": row["input_ids"]}
        return row

    def _length(self, row: Batch) -> int:
        return len(row["input_ids"]) if "input_ids" in row else 1

    def _supervised(self, row: Batch) -> int:
        labels = row.get("labels")
        if labels is None:
            return 1  # a loss of the user's own
        if labels.dim() == 0 or len(labels) != self._length(row):
            return int(torch.as_tensor(labels != -100).sum())
        return int((labels[1 if self.causal else 0 :] != -100).sum())

    def _check(self, index: int, row: Batch) -> None:
        ids, labels = row.get("input_ids"), row.get("labels")
        if ids is None:
            return
        if not len(ids):
            raise ValueError(f"{self.name}: the example at index {index} has no token")
        if ids.is_floating_point():
            raise ValueError(f"{self.name}: expected whole numbers as input_ids at index {index}, got {ids.dtype}")
        if self.vocabulary is not None and (int(ids.max()) >= self.vocabulary or int(ids.min()) < 0):
            beyond = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise ValueError(
                f"{self.name}: the example at index {index} has token id {beyond}, the model's vocabulary ends "
                f"at {self.vocabulary - 1}; was it tokenised for another model?"
            )
        if self.causal and labels is not None and labels.dim() == 1:
            self._check_labels(index, len(ids), labels)

    def _check_labels(self, index: int, tokens: int, labels: Tensor) -> None:
        where = f"{self.name}: the example at index {index} has"
        if len(labels) != tokens:
            raise ValueError(
                f"{where} {tokens} tokens and {len(labels)} labels; expected one a token, -100 where it does not count"
            )
        if self.vocabulary is not None and int(labels.max()) >= self.vocabulary:
            raise ValueError(f"{where} label {int(labels.max())}, the model's vocabulary ends at {self.vocabulary - 1}")


def _is_sequence(value: Tensor, row: Mapping[str, Tensor]) -> bool:
    return value.dim() == 1 and "input_ids" in row and len(value) == len(row["input_ids"])


def _is_numeric(value: Any) -> bool:
    if isinstance(value, (Tensor, np.ndarray)):
        return not isinstance(value, np.ndarray) or value.dtype.kind in "biuf"
    if isinstance(value, (list, tuple)):
        return bool(value) and _is_numeric(value[0])
    return isinstance(value, (bool, int, float, np.number))


def _tensor(value: Any) -> Tensor:
    tensor = torch.as_tensor(np.asarray(value) if isinstance(value, (list, tuple)) else value)
    return tensor if tensor.is_floating_point() else tensor.long()


def _digest(row: Mapping[str, Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(row):
        digest.update(name.encode() + str(tuple(row[name].shape)).encode())
        digest.update(row[name].contiguous().numpy().tobytes())
    return digest.digest()
