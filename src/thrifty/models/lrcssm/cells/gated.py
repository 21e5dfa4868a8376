"""GRU, MGU and LSTM with self-loops: the gates read the input densely and the state channel by channel.

Any cell x⁺ = Q(x, u)·x + S(x, u) whose gates depend on the state element-wise has a diagonal Jacobian
(arXiv 2505.21717, section 4 and appendix).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from thrifty.models.lrcssm.cells.base import DiagonalCell, uniform


class _GatedCell(DiagonalCell):
    """Gates w ⊙ x + U u + b, one block of rows of U a gate."""

    gates: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        dt: float = 1.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt)
        count, bound = len(self.gates), 1 / math.sqrt(hidden_size)
        factory = {"device": device, "dtype": dtype}
        self.U = uniform((count * hidden_size, input_size), bound, **factory)
        self.w = uniform((count, hidden_size), bound, **factory)
        self.b = uniform((count, hidden_size), bound, **factory)

    def precompute(self, u: Float[Tensor, "... n"]) -> tuple[Tensor, ...]:
        """Return (U u + b of all gates side by side, w)."""
        return functional.linear(u, self.U, self.b.flatten()), self.w


class GRUCell(_GatedCell):
    """Gated recurrent unit: ζ, r = σ(w⊙x + Uu + b), c = tanh(w_c⊙(r⊙x) + U_c u + b_c), x⁺ = (1 − ζ)x + ζc.

    Args:
        input_size: Width n of the input.
        hidden_size: Number D of state channels.
        dt: Step in (0, 1].
        device: As in torch's layers.
        dtype: float32 (default) or float64.

    Example:
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> DiagonalRNN(GRUCell(3, 16))(torch.randn(2, 50, 3))[0].shape
        torch.Size([2, 50, 16])

    Source:
        arXiv 2505.21717, appendix (GruSSM).
    """

    gates = ("update", "reset", "candidate")

    def step(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return (1 − ζ)x + ζc."""
        drive, w = pre
        z, r, c = drive.chunk(3, dim=-1)
        zeta = torch.sigmoid(w[0] * x + z)
        candidate = torch.tanh(w[2] * torch.sigmoid(w[1] * x + r) * x + c)
        return x + zeta * (candidate - x)

    def step_and_jac(self, x: Tensor, *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step and the diagonal of its Jacobian."""
        drive, w = pre
        z, r, c = drive.chunk(3, dim=-1)
        zeta, reset = torch.sigmoid(w[0] * x + z), torch.sigmoid(w[1] * x + r)
        candidate = torch.tanh(w[2] * reset * x + c)
        of_reset = reset * (1 - reset) * w[1]
        of_candidate = (1 - candidate * candidate) * w[2] * (reset + x * of_reset)
        J = 1 - zeta + zeta * (1 - zeta) * w[0] * (candidate - x) + zeta * of_candidate
        return x + zeta * (candidate - x), J


class MGUCell(_GatedCell):
    """Minimal gated unit: f = σ(w_f⊙x + U_f u + b_f), h = tanh(w_h⊙(f⊙x) + U_h u + b_h), x⁺ = (1 − f)x + fh.

    Arguments as :class:`GRUCell`.

    Example:
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> DiagonalRNN(MGUCell(3, 16))(torch.randn(2, 50, 3))[0].shape
        torch.Size([2, 50, 16])

    Source:
        arXiv 2505.21717, appendix (MguSSM).
    """

    gates = ("forget", "candidate")

    def step(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return (1 − f)x + fh."""
        drive, w = pre
        f, h = drive.chunk(2, dim=-1)
        forget = torch.sigmoid(w[0] * x + f)
        return x + forget * (torch.tanh(w[1] * forget * x + h) - x)

    def step_and_jac(self, x: Tensor, *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step and the diagonal of its Jacobian."""
        drive, w = pre
        f, h = drive.chunk(2, dim=-1)
        forget = torch.sigmoid(w[0] * x + f)
        candidate = torch.tanh(w[1] * forget * x + h)
        of_forget = forget * (1 - forget) * w[0]
        of_candidate = (1 - candidate * candidate) * w[1] * (forget + x * of_forget)
        return x + forget * (candidate - x), 1 - forget + of_forget * (candidate - x) + forget * of_candidate


class LSTMCell(_GatedCell):
    """Long short-term memory on its cell state c: f, i, g read c, c⁺ = fc + ig; the output is σ(w_o⊙c⁺ + …)⊙tanh(c⁺).

    Arguments as :class:`GRUCell`. The paper gives the general rule only; this is the strictly diagonal reading of it,
    in which gates read c and not h.

    Example:
        >>> from thrifty.models.lrcssm import DiagonalRNN
        >>> DiagonalRNN(LSTMCell(3, 16))(torch.randn(2, 50, 3))[0].shape
        torch.Size([2, 50, 16])

    Source:
        arXiv 2505.21717, appendix (LstmSSM).
    """

    gates = ("forget", "input", "candidate", "output")

    def step(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return fc + ig."""
        drive, w = pre
        f, i, g, _ = drive.chunk(4, dim=-1)
        return torch.sigmoid(w[0] * x + f) * x + torch.sigmoid(w[1] * x + i) * torch.tanh(w[2] * x + g)

    def step_and_jac(self, x: Tensor, *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step and the diagonal of its Jacobian."""
        drive, w = pre
        f, i, g, _ = drive.chunk(4, dim=-1)
        forget, inward = torch.sigmoid(w[0] * x + f), torch.sigmoid(w[1] * x + i)
        candidate = torch.tanh(w[2] * x + g)
        J = forget + forget * (1 - forget) * w[0] * x
        J = J + inward * (1 - inward) * w[1] * candidate + inward * (1 - candidate * candidate) * w[2]
        return forget * x + inward * candidate, J

    def readout(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return the output h of a cell state that the same step has reached."""
        drive, w = pre
        return torch.sigmoid(w[3] * x + drive.chunk(4, dim=-1)[3]) * torch.tanh(x)
