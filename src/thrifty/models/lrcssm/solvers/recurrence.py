"""One batch of sequences as a fixed-point problem: x_t = Φ_t(x_{t−1}) for all t.

Φ blends a cell's step with the old state, Φ(x) = keep·x + take·φ(x). One pair of numbers a step carries everything
that is not the cell's business: step size dt (x + dt(φ − x)), the certified factor ρ (ρ times that), and masked steps,
on which the state is held (keep = 1, take = 0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from thrifty.models.lrcssm.cells import compiled
from thrifty.models.lrcssm.cells.base import step_and_jacobian
from thrifty.models.lrcssm.scans import cpu, gpu
from thrifty.models.lrcssm.scans.affine import scan, shifted
from thrifty.models.lrcssm.scans.threads import over_rows
from thrifty.models.lrcssm.scans.tree import associative_scan, combine_matrix_affine


@dataclass(frozen=True)
class Recurrence:
    """A cell, what it precomputed of the inputs, and the blend of every step.

    Args:
        cell: The cell.
        pre: What its ``precompute`` returned; tensors of three dimensions are per step.
        shape: (batch, time).
        keep: Share of the old state that stays, a step; ``None`` with ``take`` means none.
        take: Share of the cell's step.
    """

    cell: nn.Module
    pre: tuple[Tensor, ...]
    shape: tuple[int, int]
    keep: Float[Tensor, "batch time 1"] | None = None
    take: Float[Tensor, "batch time 1"] | None = None

    @property
    def dense(self) -> bool:
        """Whether Jacobians are matrices."""
        return getattr(self.cell, "structure", "diagonal") == "dense"

    def phi(self, xp: Num[Tensor, "batch time D"]) -> Num[Tensor, "batch time D"]:
        """Return the next state of every step."""
        new: Tensor = self.cell.step(xp, *self.pre)  # type: ignore[operator]
        return self._blend(xp, new)

    def phi_and_jacobian(self, xp: Num[Tensor, "batch time D"]) -> tuple[Tensor, Tensor]:
        """Return the next state of every step and the Jacobian there: a diagonal, or a matrix if the cell is dense."""
        kernel = self.compiled_for(xp)
        if kernel is not None:
            return self._linearise(xp, kernel)
        new, J = step_and_jacobian(self.cell, xp, self.pre)
        if self.keep is None or self.take is None:
            return new, J
        if self.dense:
            eye = torch.eye(J.shape[-1], dtype=J.dtype, device=J.device)
            return self._blend(xp, new), self.keep.unsqueeze(-1) * eye + self.take.unsqueeze(-1) * J
        return self._blend(xp, new), self.keep + self.take * J

    def at(self, t: int, x: Num[Tensor, "batch D"]) -> Num[Tensor, "batch D"]:
        """Return the state after step t, from the one before it."""
        return self.window(t, t + 1).phi(x.unsqueeze(1))[:, 0]

    def window(self, start: int, stop: int) -> Recurrence:
        """Return the problem of some steps."""
        return self._sliced(lambda x: x[:, start:stop], (self.shape[0], stop - start))

    def rows(self, index: Tensor) -> Recurrence:
        """Return the problem of some sequences."""
        return self._sliced(lambda x: x[index] if len(x) > 1 else x, (len(index), self.shape[1]))

    def _sliced(self, cut: Callable[[Tensor], Tensor], shape: tuple[int, int]) -> Recurrence:
        pre = tuple(cut(x) if x.dim() > 2 else x for x in self.pre)
        keep, take = (None if x is None else cut(x) for x in (self.keep, self.take))
        return replace(self, pre=pre, shape=shape, keep=keep, take=take)

    def _blend(self, xp: Tensor, new: Tensor) -> Tensor:
        return new if self.keep is None or self.take is None else self.keep * xp + self.take * new

    def compiled_for(self, x: Tensor) -> int | None:
        """Return which recurrence compiled for the CPU computes this problem, or ``None``."""
        return self._kernel() if x.device.type == "cpu" and x.dtype == self.pre[0].dtype else None

    def tiled_for(self, x: Tensor) -> int | None:
        """Return which recurrence of the GPU kernels computes this problem, or ``None``."""
        return self._kernel() if x.is_cuda and gpu.available() and x.dtype == self.pre[0].dtype else None

    def _kernel(self) -> int | None:
        kernel: int | None = getattr(self.cell, "kernel", None)
        return kernel

    def kernel_inputs(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return drive, parameters, keep and take as the compiled recurrences want them."""
        drive, P = (v.detach().contiguous() for v in self.pre)
        n, T = self.shape
        if self.keep is None or self.take is None:
            zeros = x.new_zeros(n, T)
            return drive, P, zeros, zeros + 1
        keep, take = (v.squeeze(-1).expand(n, T).to(x.dtype).contiguous() for v in (self.keep, self.take))
        return drive, P, keep, take

    def _linearise(self, xp: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
        drive, P, keep, take = self.kernel_inputs(xp)
        J, phi = torch.empty_like(xp), torch.empty_like(xp)
        shared = (drive, xp.detach().contiguous(), keep, take, J, phi)
        over_rows(compiled.linearise, shared, P, kernel, work=4 * xp.numel())
        return phi, J

    def run_compiled(self, x0: Tensor, kernel: int) -> Tensor:
        """Return all states, computed in order by the compiled recurrence."""
        drive, P, keep, take = self.kernel_inputs(x0)
        out = x0.new_empty(*self.shape, x0.shape[-1])
        shared = (drive, x0.detach().contiguous(), keep, take, out)
        over_rows(compiled.run, shared, P, kernel, work=4 * out.numel())
        return out

    def run_tiled(self, x0: Tensor, kernel: int, tol: float, max_iter: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states, iterations and convergence of Newton's method in tiles on a GPU."""
        return gpu.run_lrc(*self.kernel_inputs(x0), x0, kernel, tol, max_iter)

    def pull_fused(self, x: Tensor, x0: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the gradients of drive, parameters and x₀ by a fused adjoint, or ``None`` if there is none."""
        kernel = self.compiled_for(x)
        if kernel is None:
            tiled = self.tiled_for(x)
            return None if tiled is None else gpu.pull_lrc(*self.kernel_inputs(x), x0, x, g, tiled)
        drive, P, keep, take = self.kernel_inputs(x)
        to_drive, to_P = torch.empty_like(drive), x.new_empty(self.shape[0], *P.shape)
        to_x0 = torch.empty_like(x0)
        shared = (drive, x, x0.contiguous(), keep, take, g.contiguous(), to_drive, to_P, to_x0)
        over_rows(compiled.adjoint, shared, P, kernel, work=8 * x.numel())
        return to_drive, to_P.sum(0), to_x0


def linear_scan(J: Tensor, c: Tensor, x0: Tensor, *, reverse: bool = False, backend: Any = "auto") -> Tensor:
    """Solve x_t = J_t x_{t−1} + c_t, for diagonals ``(n, T, D)`` or matrices ``(n, T, D, D)``."""
    if J.dim() == c.dim():
        return scan(J, c, x0, reverse=reverse, backend=backend)
    if c.device.type == "cpu" and not c.is_complex():
        x = torch.empty_like(c)
        over_rows(cpu.matrix_affine, (J.contiguous(), c.contiguous(), x0.contiguous(), x), reverse, work=J.numel())
        return x
    if reverse:
        return linear_scan(J.flip(1), c.flip(1), x0).flip(1)
    first = c[:, :1] + apply_linear(J[:, :1], x0.unsqueeze(1))
    return associative_scan(combine_matrix_affine, (J, torch.cat((first, c[:, 1:]), dim=1)))[1]


def apply_linear(J: Tensor, x: Tensor) -> Tensor:
    """Return Jx for diagonals or matrices."""
    return J * x if J.dim() == x.dim() else (J @ x.unsqueeze(-1)).squeeze(-1)


def adjoint_states(J: Tensor, g: Tensor) -> Tensor:
    """Return λ_t = g_t + J_{t+1}ᴴ λ_{t+1}: the gradient by every state, by one scan in reverse."""
    zero = torch.zeros_like(g[:, 0])
    if J.dim() == g.dim():
        conj = J.conj().resolve_conj()
        return scan(shifted(conj, zero, reverse=True), g, zero, reverse=True)
    transposed = torch.cat((J[:, 1:], torch.zeros_like(J[:, :1])), dim=1).transpose(-1, -2)
    return linear_scan(transposed, g, zero, reverse=True)
