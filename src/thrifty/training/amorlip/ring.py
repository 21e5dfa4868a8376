"""Passing blocks of a batch around the ranks: each meets every other's rows, and holds two blocks at most.

With the denominators known, the loss is separable (see ``contrastive.py``): what travels are features without gradient
and one number a row, and nothing has to travel back. Memory does not grow with the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

Group = Any  # a ProcessGroup, or None: this process alone


def size_of(group: Group) -> int:
    """Return the number of ranks; 1 without a group."""
    return 1 if group is None else dist.get_world_size(group)


def around(tensors: Sequence[Tensor], group: Group) -> Iterator[tuple[bool, Sequence[Tensor]]]:
    """Yield the tensors of every rank, this one's own first.

    Args:
        tensors: Of the same shapes on all ranks (drop a shorter last batch, as for any gathered loss).
        group: The ranks; ``None``: this process alone.

    Yields:
        Whether the block is this rank's own, and the block.
    """
    yield True, tensors
    ranks = size_of(group)
    if ranks == 1:
        return
    rank = dist.get_rank(group)
    right, left = ((rank + step) % ranks for step in (1, -1))
    held = [tensor.detach().contiguous() for tensor in tensors]
    for _ in range(ranks - 1):
        arriving = [torch.empty_like(tensor) for tensor in held]
        sends = [dist.P2POp(dist.isend, tensor, group=group, group_peer=right) for tensor in held]
        receives = [dist.P2POp(dist.irecv, tensor, group=group, group_peer=left) for tensor in arriving]
        for request in dist.batch_isend_irecv(sends + receives):
            request.wait()
        held = arriving
        yield False, held


def mean_(tensors: Sequence[Tensor], group: Group) -> None:
    """Average tensors over the ranks in place, in one collective."""
    if size_of(group) == 1:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat, group=group)
    flat /= size_of(group)
    for tensor, piece in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


def broadcast_(tensors: Sequence[Tensor], group: Group) -> None:
    """Give every rank the first one's tensors, in one collective."""
    if size_of(group) == 1:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.broadcast(flat, group=group, group_src=0)
    for tensor, piece in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view_as(tensor))


def check_ranks(module: nn.Module, group: Group) -> None:
    """Compare a checksum of a module's parameters over the ranks.

    Raises:
        RuntimeError: They differ.
    """
    own = torch.stack([parameter.double().sum() for parameter in module.parameters()]).sum().reshape(1)
    sums = [torch.empty_like(own) for _ in range(size_of(group))]
    dist.all_gather(sums, own, group=group)
    found = [float(value) for value in sums]
    if len(set(found)) > 1:
        raise RuntimeError(f"group: the networks of its ranks have come apart: checksums {found}")
