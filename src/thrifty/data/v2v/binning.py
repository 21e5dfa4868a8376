"""What is done to voxel grids once events have been counted. Paper: arXiv 2505.16797, section 3.4."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def normalized(voxels: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """Divide positive and negative values of every sequence by robust maxima of their own.

    Positive values are divided by max(1, 99th percentile), negative ones by max(1, minus the first percentile), both
    over the whole sequence.

    Args:
        voxels: One sequence an item.

    Returns:
        Of the same shape; what is 0 stays 0.

    Example:
        >>> import torch
        >>> normalized(torch.tensor([[4.0, -8.0]])).tolist()
        [[1.0..., -1.0...]]

    Source:
        arXiv 2505.16797, the released code's option ``normalize_voxels``.
    """
    flat = voxels.flatten(1)
    last = flat.shape[1] - 1
    ordered = flat.sort(dim=1).values  # torch.quantile refuses more than 16 million values

    def percentile(share: float) -> Tensor:
        at = share * last
        low = int(at)
        high = min(low + 1, last)
        return (ordered[:, low] + (at - low) * (ordered[:, high] - ordered[:, low])).view(-1, *[1] * (voxels.ndim - 1))

    up, down = percentile(0.99).clamp(min=1), (-percentile(0.01)).clamp(min=1)
    return voxels.clamp(min=0) / up + voxels.clamp(max=0) / down
