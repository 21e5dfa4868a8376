"""Work shared by the processes that ``torchrun`` or ``accelerate launch`` started: pieces by turns, sums at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Shard:
    """Which process this is.

    Args:
        rank: Its number.
        world: How many there are.
    """

    rank: int = 0
    world: int = 1

    @classmethod
    def current(cls) -> Shard:
        """Return this process's place in the initialised process group, or the only one."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def owns(self, piece: int) -> bool:
        """Tell whether a piece of work is this process's."""
        return piece % self.world == self.rank

    def total(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, each of which filled other rows; in place, where memory lies in order."""
        if self.world == 1:
            return values
        if values.dim() == 2 and not values.is_contiguous() and values.T.is_contiguous():
            return self.total(values.T).T  # a score matrix in a file stays in it
        if dist.get_backend() == "nccl":
            moved = values.cuda()
            dist.all_reduce(moved)
            return values.copy_(moved)
        values = values.contiguous()
        dist.all_reduce(values)
        return values

    def count(self, number: int) -> int:
        """Return the sum of a number over all processes."""
        return int(self.total(torch.tensor([number]))[0])


#: Rows that one process computed: which examples they are of, and their numbers.
Rows = list[tuple[np.ndarray, Tensor]]


def assemble(found: Rows, wanted: Int[np.ndarray, " l"], size: int, shard: Shard) -> Float[Tensor, "l g"]:
    """Return the rows of ``wanted`` examples, in that order, from all processes.

    Args:
        found: What this process computed.
        wanted: Examples, each of which one process has.
        size: Examples in the data set.
        shard: This process.
    """
    place = np.full(size, -1)
    place[wanted] = np.arange(len(wanted))
    width = shard.count(found[0][1].shape[1] if found else 0) // max(1, shard.count(int(bool(found))))
    out = torch.zeros(len(wanted), width)
    for indices, values in found:
        at = place[indices]
        out[torch.from_numpy(at[at >= 0])] = values[torch.from_numpy(at >= 0)].float()
    return shard.total(out)


def by_index(piece: Int[np.ndarray, " p"], batches: Iterable[tuple[np.ndarray, Tensor]]) -> Float[Tensor, "p g"]:
    """Put the rows of batches into the order of a piece."""
    place = {int(index): i for i, index in enumerate(piece)}
    out: Tensor | None = None
    for chosen, rows in batches:
        out = torch.zeros(len(piece), rows.shape[1]) if out is None else out
        out[[place[int(index)] for index in chosen]] = rows.float().cpu()
    assert out is not None
    return out
