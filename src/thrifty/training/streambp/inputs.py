"""What all streamed losses check of their inputs, and how they find the rows that count.

Rows are addressed by their index among all ``batch * length`` positions, so that neither hidden states nor labels are
copied to drop the ignored ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from thrifty._common.checks import is_number
from thrifty.training.streambp.chunks import ChunkSize, check_chunk_size, head_chunk
from thrifty.training.streambp.logits import Head, LogitShape


@dataclass(frozen=True)
class Rows:
    """The positions that count, and what each of them predicts."""

    index: Int[Tensor, " rows"]
    ids: Int[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.index)


def check_tensors(**given: Any) -> None:
    """Check that all of them are tensors on one device.

    Raises:
        TypeError: One is no tensor.
        ValueError: One is elsewhere.
    """
    first: str | None = None
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        first = first or name
        if tensor.device != given[first].device:
            raise ValueError(f"{name}: expected it on {given[first].device}, where {first} is, got {tensor.device}")


def check_shapes(hidden: Tensor, weight: Tensor, ids: Tensor, bias: Tensor | None, name: str = "labels") -> None:
    """Check that hidden states, head and targets fit together.

    Raises:
        TypeError: One is no tensor.
        ValueError: They do not; the message names the argument.
    """
    check_tensors(hidden=hidden, weight=weight, **{name: ids}, **({} if bias is None else {"bias": bias}))
    if hidden.ndim not in {2, 3} or not hidden.is_floating_point():
        raise ValueError(
            f"hidden: expected floats of shape [batch, length, hidden] or [rows, hidden], got {tuple(hidden.shape)}"
        )
    if not weight.is_floating_point():
        raise ValueError(f"weight: expected floats, got {weight.dtype}")
    if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(f"weight: expected [vocabulary, {hidden.shape[-1]}], got {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias: expected [{weight.shape[0]}], got {tuple(bias.shape)}")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers, got {ids.dtype}")
    if ids.shape != hidden.shape[:-1]:
        raise ValueError(f"{name}: expected one a position, {tuple(hidden.shape[:-1])}, got {tuple(ids.shape)}")


def check_count(name: str, count: int | float | Tensor | None) -> None:
    """Check a number of tokens that a sum is divided by.

    Raises:
        ValueError: It is not positive.
    """
    if isinstance(count, Tensor):
        count = count.item() if count.numel() == 1 else tuple(count.shape)  # type: ignore[assignment]
    if count is not None and not (is_number(count) and count > 0):
        raise ValueError(f"{name}: expected a positive number of tokens, got {count!r}")


def check_ids(ids: Tensor, counted: Bool[Tensor, "*positions"], vocabulary: int, name: str = "labels") -> None:
    """Check that every target that counts is a token.

    Raises:
        ValueError: One is not; the message gives its position.
    """
    bad = counted & ((ids < 0) | (ids >= vocabulary))
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        raise ValueError(f"{name}: expected ids in [0, {vocabulary}), got {int(ids[place])} at {place}")


def shifted_rows(labels: Int[Tensor, "*positions"], ignore_index: int, shift: bool) -> Rows:
    """Find the positions whose (next) label counts: shift first, then flatten."""
    positions = torch.arange(labels.numel(), device=labels.device).view(labels.shape)
    if shift:
        labels, positions = labels[..., 1:], positions[..., :-1]
    counted = labels != ignore_index
    return Rows(positions[counted], labels[counted].long())


def masked_rows(ids: Int[Tensor, "batch length"], mask: Tensor | None) -> Rows:
    """Find the positions where ``mask`` is set; all of them without one."""
    index = torch.arange(ids.numel(), device=ids.device)
    if mask is None:
        return Rows(index, ids.reshape(-1).long())
    counted = mask.reshape(-1).bool()
    return Rows(index[counted], ids.reshape(-1)[counted].long())


def make_head(
    hidden: Float[Tensor, "*positions hidden"],
    weight: Float[Tensor, "vocab hidden"],
    bias: Float[Tensor, " vocab"] | None,
    shape: LogitShape,
    chunk_size: ChunkSize,
    rows: int,
    accum_dtype: torch.dtype,
) -> Head:
    """Bring the weights into the precision of the product: autocast's if it is on, else the wider one of the two.

    Raises:
        ValueError: The chunk is no number of tokens, or sums would be kept in few bits.
    """
    check_chunk_size("chunk_size", chunk_size)
    if accum_dtype not in {torch.float32, torch.float64}:
        raise ValueError(f"accum_dtype: expected torch.float32 or torch.float64, got {accum_dtype!r}")
    device = hidden.device.type
    autocast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else torch.promote_types(hidden.dtype, weight.dtype)
    chunk = min(head_chunk(chunk_size, rows, weight.shape[1], weight.shape[0]), max(rows, 1))
    cast = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
    return Head(*cast, shape=shape, chunk=chunk, accum_dtype=accum_dtype)


def take(hidden: Float[Tensor, "all hidden"], index: Tensor, head: Head) -> Float[Tensor, "rows hidden"]:
    """Return some rows in the precision of the product."""
    return hidden.index_select(0, index).to(head.weight.dtype)
