"""Compressing gradients: a random coordinate mask, then a random projection that keeps inner products in expectation.

The randomised Hadamard transform (SRHT; Ailon and Chazelle 2009) pads to N = 2^j, multiplies by random signs, applies
the orthonormal Walsh-Hadamard transform, and keeps ``dim`` of the N coordinates, drawn without replacement, times
√(N/dim): E‖Πx‖² = ‖x‖². Vectors longer than 2²⁴ are cut into blocks, each with a share of ``dim``. The
Rademacher projection multiplies by random signs over √dim, a block of rows at a time: the matrix is never held.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

#: Above this length a vector is cut into blocks of ``BLOCK``.
WHOLE, BLOCK = 2**24, 2**20

#: Rows of the Rademacher matrix that are drawn at once, in entries.
_ENTRIES = 2**22


@dataclass(frozen=True)
class Projection:
    """A linear map that is the same for the pool and the targets.

    Args:
        length: Of the vectors that come in.
        dim: Of those that go out; ``length`` or more means that nothing is done.
        kind: ``"srht"``, ``"rademacher"`` or ``None``.
        seed: Of its random choices.
    """

    length: int
    dim: int
    kind: Literal["srht", "rademacher"] | None = "srht"
    seed: int = 0
    _drawn: dict[str, list[_Block]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def out(self) -> int:
        """Numbers in a projected vector."""
        return self.length if self.is_identity else self.dim

    @property
    def is_identity(self) -> bool:
        """Whether vectors pass unchanged."""
        return self.kind is None or self.dim >= self.length

    def __call__(self, x: Float[Tensor, "n length"]) -> Float[Tensor, "n out"]:
        """Project rows.

        Raises:
            ValueError: They have another length.
        """
        if x.shape[-1] != self.length:
            raise ValueError(f"x: expected rows of {self.length} numbers, got {x.shape[-1]}")
        if self.is_identity:
            return x
        if self.kind == "rademacher":
            return self._rademacher(x)
        return torch.cat([block(x) for block in self._blocks(x.device)], dim=1)

    def _blocks(self, device: torch.device) -> list[_Block]:
        if str(device) not in self._drawn:
            generator = torch.Generator().manual_seed(self.seed)
            size = self.length if self.length <= WHOLE else BLOCK
            starts = list(range(0, self.length, size))
            ends = [min(start + size, self.length) for start in starts]
            shares = _shares([end - start for start, end in zip(starts, ends, strict=True)], self.dim)
            self._drawn[str(device)] = [
                _Block.draw(start, end, share, generator, device)
                for start, end, share in zip(starts, ends, shares, strict=True)
                if share
            ]
        return self._drawn[str(device)]

    def _rademacher(self, x: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        out = torch.zeros(len(x), self.dim, device=x.device)
        rows = max(1, _ENTRIES // self.dim)
        for start in range(0, self.length, rows):
            count = min(rows, self.length - start)
            signs = _signs((count, self.dim), generator).to(x.device)
            out.addmm_(x[:, start : start + count].float(), signs)
        return out / math.sqrt(self.dim)


@dataclass(frozen=True)
class _Block:
    """The SRHT of coordinates ``start`` to ``end``."""

    start: int
    end: int
    signs: Float[Tensor, " length"]
    kept: Int[Tensor, " share"]
    size: int

    @classmethod
    def draw(cls, start: int, end: int, share: int, generator: torch.Generator, device: torch.device) -> _Block:
        size = 1 << max(end - start - 1, 0).bit_length()
        signs = _signs((end - start,), generator)
        kept = torch.randperm(size, generator=generator)[:share]
        return cls(start, end, signs.to(device), kept.to(device), size)

    def __call__(self, x: Tensor) -> Tensor:
        padded = x.new_zeros(len(x), self.size, dtype=torch.float32)
        torch.mul(x[:, self.start : self.end], self.signs, out=padded[:, : self.end - self.start])
        return walsh_hadamard(padded)[:, self.kept] * math.sqrt(self.size / len(self.kept))


def walsh_hadamard(x: Float[Tensor, "n size"]) -> Float[Tensor, "n size"]:
    """Apply the orthonormal Walsh-Hadamard transform to every row; its length must be a power of two.

    The transform of size 2^j is a Kronecker product of smaller ones, each applied as a matrix product.

    Example:
        >>> walsh_hadamard(torch.tensor([[1.0, 0.0, 0.0, 0.0]]))
        tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    n, size = x.shape
    behind = size
    while behind > 1:
        factor = min(64, behind)
        behind //= factor
        H = _hadamard(factor, x)
        # The last factor acts on neighbours: one large product in place of many with a single column.
        x = H @ x.reshape(-1, factor, behind) if behind > 1 else x.reshape(-1, factor) @ H
    return x.reshape(n, size)


def coordinate_mask(
    shapes: Mapping[str, torch.Size], numel: int | None, seed: int = 0
) -> dict[str, Int[Tensor, " kept"] | None]:
    """Draw which coordinates of each tensor are kept, ``numel`` in all, in proportion to its size.

    Args:
        shapes: Name to shape.
        numel: How many in all; ``None``, or as many as there are, keeps all.
        seed: Of the draw.

    Returns:
        Name to sorted flat indices; ``None`` keeps all of a tensor.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if numel is None or numel >= sum(sizes.values()):
        return dict.fromkeys(shapes)
    if numel < 1:
        raise ValueError(f"mask_numel: expected at least 1, got {numel}")
    generator = torch.Generator().manual_seed(seed)
    shares = _shares(list(sizes.values()), numel)
    return {
        name: torch.randperm(size, generator=generator)[:share].sort().values
        for (name, size), share in zip(sizes.items(), shares, strict=True)
    }


def _shares(sizes: list[int], total: int) -> list[int]:
    """Divide ``total`` in proportion to sizes, by largest remainders."""
    exact = [total * size / sum(sizes) for size in sizes]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    return shares


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, shape, generator=generator, dtype=torch.int8).float().mul_(2).sub_(1)


def _hadamard(size: int, like: Tensor) -> Tensor:
    H = torch.ones(1, 1)
    while len(H) < size:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return H.to(like) / math.sqrt(size)
