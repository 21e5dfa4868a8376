"""The liquid-resistance liquid-capacitance cell with self-loops, its relatives, and their exact Jacobian.

With q = σ(s(u − m)), F = Wq + g, Z = Hq + g for the input (all steps at once) and p = σ(a(x − μ)) for the state:

    f = F + wp,  z = Z + kp,  ε = αx + β,  v = −σ(f) x + e tanh(z)
    x⁺ = x + E(ε) v,   E = σ(ε), or σ(ε + κ) − σ(ε − κ)

(arXiv 2505.21717, section 3 and appendix; the order of the input synapse is that of the authors' code, which made the
published numbers). Every line is element-wise in x, hence, with S = σ(f), h = tanh(z), p' = p(1 − p)a:

    ∂x⁺/∂x = 1 + E'v + E(−S − x S(1 − S) w p' + e(1 − h²) k p')
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional

from thrifty._common.checks import one_of
from thrifty.models.lrcssm.cells import certified
from thrifty.models.lrcssm.cells.base import DiagonalCell, Initialisation, uniform

Elastance = Literal["asymmetric", "symmetric", "constant"]
Synapse = Literal["post", "pre"]
Sign = Literal["positive", "free"]

#: Rows of the parameter matrix that `precompute` returns.
ROWS = ("a", "mu", "w", "k", "e", "alpha", "beta", "kappa")


class LRCCell(DiagonalCell):
    """Liquid-resistance liquid-capacitance cell whose state meets itself only through self-loops.

    Args:
        input_size: Width n of the input.
        hidden_size: Number D of state channels.
        elastance: ``"asymmetric"`` E = σ(ε); ``"symmetric"`` σ(ε+κ) − σ(ε−κ); ``"constant"`` 1 (:class:`STCCell`).
        elastance_sign: With the symmetric one, ``"positive"`` (κ through softplus) or ``"free"``, as in the authors'
            code, where half of the units begin with growth in place of decay.
        input_synapse: ``"post"`` mixes channels after the sigmoid (the authors' code), ``"pre"`` before it (the paper).
        elastance_input: Let ε read the input as well (the paper; the authors' code does not).
        saturating: Pass f and z through σ and tanh; without, the state may diverge (:class:`LTCCell`).
        state_dependent_A: Let σ(f) and ε depend on the state.
        state_dependent_b: Let tanh(z) depend on the state. False needs ``state_dependent_A=False``: the recurrence is
            then linear.
        init: ``"standard"``: synapses that see the input (slopes of order one, a drive of unit variance) and elastances
            for time constants from one to about a hundred steps; ``"reference"``: every parameter uniform in ±1/√D, as
            in the authors' code, from which the state hardly reads the input at first.
        dt: Step in (0, 1].
        rho: Certify ``|∂x⁺/∂x| ≤ rho`` for every state within the bound and every input; ``None`` does not.
        device: As in torch's layers.
        dtype: float32 (default) or float64.

    Raises:
        ValueError: An option is unknown, or a combination has no meaning.

    Example:
        >>> cell = LRCCell(3, 16, rho=0.99)
        >>> cell(torch.randn(2, 3), torch.zeros(2, 16)).shape
        torch.Size([2, 16])

    Source:
        arXiv 2505.21717, section 3; certified mode: see ``certified.py``.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        elastance: Elastance = "asymmetric",
        elastance_sign: Sign = "positive",
        input_synapse: Synapse = "post",
        elastance_input: bool = False,
        saturating: bool = True,
        state_dependent_A: bool = True,
        state_dependent_b: bool = True,
        init: Initialisation = "standard",
        dt: float = 1.0,
        rho: float | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, rho=rho)
        one_of("elastance", elastance, get_args(Elastance))
        one_of("elastance_sign", elastance_sign, get_args(Sign))
        one_of("input_synapse", input_synapse, get_args(Synapse))
        one_of("init", init, get_args(Initialisation))
        if elastance == "constant" and elastance_input:
            raise ValueError("elastance_input: a constant elastance reads nothing; expected False")
        if state_dependent_A and not state_dependent_b:
            raise ValueError("state_dependent_b: False needs state_dependent_A=False (they share the elastance)")
        if rho is not None and not saturating:
            raise ValueError("rho: a cell without saturation cannot be certified; expected None")
        if rho is not None and elastance == "symmetric" and elastance_sign == "free":
            raise ValueError("rho: a negative elastance cannot be certified; use elastance_sign='positive'")
        if dtype not in {None, torch.float32, torch.float64}:
            raise ValueError(f"dtype: expected float32 or float64, got {dtype}; complex states: ComplexLRCCell")
        self.elastance, self.elastance_sign, self.input_synapse = elastance, elastance_sign, input_synapse
        self.elastance_input, self.saturating = elastance_input, saturating
        self.state_dependent_A, self.state_dependent_b = state_dependent_A, state_dependent_b
        self._make_parameters(device=device, dtype=dtype)
        if init == "standard":
            self._widen()

    def _make_parameters(self, **factory: Any) -> None:
        n, D, bound = self.input_size, self.hidden_size, 1 / math.sqrt(self.hidden_size)

        def vector(size: int = D) -> nn.Parameter:
            return uniform((size,), bound, **factory)

        if self.input_synapse == "post":
            self.m, self.s = vector(n), vector(n)
            self.W, self.H = uniform((D, n), bound, **factory), uniform((D, n), bound, **factory)
        else:
            self.A_u, self.b_u = uniform((D, n), bound, **factory), vector()
            self.g_u, self.k_u = vector(), vector()
        if self.state_dependent_b:
            self.mu, self.a, self.k = vector(), vector(), vector()
        if self.state_dependent_A:
            self.w = vector()
        self.g, self.e = vector(), vector()
        if self.elastance != "constant":
            if self.state_dependent_A:
                self.alpha = vector()
            self.beta = vector()
        if self.elastance == "symmetric":
            self.kappa = vector()
        if self.elastance_input:
            self.W_e = uniform((D, n), bound, **factory)

    @torch.no_grad()
    def _widen(self) -> None:
        """Go from the reference initialisation to one whose state reads the input, at many time constants."""
        n, D = self.input_size, self.hidden_size
        unit = math.sqrt(D)  # times this, a parameter is uniform in (−1, 1)
        narrow = unit / math.sqrt(n)
        factors = {"m": unit, "s": 3 * unit, "W": narrow, "H": 6 * narrow, "a": unit, "e": unit}
        factors |= {"A_u": 3 * narrow, "k_u": 3 * unit}
        for name, factor in factors.items():
            parameter = getattr(self, name, None)
            if parameter is not None:
                parameter.mul_(factor)
        if self.elastance != "constant":
            self.beta.copy_(torch.linspace(-4, 1, D))

    def precompute(self, u: Float[Tensor, "... n"]) -> tuple[Tensor, ...]:
        """Return (F, Z and ε_u of every step, side by side; the parameters as an 8 × D matrix)."""
        if self.input_synapse == "post":
            q = torch.sigmoid(self.s * (u - self.m))
            drive = functional.linear(q, torch.cat((self.W, self.H)), torch.cat((self.g, self.g)))
        else:
            q = torch.sigmoid(functional.linear(u, self.A_u, self.b_u))
            drive = torch.cat((q * self.g_u + self.g, q * self.k_u + self.g), dim=-1)
        if self.elastance_input:
            drive = torch.cat((drive, functional.linear(u, self.W_e)), dim=-1)
        return drive, self.parameter_rows()

    def parameter_rows(self) -> Float[Tensor, "8 D"]:
        """Return what `step` uses of the parameters: κ made positive, a and α reduced if the cell is certified."""
        found = {name: getattr(self, name, None) for name in ROWS}
        if self.elastance == "symmetric" and self.elastance_sign == "positive":
            found["kappa"] = functional.softplus(self.kappa)
        if self.rho is not None:
            shrink = certified.bound(self).excess.clamp(min=1)
            for name in ("a", "alpha"):
                value = found[name]
                found[name] = None if value is None else value / shrink
        zeros = torch.zeros_like(self.e)
        return torch.stack([zeros if value is None else value for value in found.values()])

    def step(self, x: Num[Tensor, "... D"], *pre: Tensor) -> Num[Tensor, "... D"]:
        """Return x + E(x)·v(x)."""
        v, E, *_ = self._terms(x, *pre)
        return x + E * v

    def step_and_jac(self, x: Num[Tensor, "... D"], *pre: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step and the diagonal of its Jacobian, in closed form."""
        v, E, p, S, h, slope = self._terms(x, *pre)
        a, _, w, k, e, alpha, _, _ = pre[1].unbind()
        dp = p * (1 - p) * a
        of_S, of_h = (S * (1 - S), 1 - h * h) if self.saturating else (1.0, 1.0)
        dv = dp * (e * of_h * k - x * of_S * w) - S
        return x + E * v, 1 + alpha * slope * v + E * dv

    def _terms(self, x: Tensor, drive: Tensor, P: Tensor) -> tuple[Tensor, ...]:
        """Return v, E, p, S, h and dE/dε."""
        D = self.hidden_size
        a, mu, w, k, e, alpha, beta, kappa = P.unbind()
        p = torch.sigmoid(a * (x - mu))
        f, z = drive[..., :D] + w * p, drive[..., D : 2 * D] + k * p
        S, h = (torch.sigmoid(f), torch.tanh(z)) if self.saturating else (f, z)
        v = e * h - S * x
        if self.elastance == "constant":
            one = torch.ones_like(x)
            return v, one, p, S, h, torch.zeros_like(x)
        epsilon = alpha * x + beta
        if self.elastance_input:
            epsilon = epsilon + drive[..., 2 * D :]
        if self.elastance == "asymmetric":
            E = torch.sigmoid(epsilon)
            return v, E, p, S, h, E * (1 - E)
        high, low = torch.sigmoid(epsilon + kappa), torch.sigmoid(epsilon - kappa)
        return v, high - low, p, S, h, high * (1 - high) - low * (1 - low)

    def within_bound(self, x: Num[Tensor, "... D"]) -> Num[Tensor, "... D"]:
        """Return a state from outside, clipped to where the certificate holds if the cell has one."""
        if self.rho is None:
            return x
        limit = certified.bound(self).state.detach().to(x.dtype)
        return torch.minimum(torch.maximum(x, -limit), limit)

    @property
    def kernel(self) -> int | None:
        """Which compiled recurrence computes this cell (``compiled.py``), if one does."""
        if not self.saturating or self.state_dtype not in {torch.float32, torch.float64}:
            return None
        return ("asymmetric", "symmetric", "constant").index(self.elastance)

    def forward(self, u: Float[Tensor, "batch n"], x: Num[Tensor, "batch D"]) -> Num[Tensor, "batch D"]:
        """Take one step, ``dt`` and ``rho`` included, as ``nn.GRUCell`` does."""
        x, pre = self.within_bound(x), self.precompute(u)
        new = x + self.dt * (self.step(x, *pre) - x)
        return new if self.rho is None else self.rho * new


class STCCell(LRCCell):
    """The saturated cell of constant capacitance: E = 1. Arguments as :class:`LRCCell`, without those of the elastance.

    Example:
        >>> STCCell(3, 16, rho=0.99)(torch.randn(2, 3), torch.zeros(2, 16)).shape
        torch.Size([2, 16])

    Source:
        arXiv 2505.21717, appendix.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, elastance="constant", **options)


class LTCCell(LRCCell):
    """The liquid time-constant cell: constant capacitance, no saturation. It may diverge: F + w must stay in (0, 2/dt).

    Arguments as :class:`LRCCell`, without those of the elastance and ``saturating``.

    Example:
        >>> LTCCell(3, 16)(torch.randn(2, 3), torch.zeros(2, 16)).shape
        torch.Size([2, 16])

    Source:
        arXiv 2505.21717, section 2.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, elastance="constant", saturating=False, **options)


class ComplexLRCCell(LRCCell):
    """The cell with a complex state: a, μ, w and k are complex, and the output is Re(Cx) + d, C and d trained.

    σ and tanh have poles in the complex plane; a solve that meets one goes on in order, and says so. Arguments as
    :class:`LRCCell`, without ``rho``; ``init`` is ``"reference"``, which keeps away from the poles.

    Raises:
        ValueError: ``rho`` is given, or an option is unknown.

    Example:
        >>> cell = ComplexLRCCell(3, 16)
        >>> cell.readout(cell(torch.randn(2, 3), torch.zeros(2, 16, dtype=cell.state_dtype))).dtype
        torch.float32

    Source:
        arXiv 2505.21717, section 4.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        if options.get("rho") is not None:
            raise ValueError("rho: a complex state cannot be certified; expected None")
        super().__init__(input_size, hidden_size, **{"init": "reference", **options})

    def _make_parameters(self, **factory: Any) -> None:
        super()._make_parameters(**factory)
        D, bound = self.hidden_size, 1 / math.sqrt(self.hidden_size)
        for name in ("a", "mu", "w", "k"):
            real = getattr(self, name, None)
            if real is not None:
                other = torch.empty_like(real).uniform_(-bound, bound)
                setattr(self, name, nn.Parameter(torch.complex(real.detach(), other)))
        real, other = (torch.empty(D, D, **factory).uniform_(-bound, bound) for _ in range(2))
        self.C = nn.Parameter(torch.complex(real, other))
        self.d = nn.Parameter(torch.zeros(D, **factory))

    @property
    def state_dtype(self) -> torch.dtype:
        """complex64, or complex128 for float64 parameters."""
        return self.C.dtype

    @property
    def kernel(self) -> int | None:
        """None: there is no compiled recurrence of complex states."""
        return None

    def readout(self, x: Num[Tensor, "... D"], *pre: Tensor) -> Float[Tensor, "... D"]:
        """Return Re(Cx) + d."""
        return functional.linear(x, self.C).real + self.d
