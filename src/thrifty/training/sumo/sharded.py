"""Weights whose rows or columns are spread over ranks (FSDP2, DTensor): what must travel, and how it is added up.

A rank keeps its own rows of the basis (or columns of the moment). Per step only r × n numbers (the projected gradient)
or r × r (a Gram matrix) are summed, per refresh a few thin matrices; no gradient is ever gathered. Tensors of one
phase are summed in one collective, so that their number does not grow with the number of weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from thrifty.training.sumo.matrix import Matrix

Axis = Literal["rows", "columns"]


@dataclass(frozen=True, eq=False)
class Shards:
    """How the tall view of a weight is spread.

    Args:
        axis: What is spread: its ``"rows"`` (the basis is cut) or its ``"columns"`` (the moment is cut).
        group: The ranks that hold the pieces.
        mesh: Of the parameter.
        placements: Of the parameter.
        size: Global length of the spread axis.
        offset: Where this rank's piece begins on it.
    """

    axis: Axis
    group: Any
    mesh: Any
    placements: tuple[Any, ...]
    size: int
    offset: int

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up over the ranks."""
        (total,) = all_reduce([tensor], self.group)
        return total

    def state(self, basis: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
        """Wrap the cut one of the two as a DTensor, so that checkpoints know whose piece it is."""
        return (self._cut(basis, 0), moment) if self.axis == "rows" else (basis, self._cut(moment, 1))

    def _cut(self, piece: Tensor, dim: int) -> Tensor:
        from torch.distributed.tensor import DTensor, Shard

        placements = [Shard(dim) if placement.is_shard() else placement for placement in self.placements]
        shape = torch.Size(self.size if d == dim else length for d, length in enumerate(piece.shape))
        return DTensor.from_local(piece, self.mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1))


@cache
def _distributed_tensors() -> tuple[type, ...]:
    if not distributed.is_available():
        return ()
    from torch.distributed.tensor import DTensor

    return (DTensor,)


def is_sharded(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor."""
    return isinstance(tensor, _distributed_tensors())


def local(tensor: Tensor) -> Tensor:
    """Return this rank's piece of a DTensor, and any other tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor.detach()  # type: ignore[attr-defined]


def shards_of(parameter: Tensor, wide: bool, split: int, name: str) -> Shards | None:
    """Read off how a parameter is spread; ``None`` if every rank has all of it.

    Raises:
        RuntimeError: It is spread along two mesh dimensions, unevenly strided, or along an axis that flattening or
            ``split`` would mix with others.
    """
    if not is_sharded(parameter):
        return None
    placements, mesh = parameter.placements, parameter.device_mesh  # type: ignore[attr-defined]
    cut = [dim for dim, placement in enumerate(placements) if not placement.is_replicate()]
    if not cut:
        return None
    placement = placements[cut[0]]
    plain = len(cut) == 1 and type(placement).__name__ == "Shard" and placement.dim in (0, 1)
    if not plain or split > 1 or (placement.dim == 1 and parameter.ndim > 2):
        raise RuntimeError(
            f"params: {name} is placed as {placements} with split={split}; SUMO updates weights that are sharded along "
            "one dimension of the mesh, by rows or columns (FSDP2's fully_shard), and unsplit"
        )
    group, size = mesh.get_group(cut[0]), parameter.shape[placement.dim]
    step = -(-size // group.size())  # as torch.chunk cuts
    offset = min(size, step * distributed.get_rank(group))
    axis: Axis = "rows" if (placement.dim == 0) != wide else "columns"
    return Shards(axis, group, mesh, tuple(placements), size, offset)


def all_reduce(tensors: Sequence[Tensor], group: Any) -> list[Tensor]:
    """Sum many tensors over ranks in one collective a dtype."""
    results: list[Tensor] = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[place].reshape(-1) for place in places])
        distributed.all_reduce(flat, group=group)
        pieces = torch.split(flat, [tensors[place].numel() for place in places])
        for place, piece in zip(places, pieces, strict=True):
            results[place] = piece.view(tensors[place].shape)
    return results


def sum_over(axis: Axis | None, matrices: Sequence[Matrix], tensors: Iterable[Tensor]) -> list[Tensor]:
    """Add up one tensor a matrix over the ranks that share it.

    Args:
        axis: Only for matrices that are spread along it; ``None``: for all that are spread.
        matrices: In the same order on every rank.
        tensors: One a matrix; those of other matrices come back as they are.
    """
    results = list(tensors)
    groups: dict[Any, list[int]] = {}
    for place, matrix in enumerate(matrices):
        if matrix.shards and axis in (None, matrix.shards.axis):
            groups.setdefault(matrix.shards.group, []).append(place)
    for group, places in groups.items():
        totals = all_reduce([results[place] for place in places], group)
        for place, total in zip(places, totals, strict=True):
            results[place] = total
    return results


def squared_norms(matrices: Sequence[Matrix], tensors: Sequence[Tensor], axis: Axis | None) -> Tensor:
    """Return ‖·‖² of one tensor a matrix, over the ranks that share it, as a vector."""
    norms = torch._foreach_norm(list(tensors), dtype=matrices[0].basis.dtype)
    squares = torch.stack(norms).square()
    return (
        squares if all(m.shards is None for m in matrices) else torch.stack(sum_over(axis, matrices, squares.unbind()))
    )


def agreed(flags: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """Raise each flag that any rank with a piece of the parameter raised."""
    results = list(flags)
    places: dict[Any, list[int]] = {}
    for place, parameter in enumerate(parameters):
        if is_sharded(parameter):
            mesh: Any = parameter.device_mesh  # type: ignore[attr-defined]
            for dim in range(mesh.ndim):
                places.setdefault(mesh.get_group(dim), []).append(place)
    for group, some in places.items():
        for place, total in zip(some, all_reduce([results[p] for p in some], group), strict=True):
            results[place] = total
    return results
