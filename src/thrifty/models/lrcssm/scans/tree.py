"""An associative scan of logarithmic depth in plain torch, on any device, differentiable by autograd.

Odd-even recursion (Blelloch, "Prefix Sums and Their Applications", 1990): combine neighbours, scan the half, fill in
the rest. 2n combines in at most 2⌈log₂ T⌉ levels, of which :class:`Levels` keeps count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Elements = tuple[Tensor, ...]
Combine = Callable[[Elements, Elements], Elements]


@dataclass
class Levels:
    """How many dependent rounds of combines were made: the depth of the computation.

    Attributes:
        count: Rounds so far; the object may count several scans.

    Example:
        >>> levels = Levels()
        >>> ones = torch.ones(1, 1024, 1)
        >>> x = associative_scan(combine_affine, (ones, ones), levels)[1]
        >>> levels.count <= 2 * 10
        True
    """

    count: int = 0


def associative_scan(combine: Combine, elements: Sequence[Tensor], levels: Levels | None = None) -> Elements:
    """Return all prefixes of ``elements`` along dimension 1.

    Args:
        combine: (earlier, later) to their composition; it works along whole slices at once.
        elements: Tensors that together make one element a step; time is dimension 1.
        levels: Counts the rounds of combines.

    Returns:
        Tensors like ``elements``: at step t the composition of the first t of them.

    Example:
        >>> associative_scan(lambda first, then: (first[0] * then[0],), (torch.tensor([[1, 2, 3, 4]]),))
        (tensor([[ 1,  2,  6, 24]]),)

    Source:
        Blelloch, "Prefix Sums and Their Applications" (1990): odd-even recursion.
    """
    elements = tuple(elements)
    T = elements[0].shape[1]
    if T < 2:
        return elements
    pairs = combine(_every(elements, 0, T - 1), _every(elements, 1, T))
    odd = associative_scan(combine, pairs, levels)
    if levels is not None:
        levels.count += 1 if T == 2 else 2
    first = tuple(x[:, :1] for x in elements)
    if T == 2:
        even = first
    else:
        filled = combine(tuple(x[:, : (T - 1) // 2] for x in odd), _every(elements, 2, T))
        even = tuple(torch.cat(both, dim=1) for both in zip(first, filled, strict=True))
    return tuple(_interleave(a, b) for a, b in zip(even, odd, strict=True))


def combine_affine(first: Elements, then: Elements) -> Elements:
    """Compose x → a₁x + b₁ with x → a₂x + b₂."""
    (a1, b1), (a2, b2) = first, then
    return a2 * a1, a2 * b1 + b2


def combine_matrix_affine(first: Elements, then: Elements) -> Elements:
    """Compose x → A₁x + b₁ with x → A₂x + b₂, for matrices."""
    (a1, b1), (a2, b2) = first, then
    return a2 @ a1, (a2 @ b1.unsqueeze(-1)).squeeze(-1) + b2


def _every(elements: Elements, start: int, stop: int) -> Elements:
    return tuple(x[:, start:stop:2] for x in elements)


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    n = odd.shape[1]
    woven = torch.stack((even[:, :n], odd), dim=2).flatten(1, 2)
    return woven if even.shape[1] == n else torch.cat((woven, even[:, n:]), dim=1)
