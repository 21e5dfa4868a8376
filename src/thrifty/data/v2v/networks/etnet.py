"""ET-Net: E2VID's encoders, and a transformer over tokens of three scales in place of its residual blocks.

Reference: Weng et al., "Event-based Video Reconstruction Using Transformer", ICCV 2021: 22 175 361 parameters.
Not the authors' code: weights need renaming.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from thrifty.data.v2v.networks.layers import ConvLSTM, ConvReLU, padded

WIDTH, HEADS, INNER, DROPOUT = 256, 8, 1024, 0.1


class Attend(nn.Module):
    """Attention behind a norm, added to its input; over other tokens, if there are such, behind a norm of their own."""

    def __init__(self, *, across: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.norm_memory = nn.LayerNorm(WIDTH) if across else None
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=DROPOUT, batch_first=True)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Float[Tensor, "n tokens c"], memory: Float[Tensor, "n others c"] | None = None) -> Tensor:
        """Return the tokens."""
        query = self.norm(x)
        key = query if memory is None or self.norm_memory is None else self.norm_memory(memory)
        seen: Tensor = self.attention(query, key, key, need_weights=False)[0]
        made: Tensor = x + self.dropout(seen)
        return made


def feed_forward() -> nn.Sequential:
    """Return the two layers behind attention, their norm in front."""
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, INNER), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(INNER, WIDTH),
        nn.Dropout(DROPOUT),
    )  # fmt: skip


class Encoder(nn.Module):
    """Blocks of self-attention."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.attend = nn.ModuleList(Attend() for _ in range(depth))
        self.forwards = nn.ModuleList(feed_forward() for _ in range(depth))

    def forward(self, x: Float[Tensor, "n tokens c"]) -> Tensor:
        """Return the tokens."""
        for attend, forward in zip(self.attend, self.forwards, strict=True):
            x = attend(x)
            x = x + forward(x)
        return x


class Decoder(nn.Module):
    """Blocks of self-attention, then attention over the tokens of another scale."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.attend = nn.ModuleList(Attend() for _ in range(depth))
        self.across = nn.ModuleList(Attend(across=True) for _ in range(depth))
        self.forwards = nn.ModuleList(feed_forward() for _ in range(depth))

    def forward(self, x: Float[Tensor, "n tokens c"], memory: Float[Tensor, "n tokens c"]) -> Tensor:
        """Return the tokens."""
        for attend, across, forward in zip(self.attend, self.across, self.forwards, strict=True):
            x = across(attend(x), memory)
            x = x + forward(x)
        return x


class ETNet(nn.Module):
    """Reconstructs a frame from one voxel grid and what it remembers.

    Args:
        bins: Of a voxel grid.

    Example:
        >>> sum(p.numel() for p in ETNet().parameters())
        22175361

    Source:
        Weng et al., ICCV 2021.
    """

    task = "reconstruction"

    def __init__(self, bins: int = 5) -> None:
        super().__init__()
        widths = [32, 64, 128, WIDTH]
        self.head = ConvReLU(bins, 32, 5)
        self.encoders = nn.ModuleList(ConvReLU(a, b, 5, stride=2) for a, b in itertools.pairwise(widths))
        self.memories = nn.ModuleList(ConvLSTM(width) for width in widths[1:])
        self.split = nn.ModuleList([nn.Identity(), nn.Conv2d(128, WIDTH, 2, 2), nn.Conv2d(64, WIDTH, 4, 4)])
        self.attend = nn.ModuleList(Encoder() for _ in range(3))
        self.across = nn.ModuleList(Decoder() for _ in range(3))
        for weight in (p for part in (self.attend, self.across) for p in part.parameters() if p.ndim > 1):
            nn.init.xavier_uniform_(weight)
        self.decoders = nn.ModuleList(ConvReLU(widths[i], widths[i - 1], 5, upsample=True) for i in (3, 2, 1))
        self.predict = nn.Conv2d(32, 1, 1)

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 1 h w"], Any]:
        """Return the frame, in (0, 1), and the state for the next voxel grid."""
        h, w = voxel.shape[-2:]
        x = head = self.head(padded(voxel, 8))
        scales, states = [], []
        for i, (encode, remember) in enumerate(zip(self.encoders, self.memories, strict=True)):
            x, kept = remember(encode(x), state[i] if state else None)
            scales.append(x)
            states.append(kept)
        rows, columns = x.shape[-2:]
        place = sinusoids(rows * columns, x)
        tokens = [
            attend(split(scale).flatten(2).transpose(1, 2) + place)
            for attend, split, scale in zip(self.attend, self.split, scales[::-1], strict=True)
        ]
        coarser = [tokens[0], tokens[0], tokens[1]]
        crossed = [across(t, memory) for across, t, memory in zip(self.across, tokens, coarser, strict=True)]
        x = torch.stack([*tokens, *crossed]).mean(dim=0).transpose(1, 2).reshape(len(x), WIDTH, rows, columns)
        for decode in self.decoders:
            x = decode(x + scales.pop())
        return torch.sigmoid(self.predict(x + head))[..., :h, :w], states


def sinusoids(count: int, like: Tensor) -> Float[Tensor, "count c"]:
    """Return sines and cosines of every place, interleaved (Vaswani et al., NeurIPS 2017)."""
    place = torch.arange(count, device=like.device, dtype=torch.float64)[:, None]
    angle = place / 10000 ** (torch.arange(0, WIDTH, 2, device=like.device, dtype=torch.float64) / WIDTH)
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1).to(like.dtype)
