"""What a recurrent cell must offer so that a whole sequence can be solved at once.

The cell's state may enter its next state only channel by channel (self-loops; arXiv 2505.21717, section 3): the
Jacobian of a step is then diagonal. How inputs are mixed is free.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from thrifty._common.checks import whole

Initialisation = Literal["standard", "reference"]

#: Cells' constructor options end in these, as those of torch's own layers do.
Factory = dict[str, Any]


class DiagonalCell(nn.Module):
    """A cell with element-wise state dependence: inherit, and write `precompute` and `step`.

    Args:
        input_size: Width n of the input.
        hidden_size: Number D of state channels.
        dt: Step; x⁺ = x + dt·(φ(x) − x) for a step φ that was written for dt = 1.
        rho: Bound on the absolute value of the Jacobian, for cells that can enforce one; ``None`` enforces nothing.

    Raises:
        ValueError: A size is below 1, ``dt`` is not in (0, 1], or ``rho`` is not in (0, 1].

    Example:
        >>> class Leaky(DiagonalCell):
        ...     def __init__(self, input_size, hidden_size):
        ...         super().__init__(input_size, hidden_size)
        ...         self.mix = nn.Linear(input_size, hidden_size)
        ...     def precompute(self, u):
        ...         return (self.mix(u),)
        ...     def step(self, x, drive):
        ...         return torch.tanh(0.9 * x + drive)
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> y, h = DiagonalRNN(Leaky(3, 8))(torch.randn(2, 50, 3))
        >>> y.shape, h.shape
        (torch.Size([2, 50, 8]), torch.Size([2, 8]))

    Source:
        arXiv 2505.21717, section 3: a step whose Jacobian is diagonal.
    """

    #: ``"diagonal"``, or ``"dense"`` for the one cell that is there to compare with.
    structure: str = "diagonal"

    def __init__(self, input_size: int, hidden_size: int, *, dt: float = 1.0, rho: float | None = None) -> None:
        super().__init__()
        if not (isinstance(dt, int | float) and 0 < dt <= 1):
            raise ValueError(f"dt: expected a step in (0, 1], got {dt!r}")
        if rho is not None and not (isinstance(rho, int | float) and 0 < rho <= 1):
            raise ValueError(f"rho: expected a bound in (0, 1], for instance 0.99, got {rho!r}")
        self.input_size, self.hidden_size = whole("input_size", input_size), whole("hidden_size", hidden_size)
        self.dt, self.rho = float(dt), rho

    @property
    def output_size(self) -> int:
        """Width of what `readout` gives."""
        return self.hidden_size

    @property
    def state_dtype(self) -> torch.dtype:
        """Kind of number that the state is made of; single precision where parameters are of half."""
        return torch.promote_types(next(self.parameters()).dtype, torch.float32)

    def precompute(self, u: Float[Tensor, "... n"]) -> tuple[Tensor, ...]:
        """Do all that does not need the state, for all steps at once.

        Returns:
            Tensors for `step`. Those of three dimensions are taken to be ``(batch, time, ·)``; the others hold for
            every step.
        """
        raise NotImplementedError

    def step(self, x: Num[Tensor, "... D"], *pre: Tensor) -> Num[Tensor, "... D"]:
        """Return the next state; element-wise in ``x``."""
        raise NotImplementedError

    def readout(self, x: Num[Tensor, "... D"], *pre: Tensor) -> Float[Tensor, "... out"]:
        """Return what the layer puts out of a state."""
        return x

    def extra_repr(self) -> str:
        """Say the sizes in ``print(model)``."""
        rho = "" if self.rho is None else f", rho={self.rho}"
        return f"{self.input_size}, {self.hidden_size}, dt={self.dt}{rho}"


def step_and_jacobian(cell: nn.Module, x: Num[Tensor, "... D"], pre: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Return a cell's step and the diagonal of its Jacobian.

    In closed form where the cell has a ``step_and_jac``; else by one forward-mode product with ones, which is the
    diagonal because the Jacobian is diagonal (:func:`check_diagonal` verifies it).
    """
    closed = getattr(cell, "step_and_jac", None)
    if closed is not None:
        found: tuple[Tensor, Tensor] = closed(x, *pre)
        return found
    return _forward_mode(cell, x, pre, torch.ones_like(x))


def check_diagonal(
    cell: nn.Module, x: Num[Tensor, "... D"], pre: tuple[Tensor, ...], generator: torch.Generator | None = None
) -> None:
    """Verify with two random directions that a cell's Jacobian is diagonal.

    Raises:
        ValueError: It is not.
    """
    _, diagonal = _forward_mode(cell, x, pre, torch.ones_like(x))
    for _ in range(2):
        v = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)
        _, product = _forward_mode(cell, x, pre, v)
        scale = max(1.0, float(product.detach().abs().max()))
        off = float((product - diagonal * v).detach().abs().max()) / scale
        if not off <= 64 * torch.finfo(x.dtype).eps:
            raise ValueError(
                f"cell: the Jacobian of {type(cell).__name__}.step is not diagonal (relative difference {off:.2g}); "
                "the state may enter the next state only channel by channel"
            )


def _forward_mode(cell: Any, x: Tensor, pre: tuple[Tensor, ...], v: Tensor) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        # An expanded state, as the first of a sequence is, cannot carry a tangent: its elements share memory.
        x, v = (t.clone() if t.is_inference() else t.contiguous() for t in (x, v))
        pre = tuple(t.clone() if t.is_inference() else t for t in pre)
        value, product, *_ = torch.func.jvp(lambda x: cell.step(x, *pre), (x,), (v,))
    return value, product


def uniform(shape: tuple[int, ...], bound: float, **factory: Any) -> nn.Parameter:
    """Return a parameter with entries uniform in (−bound, bound)."""
    return nn.Parameter(torch.empty(shape, **factory).uniform_(-bound, bound))
