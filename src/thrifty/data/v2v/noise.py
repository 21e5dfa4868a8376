"""Noise that depends on nothing but (seed, frame, pixel): the same bits from numba, torch and CUDA, in any chunks.

A pixel's 32 random bits are an integer hash of its number and of two keys of its frame; a Gaussian is the sum of two
quantiles, looked up with 16 bits each, over the square root of two (so it ends at 5.9 standard deviations). The integer
hash is a 32-bit finaliser with two multiplications; frame keys come from SplitMix64 (Steele et al., 2014).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

#: Places in a sequence that are no frames: what is drawn once.
INITIAL, HOT_MASK, HOT_VALUE = -(2**40), -(2**40) - 1, -(2**40) - 2
#: Where the jumps of shot noise are drawn: so far behind their frame.
SHOT = 2**41

M1, M2, GOLDEN = 0x21F0AAAD, 0xD35A2D97, 0x9E3779B1
_WORD, _MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


@cache
def quantiles() -> NDArray[np.float32]:
    """Return 65 536 equally likely values of a Gaussian whose variance is one half, ascending."""
    values = special.ndtri((np.arange(65536) + 0.5) / 65536)
    table: NDArray[np.float32] = (values / np.sqrt(2 * np.mean(values**2))).astype(np.float32)
    table.flags.writeable = False
    return table


def frame_keys(seed: int, first: int, count: int) -> NDArray[np.uint32]:
    """Return two keys for each of ``count`` consecutive frames, shape (count, 2)."""
    keys = np.empty((count, 2), dtype=np.uint32)
    for row in range(count):
        mixed = _splitmix(_splitmix(int(seed) & _MASK64) ^ ((first + row) & _MASK64))
        keys[row] = mixed & _WORD, mixed >> 32
    return keys


def _splitmix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK64
    return x ^ (x >> 31)


def torch_bits(keys: Int[Tensor, "n 2"], pixels: int) -> Int[Tensor, "n pixels"]:
    """Return every pixel's 32 random bits for one pair of keys an item, as int64."""
    x = torch.arange(pixels, device=keys.device)[None] * GOLDEN
    x = (x + keys[:, :1]) & _WORD
    x ^= x >> 16
    x = (x * M1) & _WORD
    x = x ^ keys[:, 1:]
    x ^= x >> 15
    x = (x * M2) & _WORD
    return x ^ (x >> 15)


def torch_gaussian(keys: Int[Tensor, "n 2"], pixels: int, table: Float[Tensor, 65536]) -> Float[Tensor, "n pixels"]:
    """Return a standard Gaussian for every pixel."""
    x = torch_bits(keys, pixels)
    return table[x & 0xFFFF] + table[x >> 16]


def torch_uniform(keys: Int[Tensor, "n 2"], pixels: int) -> Float[Tensor, "n pixels"]:
    """Return a uniform number in (0, 1), a multiple of 2**-25, for every pixel, in float64."""
    return ((torch_bits(keys, pixels) >> 8).double() + 0.5) * 2.0**-24


def jump_limit(share: float) -> int:
    """Return how many of 2**31 equally likely draws make a pixel jump."""
    return round(share * 2.0**31)


def torch_jumps(keys: Int[Tensor, "n 2"], limits: Int[Tensor, "n 1"], pixels: int) -> Int[Tensor, "n pixels"]:
    """Return 1, -1 or 0 for every pixel: a jump up, down, or none."""
    x = torch_bits(keys, pixels)
    return torch.where(x >> 1 < limits, 2 * (x & 1) - 1, 0)


def item_keys(seeds: NDArray[np.int64], place: int, device: torch.device | str = "cpu") -> Int[Tensor, "n 2"]:
    """Return the keys of one place in the sequence of every item."""
    keys = np.concatenate([frame_keys(int(seed), place, 1) for seed in seeds])
    return torch.from_numpy(keys.astype(np.int64)).to(device)
