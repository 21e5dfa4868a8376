"""The cell with dense state synapses, to compare with: every channel reads every other through a synapse of its own.

Over y = [x, u]: f_i = Σ_j g_ij σ(a_ij y_j + b_ij) + g_i, likewise z, and ε_i = Σ_j α_ij y_j + β_i; then as in the
diagonal cell. Its Jacobian is a full D × D matrix a step, so that a Newton step costs O(T D³) (arXiv 2505.21717,
section 2, before self-loops).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.models.lrcssm.cells.base import DiagonalCell, uniform


class DenseLRCCell(DiagonalCell):
    """Liquid-resistance liquid-capacitance cell with dense state synapses.

    Args:
        input_size: Width n of the input.
        hidden_size: Number D of state channels; time and memory grow with its square.
        quasi: Newton steps use only the diagonal of the Jacobian (more of them, each as cheap as a diagonal one).
        dt: Step in (0, 1].
        device: As in torch's layers.
        dtype: float32 (default) or float64.

    Example:
        >>> from thrifty.models.lrcssm import newton_solve
        >>> x, info = newton_solve(DenseLRCCell(3, 8, quasi=True), torch.randn(2, 50, 3))
        >>> info.solver
        'quasi'

    Source:
        arXiv 2505.21717, section 2.
    """

    structure = "dense"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        quasi: bool = False,
        dt: float = 1.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt)
        self.quasi = quasi
        D, wide, bound = hidden_size, hidden_size + input_size, 1 / math.sqrt(hidden_size)
        factory = {"device": device, "dtype": dtype}
        self.a, self.b = uniform((D, wide), bound, **factory), uniform((D, wide), bound, **factory)
        self.G, self.K = uniform((D, wide), bound, **factory), uniform((D, wide), bound, **factory)
        self.alpha, self.beta = uniform((D, wide), bound, **factory), uniform((D,), bound, **factory)
        self.g, self.e = uniform((D,), bound, **factory), uniform((D,), bound, **factory)

    def precompute(self, u: Float[Tensor, "... n"]) -> tuple[Tensor, ...]:
        """Return the input's part of f, z and ε side by side, and the parameters of the state's part."""
        D = self.hidden_size
        q = torch.sigmoid(self.a[:, D:] * u.unsqueeze(-2) + self.b[:, D:])  # (..., D, n)
        parts = ((self.G[:, D:] * q).sum(-1), (self.K[:, D:] * q).sum(-1), u @ self.alpha[:, D:].T + self.beta)
        shared = (weight[:, :D] for weight in (self.a, self.b, self.G, self.K, self.alpha))
        return torch.cat(parts, dim=-1), *shared, self.g, self.e

    def step(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return x + E(x)·v(x)."""
        return self._step(x, *pre)[0]

    def step_and_jac(self, x: Tensor, *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step and its full Jacobian, ``(..., D, D)``."""
        new, dense, diagonal = self._step(x, *pre, jacobian=True)
        return new, dense + torch.diag_embed(diagonal)

    def _step(
        self, x: Tensor, drive: Tensor, a: Tensor, b: Tensor, G: Tensor, K: Tensor, alpha: Tensor, g: Tensor,
        e: Tensor, *, jacobian: bool = False,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        F, Z, epsilon = drive.chunk(3, dim=-1)
        p = torch.sigmoid(a * x.unsqueeze(-2) + b)  # (..., D, D): unit i reads channel j
        S = torch.sigmoid((G * p).sum(-1) + F + g)
        h = torch.tanh((K * p).sum(-1) + Z + g)
        E = torch.sigmoid(x @ alpha.T + epsilon)
        v = e * h - S * x
        new = x + E * v
        if not jacobian:
            return new, new, new
        dp = p * (1 - p) * a
        of_S, of_h = (-E * x * S * (1 - S)).unsqueeze(-1), (E * e * (1 - h * h)).unsqueeze(-1)
        dense = (of_S * G + of_h * K) * dp + (E * (1 - E) * v).unsqueeze(-1) * alpha
        return new, dense, 1 - E * S
