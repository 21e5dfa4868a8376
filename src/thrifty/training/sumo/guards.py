"""What ends a step or a computation before anything is written: matrices that Algorithm 1 has no meaning for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def refuse_flat(parameters: Sequence[Tensor], place: int) -> None:
    """Refuse a group whose matrices became vectors after the optimizer was made.

    Raises:
        RuntimeError: No parameter has two dimensions any more.
    """
    if all(parameter.ndim < 2 for parameter in parameters):
        raise RuntimeError(
            f"params: the weights of group {place} were matrices and are flat now, as DeepSpeed ZeRO and FSDP1 make "
            "them; there is nothing to project. Use FSDP2 (torch.distributed.fsdp.fully_shard)"
        )


def refuse_sparse(name: str, gradient: Tensor) -> None:
    """Refuse a sparse gradient.

    Raises:
        RuntimeError: It is one.
    """
    if gradient.is_sparse:
        raise RuntimeError(
            f"params: {name} has a sparse gradient; use Embedding(sparse=False), or torch.optim.SparseAdam for it"
        )


def not_finite(name: str, step: int) -> ValueError:
    """Say whose gradient is not finite; LAPACK's own message would be about convergence."""
    return ValueError(
        f"{name}: its gradient holds NaN or Inf (or numbers whose sum is Inf) at its step {step}; the parameter and "
        'its state are as they were (nonfinite="skip" leaves such steps out)'
    )


def check_matrix(name: str, matrix: Any) -> None:
    """Refuse what is no tensor of real floating-point numbers with two dimensions or more.

    Raises:
        TypeError: It is no tensor.
        ValueError: It is of another kind.
    """
    if not isinstance(matrix, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(matrix).__name__}")
    if matrix.ndim < 2:
        raise ValueError(f"{name}: expected a matrix or a batch of matrices, got shape {tuple(matrix.shape)}")
    if not matrix.is_floating_point():
        raise ValueError(f"{name}: expected real floating-point numbers, got {matrix.dtype}")
