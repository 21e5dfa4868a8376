"""Layers that several event networks share: convolutions, ConvLSTM, ConvGRU, residual blocks, and padding.

References: Rebecq et al., "High Speed and High Dynamic Range Video with an Event Camera", TPAMI 2021; Scheerlinck et
al., "Fast Image Reconstruction with an Event Camera", WACV 2020.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class ConvReLU(nn.Module):
    """Convolution and ReLU, behind a bilinear enlargement by two where ``upsample`` asks for it."""

    def __init__(self, inputs: int, outputs: int, kernel: int, *, stride: int = 1, upsample: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
        self.upsample = upsample

    def forward(self, x: Float[Tensor, "n c h w"]) -> Tensor:
        """Return the activations."""
        return functional.relu(self.conv(enlarged(x) if self.upsample else x))


class Residual(nn.Module):
    """Two convolutions; ReLU in between and after the sum."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Tensor:
        """Return the activations."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class ConvLSTM(nn.Module):
    """All four gates from one convolution on input and hidden state; the state is (hidden, cell), zero at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gates = nn.Conv2d(2 * channels, 4 * channels, 3, padding=1)

    def forward(self, x: Float[Tensor, "n c h w"], state: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the hidden state, and the whole state."""
        hidden, cell = state or (torch.zeros_like(x), torch.zeros_like(x))
        enter, remember, leave, new = self.gates(torch.cat([x, hidden], dim=1)).chunk(4, dim=1)
        cell = torch.sigmoid(remember) * cell + torch.sigmoid(enter) * torch.tanh(new)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        return hidden, (hidden, cell)


class ConvGRU(nn.Module):
    """Three convolutions, orthogonal at first, without bias at first; the state is zero at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reset, self.update, self.new = (nn.Conv2d(2 * channels, channels, 3, padding=1) for _ in range(3))
        for gate in (self.reset, self.update, self.new):
            nn.init.orthogonal_(gate.weight)
            nn.init.zeros_(gate.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "n c h w"], state: Tensor | None = None) -> Tensor:
        """Return the new state."""
        state = torch.zeros_like(x) if state is None else state
        both = torch.cat([x, state], dim=1)
        share = torch.sigmoid(self.update(both))
        new = torch.tanh(self.new(torch.cat([x, state * torch.sigmoid(self.reset(both))], dim=1)))
        return state * (1 - share) + new * share


def enlarged(x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h2 w2"]:
    """Enlarge by two, bilinearly."""
    return functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def padded(x: Float[Tensor, "n c h w"], multiple: int) -> Float[Tensor, "n c h2 w2"]:
    """Add zeros at the right and at the bottom, up to a multiple."""
    h, w = x.shape[-2:]
    return functional.pad(x, (0, -w % multiple, 0, -h % multiple))
