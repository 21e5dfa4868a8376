"""What changes from epoch to epoch: how much of the earlier network is mixed in, and the pressure on the temperature.

arXiv 2505.18983, equation 12 and appendix C; the temperature's objective is that of FastCLIP-v3 (arXiv 2407.01445).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def cosine_ramp(epoch: int, epochs: int, largest: float) -> float:
    """Return β_t = β_max (1 − ½ (1 + cos(π t / T))), and β_max from epoch T on.

    Example:
        >>> [round(cosine_ramp(t, 16, 0.8), 3) for t in (0, 8, 16, 20)]
        [0.0, 0.4, 0.8, 0.8]
    """
    if epoch >= epochs:
        return largest
    return largest * (1 - 0.5 * (1 + math.cos(math.pi * epoch / epochs)))


def mix(
    log_previous: Float[Tensor, " batch"], log_batch: Float[Tensor, " batch"], beta: float
) -> Float[Tensor, " batch"]:
    """Return log(β λ_previous + (1 − β) Z).

    Example:
        >>> import torch
        >>> mix(torch.tensor([2.0]), torch.tensor([3.0]), 0.8)
        tensor([2.2954])
    """
    if beta == 0:
        return log_batch
    return torch.logaddexp(log_previous + math.log(beta), log_batch + math.log1p(-beta))


def rho_at(rho: float | Sequence[float] | None, epoch: int, epochs: int | None) -> float | None:
    """Return ρ of an epoch: the list's n values hold for ``epochs // n`` epochs each, the last for the rest.

    Raises:
        ValueError: A list came without the number of epochs, or is empty or longer than they are.

    Example:
        >>> [rho_at([8.5, -8.5], t, 5) for t in range(5)]
        [8.5, 8.5, -8.5, -8.5, -8.5]
    """
    if rho is None or isinstance(rho, int | float):
        return rho
    if epochs is None or not 0 < len(rho) <= epochs:
        raise ValueError(f"rho: expected between one value and one an epoch ({epochs}), got {list(rho)}")
    return rho[min(epoch // (epochs // len(rho)), len(rho) - 1)]
