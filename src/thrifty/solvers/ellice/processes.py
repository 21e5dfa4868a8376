"""One table over many processes: sums and ranges over all of them (``torch.distributed``, as under ``torchrun``).

A process holds a part of the training rows. What the ellipsoid needs of all of them is one m × m sum, a count and the
objective; what the limits need is the range of each column. Everything after that every process computes alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thrifty._common.extras import require
from thrifty.solvers.ellice.logistic import Total


def over_processes() -> Total:
    """Return what adds an array up over all processes of the default group.

    Raises:
        ValueError: There is no such group.
    """
    _distributed()
    return lambda part: _reduce(part, "SUM")


def range_over_processes(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest and the largest value of every column over all processes; ``[2, d]``."""
    return np.stack([_reduce(rows.min(axis=0), "MIN"), _reduce(rows.max(axis=0), "MAX")])


def _reduce(part: NDArray[np.float64], operation: str) -> NDArray[np.float64]:
    torch, distributed = require("torch", extra="torch"), _distributed()
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    tensor = torch.tensor(part, dtype=torch.float64, device=device)
    distributed.all_reduce(tensor, getattr(distributed.ReduceOp, operation))
    found: NDArray[np.float64] = tensor.cpu().numpy()
    return found


def _distributed() -> Any:
    distributed = require("torch", extra="torch").distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        raise ValueError(
            "sharded: expected False, since no processes are joined (start them with torchrun, and call "
            "torch.distributed.init_process_group() first), got True"
        )
    return distributed
