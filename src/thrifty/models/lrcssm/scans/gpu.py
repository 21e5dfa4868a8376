"""Triton kernels: the affine recurrence, and the whole LRC cell with Newton's method inside a tile of time.

A program takes one sequence and a block of channels, and walks over tiles of time. Within a tile it scans in
logarithmic depth; for the LRC cell it runs Newton there until its channels stand still, with F and Z held in registers,
so that memory is read and written once whatever the number of iterations. The backward kernel walks the same tiles from
the end.

Triton is imported only when one of these is called. On a CPU they run in Triton's interpreter (``TRITON_INTERPRET=1``),
which is how they are tested without a GPU.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

TILE, CHANNELS = 64, 32


@cache
def available() -> bool:
    """Tell whether Triton is installed and has something to run on."""
    try:
        import triton  # type: ignore[import-untyped]  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"


def affine(a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    """Solve x_t = a_t x_{t−1} + b_t for tensors (n, T, d)."""
    n, T, d = b.shape
    x = torch.empty_like(b, memory_format=torch.contiguous_format)
    grid = (n, -(-d // CHANNELS))
    a, b, x0 = a.contiguous(), b.contiguous(), x0.contiguous()
    _kernels().affine_kernel[grid](a, b, x0, x, T, d, int(reverse), BT=TILE, BD=CHANNELS)
    return x


def run_lrc(
    drive: Tensor, P: Tensor, keep: Tensor, take: Tensor, x0: Tensor, kind: int, tol: float, max_iter: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states of an LRC recurrence, the iterations of each sequence, and which converged.

    Args:
        drive: F, Z (and ε_u) of every step, (n, T, 2D or 3D).
        P: Parameters, (8, D).
        keep: Share of the old state, (n, T).
        take: Share of the step, (n, T).
        x0: First states, (n, D).
        kind: Elastance: 0 asymmetric, 1 symmetric, 2 constant.
        tol: Relative update at which a channel stands still.
        max_iter: Iterations a tile at most.
    """
    n, T, wide = drive.shape
    D = x0.shape[1]
    x = drive.new_empty(n, T, D)
    blocks = -(-D // CHANNELS)
    counts = torch.zeros(n, blocks, dtype=torch.int32, device=drive.device)
    failed = torch.zeros(n, blocks, dtype=torch.int32, device=drive.device)
    _kernels().run_kernel[(n, blocks)](
        drive.contiguous(), P.contiguous(), keep.contiguous(), take.contiguous(), x0.contiguous(), x, counts, failed,
        T, D, wide, tol, max_iter, KIND=kind, BT=TILE, BD=CHANNELS,
    )  # fmt: skip
    return x, counts.amax(1).long(), ~failed.bool().any(1)


def pull_lrc(
    drive: Tensor, P: Tensor, keep: Tensor, take: Tensor, x0: Tensor, x: Tensor, g: Tensor, kind: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of drive, parameters and x₀, as the compiled adjoint of the CPU does."""
    n, T, wide = drive.shape
    D = x0.shape[1]
    to_drive, scratch = torch.empty_like(drive), torch.empty_like(x)
    to_P, to_x0 = drive.new_zeros(n, 8, D), torch.empty_like(x0)
    _kernels().pull_kernel[(n, -(-D // CHANNELS))](
        drive.contiguous(), P.contiguous(), keep.contiguous(), take.contiguous(), x0.contiguous(), x, g.contiguous(),
        scratch, to_drive, to_P, to_x0, T, D, wide, KIND=kind, BT=TILE, BD=CHANNELS,
    )  # fmt: skip
    return to_drive, to_P.sum(0), to_x0


@cache
def _kernels() -> ModuleType:
    from thrifty.models.lrcssm.scans import triton_kernels

    return triton_kernels
