"""A parameter as the matrix that Algorithm 1 is written for: rows ≥ columns, as views of its own storage.

The basis acts on the larger dimension (arXiv 2505.24749, section 3), so a wide weight is seen transposed; a
convolution is seen as [out, in·kh·kw]; a fused weight (``split``) as a batch of matrices. Nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thrifty.training.sumo.sharded import Shards, local, shards_of


@dataclass(eq=False)
class Matrix:
    """One weight in one step.

    Args:
        name: For messages.
        index: Its place among the optimizer's parameters; seeds its sketches.
        group: The options of its parameter group.
        state: Its optimizer state.
        weight: Tall view of the weight (of this rank's part of it).
        gradient: The same view of its gradient.
        outputs: Rows of the weight as the model has it.
        inputs: Columns of the weight as the model has it.
        rank: Of its subspace.
        shards: How its rows or columns are spread over ranks; ``None`` if they are not.
        offset: Added to its clock, so that not every matrix is refreshed in the same step.
    """

    name: str
    index: int
    group: dict[str, Any]
    state: dict[str, Any]
    weight: Tensor
    gradient: Tensor
    outputs: int
    inputs: int
    rank: int
    shards: Shards | None
    offset: int = 0

    @property
    def basis(self) -> Tensor:
        """Q (this rank's rows of it)."""
        return local(self.state["basis"])

    @property
    def moment(self) -> Tensor:
        """M in the coordinates of the basis (this rank's columns of it)."""
        return local(self.state["moment"])

    @property
    def refreshes(self) -> int:
        """How often the basis was found; 0: there is none yet."""
        return int(self.state["refresh_count"])


def shape_of(parameter: Tensor, split: int = 1) -> tuple[int, int]:
    """Return (outputs, inputs) of the matrix that a parameter is, or that each part of a fused one is."""
    outputs = parameter.shape[0]
    return outputs // split, parameter.numel() // max(1, outputs)


def tall_view(tensor: Tensor, like: Tensor, split: int, wide: bool) -> Tensor:
    """Return the matrix view of a weight's storage, or of a tensor of the weight's shape.

    Args:
        tensor: The weight, its gradient, or its Kahan compensation; of any dense layout, channels-last included.
        like: The weight, whose layout decides in which order the inputs are taken.
        split: Number of equal parts along the outputs that count as matrices of their own.
        wide: The weight has more columns than rows and is seen transposed.

    Raises:
        RuntimeError: The weight is laid out such that no view of it is a matrix.
    """
    if tensor.ndim > 2:
        strides = like.stride()
        order = sorted(range(1, like.ndim), key=lambda dim: -strides[dim])
        tensor = tensor.permute(0, *order)
        if tensor.data_ptr() == like.data_ptr() and not tensor.is_contiguous():
            raise RuntimeError(
                f"params: a weight of shape {tuple(like.shape)} and strides {like.stride()} is not dense; "
                "make it contiguous before it is optimized"
            )
        tensor = tensor.reshape(tensor.shape[0], -1)
    if split > 1:
        tensor = tensor.view(split, tensor.shape[0] // split, -1)
    return tensor.mT if wide else tensor


def matrix_of(name: str, index: int, parameter: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Matrix:
    """Look at a parameter and its gradient as a matrix, with its state made if it is missing or of another shape.

    Raises:
        RuntimeError: It is spread over ranks in a way that has no sharded update, or whose update cannot use the
            orthogonalizer.
    """
    split, gradient = group["split"], parameter.grad
    assert gradient is not None
    outputs, inputs = shape_of(parameter, split)
    wide = outputs < inputs
    rank = min(group["rank"], outputs, inputs)
    shards = shards_of(parameter, wide, split, name)
    weight = local(parameter)
    matrix = Matrix(
        name,
        index,
        group,
        state,
        tall_view(weight, weight, split, wide),
        tall_view(local(gradient), weight, split, wide),
        outputs,
        inputs,
        rank,
        shards,
    )
    if shards and shards.axis == "columns" and group["orthogonalizer"] in ("gram32", "ns5"):
        raise RuntimeError(
            f"orthogonalizer: the moment of {name} is spread over ranks, where a shared Gram matrix orthogonalises it "
            f"exactly; got {group['orthogonalizer']!r}, which is there to compare with on one device"
        )
    if not fits(state, matrix):
        state.clear()
        state.update(_fresh_state(matrix))
    # An option that was changed between steps may need one entry more.
    if group["residual"] == "fira" and "prev_residual_norm" not in state:
        state["prev_residual_norm"] = torch.zeros_like(state["prev_norm"])
    if group["rounding"] == "kahan" and parameter.dtype.itemsize < 4 and "compensation" not in state:
        state["compensation"] = torch.zeros_like(parameter)
    return matrix


def compensation_of(matrix: Matrix) -> Tensor | None:
    """The Kahan compensation in the same view as the weight, if the matrix has one."""
    if "compensation" not in matrix.state:
        return None
    kept = local(matrix.state["compensation"])
    return tall_view(kept, kept, matrix.group["split"], matrix.outputs < matrix.inputs)


def fits(state: dict[str, Any], matrix: Matrix) -> bool:
    """Tell whether the state belongs to a matrix of this shape and rank."""
    if "basis" not in state:
        return False
    *batch, m, n = matrix.weight.shape
    shapes = (local(state["basis"]).shape, local(state["moment"]).shape)
    return shapes == ((*batch, m, matrix.rank), (*batch, matrix.rank, n))


def compute_dtype(parameter: Tensor) -> torch.dtype:
    """Float64 for float64 parameters, float32 for all others."""
    return torch.float64 if parameter.dtype == torch.float64 else torch.float32


def _fresh_state(matrix: Matrix) -> dict[str, Any]:
    """All entries exist from the first step on, so that a distributed checkpoint has somewhere to load them into."""
    dtype = compute_dtype(matrix.weight)
    moment_dtype = dtype if dtype == torch.float64 else getattr(torch, matrix.group["state_dtype"])
    weight = matrix.weight
    *batch, m, n = weight.shape
    basis = torch.zeros(*batch, m, matrix.rank, dtype=dtype, device=weight.device)
    moment = torch.zeros(*batch, matrix.rank, n, dtype=moment_dtype, device=weight.device)
    if matrix.shards:
        basis, moment = matrix.shards.state(basis, moment)
    return {
        "step": torch.tensor(0.0),
        "basis": basis,
        "moment": moment,
        "prev_norm": torch.zeros((), dtype=dtype, device=weight.device),
        "refresh_count": torch.tensor(0.0),
        "refreshed_at": torch.tensor(-1.0),
    }
