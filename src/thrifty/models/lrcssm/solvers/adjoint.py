"""The gradient of a solved recurrence, by implicit differentiation: no graph through the iterations.

With g_t = ∂L/∂x_t the adjoint is λ_t = g_t + J_{t+1} λ_{t+1}, one scan in reverse with the Jacobians *at the accepted
states* (the authors' code takes those of the iterate before). Gradients by inputs and parameters are one
vector-Jacobian product of the step, which is evaluated anew: only inputs and states are kept. O(TD) time and memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from thrifty.models.lrcssm.scans.affine import shifted
from thrifty.models.lrcssm.solvers.recurrence import Recurrence, adjoint_states, apply_linear


def attach_gradient(problem: Recurrence, x0: Tensor, x: Tensor) -> Tensor:
    """Return the solution ``x``, differentiable by ``x0``, by what the cell precomputed, and by its parameters."""
    parameters = tuple(p for p in problem.cell.parameters() if p.requires_grad)
    count = len(problem.pre)
    solved: Tensor = _Implicit.apply(problem, x, count, x0, *problem.pre, *parameters)
    return solved


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, problem: Recurrence, x: Tensor, count: int, x0: Tensor, *tensors: Tensor) -> Tensor:
        ctx.problem = replace(problem, pre=())
        ctx.count = count
        ctx.save_for_backward(x, x0, *tensors)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, x0, *tensors = ctx.saved_tensors
        pre, parameters = tuple(tensors[: ctx.count]), tensors[ctx.count :]
        problem = replace(ctx.problem, pre=pre)
        with torch.no_grad():
            fused = problem.pull_fused(x, x0, grads[0])
            found = _pull(problem, x, x0, grads[0], parameters) if fused is None else _in_order(fused, parameters)
        if torch.is_grad_enabled():  # create_graph=True
            source = next(t for t in (x0, *tensors) if t.requires_grad)
            found = [None if g is None else _Final.apply(g, source) for g in found]
        return None, None, None, *found


def _in_order(fused: tuple[Tensor, Tensor, Tensor], parameters: list[Tensor]) -> list[Tensor | None]:
    to_drive, to_P, to_x0 = fused
    return [to_x0, to_drive, to_P, *(None for _ in parameters)]


class _Final(torch.autograd.Function):
    """A gradient that depends on what the solution came from, and is not differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, source: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(
            "second-order gradients do not flow through a solved recurrence; "
            "differentiate newton_solve(...) once, or run the cell step by step on autograd's tape"
        )


def _pull(problem: Recurrence, x: Tensor, x0: Tensor, g: Tensor, parameters: list[Tensor]) -> list[Tensor | None]:
    """Return the gradients by x₀, by each precomputed tensor and by each parameter."""
    xp = shifted(x, x0)
    _, J = problem.phi_and_jacobian(xp)
    adjoint = adjoint_states(J, g)
    first = J[:, 0].conj()
    to_x0 = apply_linear(first.transpose(-1, -2) if problem.dense else first, adjoint[:, 0])
    with torch.enable_grad():
        pre = tuple(t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in problem.pre)
        phi = replace(problem, pre=pre).phi(xp)
        wanted = [t for t in (*pre, *parameters) if t.requires_grad]
        found = iter(torch.autograd.grad(phi, wanted, adjoint, allow_unused=True))
    return [to_x0, *(next(found) if t.requires_grad else None for t in (*pre, *parameters))]
