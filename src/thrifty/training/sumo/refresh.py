"""When a matrix gets a new basis, and how (arXiv 2505.24749, Blocks 1 and 1.1).

The clock is the parameter's own: a layer that is frozen for a while goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thrifty.training.sumo.matrix import Matrix, compute_dtype
from thrifty.training.sumo.sharded import squared_norms
from thrifty.training.sumo.subspace import Projector, exact_range, gaussian, mixed_seed, sketched_range, transport

REFRESHES = ("interval", "energy", "either")
PROJECTORS = ("randomized", "exact")

#: Steps between two refreshes that captured energy asks for.
ENERGY_GAP = 10


def is_due(matrix: Matrix) -> bool:
    """Tell whether the clock asks for a new basis: at the first step, and whenever a multiple of the gap is passed.

    A refresh that found a zero gradient stays due. ``refresh="energy"`` has no clock.
    """
    if not matrix.refreshes:
        return True
    if matrix.group["refresh"] == "energy":
        return False
    gap, offset = int(matrix.group["update_proj_gap"]), matrix.offset
    now, then = int(matrix.state["step"]) + offset, int(matrix.state["refreshed_at"]) + offset
    return now // gap > then // gap


def exhausted(
    matrices: Sequence[Matrix], projected: Mapping[Matrix, Tensor], refresh: Collection[Matrix], group: dict[str, Any]
) -> set[Matrix]:
    """Return the matrices whose subspace no longer carries enough of the gradient: ‖Ĝ‖ ≤ ς ‖G‖.

    Args:
        matrices: In the same order on every rank.
        projected: Ĝ of those that have a basis.
        refresh: Those that get a new basis anyway.
        group: The options ``refresh`` and ``energy_threshold``.
    """
    asked = [
        matrix
        for matrix in matrices
        if group["refresh"] != "interval"
        and matrix not in refresh
        and matrix in projected
        and int(matrix.state["step"]) - int(matrix.state["refreshed_at"]) >= ENERGY_GAP
    ]
    if not asked:
        return set()
    inside = squared_norms(asked, [projected[matrix] for matrix in asked], "columns")
    whole = squared_norms(asked, [matrix.gradient for matrix in asked], None)
    table = torch.stack([inside, whole], dim=1).tolist()
    threshold = group["energy_threshold"] ** 2
    return {m for m, (some, all_) in zip(asked, table, strict=True) if all_ > 0 and some <= threshold * all_}


def refresh(matrices: Sequence[Matrix], group: dict[str, Any], seed: int) -> None:
    """Blocks 1 and 1.1: a new basis, and the moment carried into it."""
    for matrix in matrices:
        basis, moment, state = matrix.basis, matrix.moment, matrix.state
        new = _range(matrix, group, seed)
        if group["transport"] and matrix.refreshes:
            R = new.mT @ basis
            if matrix.shards and matrix.shards.axis == "rows":
                R = matrix.shards.sum(R)
            moment.copy_(transport(moment.to(R.dtype), R))  # also a moment of fewer bits is carried in full
        basis.copy_(new)
        state["refresh_count"] += 1
        state["refreshed_at"].copy_(state["step"])


def _range(matrix: Matrix, group: dict[str, Any], seed: int) -> Tensor:
    """Find the leading left singular subspace of the gradient, which may be spread over ranks."""
    G, shards = matrix.gradient.to(compute_dtype(matrix.weight)), matrix.shards
    m, n = sorted((matrix.outputs, matrix.inputs), reverse=True)
    projector = Projector(group["projector"], group["oversample"], group["power_iters"])
    size = projector.sketch_size(m, n, matrix.rank)
    if size == n and shards is None:
        return exact_range(G, matrix.rank)
    generator = torch.Generator().manual_seed(mixed_seed(seed, matrix.index, matrix.refreshes))
    omega = gaussian(n, size, generator, G.device)
    if shards is None:
        return sketched_range(G, matrix.rank, omega, projector.power_iters)
    if shards.axis == "rows":
        return sketched_range(G, matrix.rank, omega, projector.power_iters, sum_rows=shards.sum, offset=shards.offset)
    omega = omega[shards.offset : shards.offset + G.shape[-1]]
    return sketched_range(G, matrix.rank, omega, projector.power_iters, sum_columns=shards.sum, offset=shards.offset)
