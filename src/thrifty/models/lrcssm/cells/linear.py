"""The linear ablation with a bounded eigenvalue: x⁺ = λ(u)·x + b(u), for which the paper's theorem holds as printed.

arXiv 2505.21717, section 3.3 and Table 10: λ = ρ·tanh(raw) or ρ·exp(−softplus(raw)), raw affine in the input synapse.
A Newton solve of it is exact after one iteration.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from thrifty._common.checks import one_of
from thrifty.models.lrcssm.cells.base import DiagonalCell, uniform

Eigenvalue = Literal["tanh", "softplus"]


class LinearLRCCell(DiagonalCell):
    """The cell without state dependence: input-dependent eigenvalues, bounded by ρ, and an input-dependent drive.

    Args:
        input_size: Width n of the input.
        hidden_size: Number D of state channels.
        eigenvalue: ``"tanh"``: λ = ρ·tanh(raw) in (−ρ, ρ); ``"softplus"``: λ = ρ·exp(−softplus(raw)) in (0, ρ).
        rho: The bound, in (0, 1].
        dt: Step in (0, 1].
        device: As in torch's layers.
        dtype: float32 (default) or float64.

    Example:
        >>> from thrifty.models.lrcssm import newton_solve
        >>> x, info = newton_solve(LinearLRCCell(3, 16), torch.randn(2, 50, 3))
        >>> info.n_iter.tolist()  # the second iteration confirms the first
        [2, 2]

    Source:
        arXiv 2505.21717, section 3.3.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        eigenvalue: Eigenvalue = "tanh",
        rho: float = 1.0,
        dt: float = 1.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, rho=rho)
        one_of("eigenvalue", eigenvalue, get_args(Eigenvalue))
        self.eigenvalue = eigenvalue
        D, bound = hidden_size, 1 / math.sqrt(hidden_size)
        factory = {"device": device, "dtype": dtype}
        self.m, self.s = uniform((input_size,), bound, **factory), uniform((input_size,), bound, **factory)
        self.W, self.g = uniform((2 * D, input_size), bound, **factory), uniform((2 * D,), bound, **factory)
        self.e, self.beta = uniform((D,), bound, **factory), uniform((D,), bound, **factory)

    def precompute(self, u: Float[Tensor, "... n"]) -> tuple[Tensor, ...]:
        """Return (λ, b) of every step; ρ, which the layer multiplies onto the state, is not in them."""
        raw, z = functional.linear(torch.sigmoid(self.s * (u - self.m)), self.W, self.g).chunk(2, dim=-1)
        factor = torch.tanh(raw) if self.eigenvalue == "tanh" else torch.exp(-functional.softplus(raw))
        return factor, torch.sigmoid(self.beta) * self.e * torch.tanh(z)

    def step(self, x: Tensor, *pre: Tensor) -> Tensor:
        """Return λx + b."""
        return pre[0] * x + pre[1]

    def step_and_jac(self, x: Tensor, *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return λx + b and λ."""
        return pre[0] * x + pre[1], pre[0].expand_as(x)
