"""HyperE2VID: E2VID whose first decoder makes a filter for every pixel from the events and the last reconstruction.

A filter is a combination of atoms, an atom one of Fourier-Bessel bases at two scales; a small network gives the
coefficients of the bases at every pixel. Reference: Ercan et al., "HyperE2VID", TIP 2024, arXiv 2305.06382; bases:
Qiu et al., "DCFNet", ICML 2018. With 10 149 881 parameters. Not the authors' code: weights need renaming.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special
from torch import Tensor, nn
from torch.nn import functional

from thrifty.data.v2v.networks.e2vid import E2VID
from thrifty.data.v2v.networks.layers import enlarged, padded

ATOMS, BASES = 6, 6


@cache
def fourier_bessel(radius: int, count: int) -> NDArray[np.float64]:
    """Return the first bases on a square of side 2 radius + 1, shape (count, side, side), by ascending frequency.

    Each is J_k(R r) times cos(k phi) or sin(k phi), R a zero of J_k, cut off outside the disc; together their mean
    square norm is 1.
    """
    reach = radius + 0.5
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1] / reach
    r, phi = np.hypot(x, y), np.arctan2(x, y)
    zeros = sorted((zero, k) for k in range(8) for zero in special.jn_zeros(k, 8))
    made: list[NDArray[np.float64]] = []
    for zero, k in zeros:
        radial = np.where(r < 1, special.jv(k, r * zero), 0) / abs(special.jv(k + 1, zero))
        made += [radial] if k == 0 else [np.sqrt(2) * radial * wave(k * phi) for wave in (np.cos, np.sin)]
    bases = np.stack(made[:count])
    scaled: NDArray[np.float64] = bases / np.sqrt((bases**2).sum(axis=(1, 2)).mean())
    return scaled


def multiscale_bases(kernel: int) -> Float[Tensor, "bases taps"]:
    """Return the bases of every radius that fits into a kernel, each padded to its size."""
    scales = []
    for radius in range(1, kernel // 2 + 1):
        rim = kernel // 2 - radius
        scales.append(np.pad(fourier_bessel(radius, BASES), ((0, 0), (rim, rim), (rim, rim))))
    return torch.tensor(np.concatenate(scales), dtype=torch.float32).flatten(1)


class DynamicDecoder(nn.Module):
    """Enlarges by two, then filters every pixel with a kernel of its own.

    Args:
        inputs: Channels.
        outputs: Channels.
        context: Channels of what the kernels are made from: voxel grid and last frame.
        shrink: How much coarser than the frame its output is.
        kernel: Side of the kernels.
    """

    def __init__(self, inputs: int, outputs: int, context: int, shrink: int, kernel: int = 5) -> None:
        super().__init__()
        self.kernel, self.shrink = kernel, shrink
        self.register_buffer("bases", multiscale_bases(kernel), persistent=False)
        bases = BASES * (kernel // 2)
        self.fuse = nn.Conv2d(context, 32, 3, padding=1)
        self.coefficients = nn.Sequential(
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.Tanh(),
            nn.Conv2d(64, ATOMS * bases, 3, padding=1), nn.BatchNorm2d(ATOMS * bases), nn.Tanh(),
        )  # fmt: skip
        self.compose = nn.Conv2d(inputs * ATOMS, outputs, 1)
        nn.init.kaiming_normal_(self.compose.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.compose.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "n c h w"], context: Float[Tensor, "n b h4 w4"]) -> Tensor:
        """Return the activations."""
        x = enlarged(x)
        n, c, h, w = x.shape
        coarse = functional.interpolate(context, scale_factor=1 / self.shrink, mode="bilinear", align_corners=False)
        weights = self.coefficients(self.fuse(coarse)).view(n, ATOMS, -1, h, w)
        atoms = torch.einsum("nakhw,kl->nalhw", weights, self.bases)
        taps = functional.unfold(x, self.kernel, padding=self.kernel // 2).view(n, c, -1, h, w)
        mixed = torch.einsum("nalhw,nclhw->ncahw", atoms, taps).reshape(n, c * ATOMS, h, w)
        return functional.relu(self.compose(mixed))


class HyperE2VID(E2VID):
    """Reconstructs a frame from one voxel grid, what it remembers, and the frame before.

    Args:
        bins: Of a voxel grid.
        base: Channels of the head.

    Example:
        >>> sum(p.numel() for p in HyperE2VID().parameters())
        10149881

    Source:
        Ercan et al., arXiv 2305.06382.
    """

    #: Trainers mix the true frame into the one before, by a share that falls to nothing over so many epochs.
    curriculum_epochs = 16

    def __init__(self, bins: int = 5, base: int = 32) -> None:
        self._bins = bins
        super().__init__(bins, base)

    def decoder(self, inputs: int, outputs: int, level: int) -> nn.Module:
        """Return one decoder, the first a dynamic one."""
        if level == 3:
            return DynamicDecoder(inputs, outputs, self._bins + 1, shrink=4)
        return super().decoder(inputs, outputs, level)

    def forward(self, voxel: Float[Tensor, "n b h w"], state: Any = None) -> tuple[Float[Tensor, "n 1 h w"], Any]:
        """Return the frame, and the state: memories, and the frame, which a curriculum may replace."""
        h, w = voxel.shape[-2:]
        memory, last = state or (None, torch.zeros_like(voxel[:, :1]))
        grid = padded(voxel, 8)
        context = torch.cat([grid, padded(last, 8)], dim=1)
        x = head = self.head(grid)
        skips, states = [], []
        for i, (encode, remember) in enumerate(zip(self.encoders, self.memories, strict=True)):
            x, kept = remember(encode(x), memory[i] if memory else None)
            skips.append(x)
            states.append(kept)
        x = self.middle(x)
        for i, decode in enumerate(self.decoders):
            x = x + skips.pop()
            x = decode(x, context) if i == 0 else decode(x)
        frame = self.predict(x + head)[..., :h, :w]
        return frame, (states, frame)
