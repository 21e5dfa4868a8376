"""Layers to compare with, all with the manners of the block of the paper's network: (batch, time, H) → (output, state).

LRU after Orvieto et al. 2023, S5 after Smith et al. 2023 (diagonal, zero-order hold), minGRU after Feng et al. 2024, on
this package's own scan; Mamba is the plain path of transformers; the loop is the LRC cell on autograd's tape.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty._common.extras import require
from thrifty.models.lrcssm.cells.lrc import LRCCell
from thrifty.models.lrcssm.scans.affine import affine_scan


def _complex(*shape: int, scale: float) -> nn.Parameter:
    return nn.Parameter(torch.complex(torch.randn(*shape), torch.randn(*shape)) * scale / math.sqrt(2))


class LRU(nn.Module):
    """Linear recurrent unit: x_t = λ⊙x_{t−1} + γ⊙(Bu_t), y = Re(Cx) + D⊙u, |λ| in a ring at initialisation.

    Args:
        width: H of input and output.
        state: Complex state channels.
        ring: Least and largest |λ|.
    """

    def __init__(self, width: int, state: int, ring: tuple[float, float] = (0.9, 0.999)) -> None:
        super().__init__()
        self.output_size = width
        low, high = ring
        size = torch.sqrt(torch.rand(state) * (high**2 - low**2) + low**2)
        self.nu = nn.Parameter(torch.log(-torch.log(size)))
        self.theta = nn.Parameter(torch.log(2 * math.pi * torch.rand(state) + 1e-6))
        self.B, self.C = _complex(state, width, scale=width**-0.5), _complex(width, state, scale=state**-0.5)
        self.D = nn.Parameter(torch.randn(width))

    def forward(self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (output, last state)."""
        size = torch.exp(-torch.exp(self.nu))
        factor = torch.polar(size, torch.exp(self.theta))
        drive = _linear(u, self.B) * torch.sqrt(1 - size * size)
        x = affine_scan(factor, drive, h0)
        return _real_part(x, self.C) + self.D * u, x[:, -1]


class S5(nn.Module):
    """Diagonal state space: Λ = −exp(a) + ib, discretised by zero-order hold with a learned step of each channel.

    Arguments as :class:`LRU`.
    """

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.output_size = width
        self.a = nn.Parameter(torch.full((state,), math.log(0.5)))
        self.b = nn.Parameter(math.pi * torch.arange(state).float())
        self.delta = nn.Parameter(torch.empty(state).uniform_(math.log(1e-3), math.log(1e-1)))
        self.B, self.C = _complex(state, width, scale=width**-0.5), _complex(width, state, scale=state**-0.5)
        self.D = nn.Parameter(torch.randn(width))

    def forward(self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (output, last state)."""
        rate = torch.complex(-torch.exp(self.a), self.b)
        factor = torch.exp(rate * torch.exp(self.delta))
        x = affine_scan(factor, _linear(u, self.B) * ((factor - 1) / rate), h0)
        return _real_part(x, self.C) + self.D * u, x[:, -1]


class MinGRU(nn.Module):
    """Gated unit without state in its gate: x_t = (1 − z)x_{t−1} + z·U_h u, z = σ(U_z u). Arguments as :class:`LRU`."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.output_size = state
        self.mix = nn.Linear(width, 2 * state)

    def forward(self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (output, last state)."""
        gate, candidate = self.mix(u).chunk(2, dim=-1)
        z = torch.sigmoid(gate)
        x = affine_scan(1 - z, z * candidate, h0)
        return x, x[:, -1]


class Host(nn.Module):
    """``nn.GRU`` or ``nn.LSTM`` in a block: padding stands at the end, where a causal layer does not see it."""

    def __init__(self, kind: type[nn.Module], width: int, state: int) -> None:
        super().__init__()
        self.output_size = state
        self.rnn = kind(width, state, batch_first=True)

    def forward(self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (output, its last step)."""
        y, _state = self.rnn(u)
        return y, y[:, -1]


class Loop(nn.Module):
    """The LRC cell step by step in Python, on autograd's tape."""

    def __init__(self, cell: LRCCell) -> None:
        super().__init__()
        self.cell, self.output_size = cell, cell.hidden_size

    def forward(self, u: Float[Tensor, "batch time n"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (states, last state)."""
        drive, P = self.cell.precompute(u)
        x = u.new_zeros(len(u), self.cell.hidden_size) if h0 is None else h0
        states = []
        for row in drive.unbind(1):
            x = self.cell.step(x, row, P)
            states.append(x)
        return torch.stack(states, dim=1), x


class Attention(nn.Module):
    """A causal-free transformer layer with learned positions: attention over all valid steps."""

    def __init__(self, width: int, longest: int, heads: int = 4) -> None:
        super().__init__()
        self.output_size = width
        self.places = nn.Parameter(0.02 * torch.randn(longest, width))
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(
        self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, *, mask: Tensor | None = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        """Return (output, its last step)."""
        x = u + self.places[: u.shape[1]]
        y, _weights = self.attend(x, x, x, key_padding_mask=None if mask is None else ~mask, need_weights=False)
        return y, y[:, -1]


class Mamba(nn.Module):
    """The selective state space of transformers, by its plain path (no CUDA kernels)."""

    def __init__(self, width: int, state: int = 16) -> None:
        super().__init__()
        mamba = require("transformers.models.mamba.modeling_mamba", extra="llm")
        config = require("transformers", extra="llm").MambaConfig(
            hidden_size=width, state_size=state, expand=2, num_hidden_layers=1, use_mambapy=False
        )
        self.output_size = width
        self.mixer = mamba.MambaMixer(config, layer_idx=0)

    def forward(self, u: Float[Tensor, "batch time H"], h0: Tensor | None = None, **_: Any) -> tuple[Tensor, Tensor]:
        """Return (output, its last step)."""
        y = self.mixer(u)
        return y, y[:, -1]


def _linear(u: Tensor, B: Tensor) -> Tensor:
    """Return Bu for real u and complex B, by one real product."""
    both = u @ torch.cat((B.real, B.imag)).T
    real, imaginary = both.chunk(2, dim=-1)
    return torch.complex(real, imaginary)


def _real_part(x: Tensor, C: Tensor) -> Tensor:
    """Return Re(Cx), by one real product."""
    return torch.cat((x.real, x.imag), dim=-1) @ torch.cat((C.real, -C.imag), dim=1).T
