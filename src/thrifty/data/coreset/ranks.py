"""Scoring data over several processes, so that all of them end up with the same subset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from thrifty.data.coreset.gradients import GradientSource

T = TypeVar("T")
G = TypeVar("G", bound=GradientSource)


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank and how many there are; alone: 0 and 1."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def share(items: Sequence[T]) -> list[T]:
    """Return this process's share of items: every n-th, as many for all; the last are repeated where they run out."""
    rank, size = rank_and_size()
    if size == 1:
        return list(items)
    each = -(-len(items) // size)
    return [items[min(at * size + rank, len(items) - 1)] for at in range(each)]


def joined(gradients: G, n: int) -> G:
    """Return the gradients of all n samples, each process having brought those of its :func:`share`."""
    if rank_and_size()[1] == 1:
        return gradients
    return gradients.mapped(lambda part: _gathered(part, n))


def _gathered(part: Tensor, n: int) -> Tensor:
    parts = [torch.empty_like(part) for _ in range(rank_and_size()[1])]
    dist.all_gather(parts, part.contiguous())
    return torch.stack(parts, 1).flatten(0, 1)[:n]


def from_first(value: T) -> T:
    """Return what the first process has, in all of them."""
    if rank_and_size()[1] == 1:
        return value
    held = [value]
    dist.broadcast_object_list(held, src=0)
    return held[0]
