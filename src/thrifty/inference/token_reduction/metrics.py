"""Rank and frequency of a transformer's tokens: how far they have collapsed onto their mean.

The mean token is the DC component of a sequence, what is left is its high-frequency part. Sources: arXiv 2511.21477,
sections 2 and 4; the relative log amplitude is that of Park and Kim, "How Do Vision Transformers Work?", ICLR 2022.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

#: Added to amplitudes before the logarithm.
FLOOR = 1e-6

#: Below what the norm of tokens that are all zero is taken for, so that their share is 0 and not a quotient of zeros.
TINY = 1e-30


def high_frequency(x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
    """Return what is left of each token when the mean token is taken away: H_f[X]."""
    return x - x.mean(dim=-2, keepdim=True)


def hf_ratio(x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Return the share of the high-frequency part, ‖H_f[X]‖ / ‖X‖ (Frobenius); 0 is a collapsed sequence."""
    return _norm(high_frequency(x)) / _norm(x).clamp(min=TINY)


def collapse_ratio(attended: Float[Tensor, "*batch n d"], x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Return how much of the high-frequency part attention leaves: ‖H_f[SA(X)]‖ / ‖H_f[X]‖."""
    return _norm(high_frequency(attended)) / _norm(high_frequency(x)).clamp(min=TINY)


def relative_log_amplitude(
    x: Float[Tensor, "batch n d"], grid: tuple[int, int]
) -> tuple[Float[Tensor, " freq"], Float[Tensor, " freq"]]:
    """Return the log amplitude of the tokens' spatial spectrum along its diagonal, relative to that at frequency 0.

    Args:
        x: One token a patch, raster order (a reduced sequence is restored first, see ``restore_tokens``).
        grid: Rows and columns.

    Returns:
        Frequencies from 0 to 1 (times π), and log(|FFT| + 1e-6) there, averaged over images and channels, less its
        value at 0. The last one is the "high frequency (1.0 π)" of the literature.

    Raises:
        ValueError: The tokens do not fill the grid.
    """
    if x.shape[1] != grid[0] * grid[1]:
        raise ValueError(f"x: a grid of {grid[0]} x {grid[1]} needs {grid[0] * grid[1]} tokens, got {x.shape[1]}")
    maps = x.double().transpose(1, 2).reshape(len(x), -1, *grid)
    amplitude = (torch.fft.fft2(maps).abs() + FLOOR).log().mean(dim=(0, 1))
    # From the centre outwards: index 0 is frequency 0, index n // 2 is the highest.
    steps = min(grid) // 2 + 1
    fraction = torch.linspace(0, 1, steps, device=x.device, dtype=torch.float64)
    row, column = ((fraction * (side // 2)).round().long() for side in grid)
    diagonal = amplitude[row, column]
    return fraction.float(), (diagonal - diagonal[0]).float()


def dc_similarity(x: Float[Tensor, "batch n d"]) -> Float[Tensor, "batch n"]:
    """Return the cosine of each token with the mean token."""
    return functional.cosine_similarity(x, x.mean(dim=1, keepdim=True), dim=-1)


def class_dc_similarity(x: Float[Tensor, "batch n d"], prefix: int = 1) -> Float[Tensor, " batch"]:
    """Return the cosine of the class token with the mean of the tokens behind the prefix."""
    return functional.cosine_similarity(x[:, 0], x[:, prefix:].mean(dim=1), dim=-1)


def token_cosine(x: Float[Tensor, "batch n d"]) -> Float[Tensor, " batch"]:
    """Return the mean cosine of two different tokens of an image."""
    unit = functional.normalize(x, dim=-1)
    tokens = x.shape[1]
    together: Tensor = unit.sum(dim=1).pow(2).sum(dim=-1)
    return (together - tokens) / max(1, tokens * (tokens - 1))


def layer_similarity(x: Float[Tensor, "batch n d"], last: Float[Tensor, "batch n d"]) -> Float[Tensor, " batch"]:
    """Return the mean cosine of each token at a layer with the same token at the last layer."""
    return functional.cosine_similarity(x, last, dim=-1).mean(dim=1)


def effective_rank(x: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch"]:
    """Return exp(entropy of the normalised singular values): 1 for a collapsed sequence.

    Source:
        Roy and Vetterli, "The effective rank", EUSIPCO 2007.
    """
    values = torch.linalg.svdvals(x.double())
    share = values / values.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    entropy: Tensor = torch.special.entr(share).sum(dim=-1)
    return entropy.exp().float()


def selection_iou(a: Int[Tensor, "batch kept"], b: Int[Tensor, "batch other"], patches: int) -> Float[Tensor, " batch"]:
    """Return the intersection over union of two choices of patches.

    Args:
        a: Places kept by one score.
        b: Places kept by the other.
        patches: Of the grid.
    """
    chosen = [torch.zeros(len(i), patches, device=i.device).scatter(1, i, 1.0) for i in (a, b)]
    both = (chosen[0] * chosen[1]).sum(dim=1)
    return both / (chosen[0] + chosen[1]).clamp(max=1).sum(dim=1).clamp(min=1)


def low_frequency_set(score: Float[Tensor, "batch n"], share: float = 0.25) -> Int[Tensor, "batch low"]:
    """Return the bottom ``floor(n share)`` tokens of a score, as the paper's plots show them, in rising order.

    Raises:
        ValueError: The share is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise ValueError(f"share: expected a number in (0, 1], got {share}")
    count = int(score.shape[1] * share)
    return torch.sort(score, dim=1, stable=True).indices[:, :count].sort(dim=1).values


def _norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=(-2, -1))
    return norm
