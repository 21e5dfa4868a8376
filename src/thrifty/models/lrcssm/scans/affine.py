"""The affine recurrence x_t = a_t ⊙ x_{t−1} + b_t over a whole sequence at once, forwards or backwards, with gradients.

The pair (a, b) composes associatively, (a₁, b₁) then (a₂, b₂) = (a₂a₁, a₂b₁ + b₂), which is what lets a Newton step of
LrcSSM (arXiv 2505.21717, section 3) run in parallel over time. No logarithm and no division by prefix products:
products that underflow do so harmlessly to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Num
from torch import Tensor

from thrifty.models.lrcssm.scans.tree import Levels, associative_scan, combine_affine

Backend = Literal["auto", "cpu", "blocked", "tree", "torch", "triton"]


def affine_scan(
    a: Num[Tensor, ...],
    b: Num[Tensor, ...],
    x0: Num[Tensor, ...] | None = None,
    *,
    dim: int = 1,
    reverse: bool = False,
    backend: Backend = "auto",
    levels: Levels | None = None,
) -> Num[Tensor, ...]:
    """Solve ``x_t = a_t * x_{t-1} + b_t`` for all t.

    Args:
        a: Factors, of the shape of ``b`` or one that broadcasts to it (one factor a channel for all time, say).
        b: Offsets. Real or complex; half precision is computed in float32.
        x0: What stands before the first step (after the last if ``reverse``), ``b`` without ``dim``; zeros if ``None``.
        dim: The dimension of time.
        reverse: Run from the end: ``x_t = a_t * x_{t+1} + b_t``.
        backend: ``"cpu"`` (one compiled pass in order, vectorised across channels), ``"blocked"`` (about 2√T vector
            operations), ``"tree"`` (logarithmic depth), ``"torch"`` (torch's ``associative_scan``), ``"triton"`` (GPU),
            or the best for the device.
        levels: With ``"tree"``: counts the levels of combines.

    Returns:
        x, of the shape of ``b``.

    Raises:
        ValueError: The shapes do not fit, there is no step, or the backend cannot run here.
        TypeError: Something is no tensor.

    Example:
        >>> affine_scan(torch.full((1, 4, 1), 0.5), torch.ones(1, 4, 1)).flatten()
        tensor([1.0000, 1.5000, 1.7500, 1.8750])

    Source:
        Blelloch, "Prefix Sums and Their Applications" (1990), section 1.4: first-order recurrences as scans.
    """
    for name, value in (("a", a), ("b", b), ("x0", b if x0 is None else x0)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    if backend not in get_args(Backend):
        raise ValueError(f"backend: expected one of {', '.join(get_args(Backend))}, got {backend!r}")
    if not -b.dim() <= dim < b.dim():
        raise ValueError(f"dim: b has shape {tuple(b.shape)}, which has no dimension {dim}")
    if b.shape[dim] == 0:
        raise ValueError(f"b: expected at least one step along dimension {dim}, got shape {tuple(b.shape)}")
    given = torch.promote_types(a.dtype, b.dtype)
    if x0 is not None:
        given = torch.promote_types(given, x0.dtype)
    dtype = torch.promote_types(given, torch.float32)
    try:
        a = a.expand(b.shape)
    except RuntimeError:
        raise ValueError(
            f"a: expected a shape that broadcasts to b's, got {tuple(a.shape)} for {tuple(b.shape)}"
        ) from None
    a, b = (x.to(dtype).movedim(dim, 0) for x in (a, b))
    T, rest = b.shape[0], b.shape[1:]
    features = rest[-1] if rest else 1
    start = b.new_zeros(rest) if x0 is None else x0.to(dtype)
    if start.shape != rest:
        raise ValueError(f"x0: expected shape {tuple(rest)} (b without dimension {dim}), got {tuple(start.shape)}")
    a, b_flat = (x.reshape(T, -1, features).transpose(0, 1) for x in (a, b))
    x = scan(a, b_flat, start.reshape(-1, features), reverse=reverse, backend=backend, levels=levels)
    return x.transpose(0, 1).reshape(b.shape).movedim(0, dim).to(given)


def scan(
    a: Num[Tensor, "n T d"],
    b: Num[Tensor, "n T d"],
    x0: Num[Tensor, "n d"],
    *,
    reverse: bool = False,
    backend: Backend = "auto",
    levels: Levels | None = None,
) -> Num[Tensor, "n T d"]:
    """Do what :func:`affine_scan` does, on tensors that are known to fit."""
    if backend == "auto":
        backend = _for_device(b)
    elif backend == "cpu" and b.device.type != "cpu":
        raise ValueError(f"backend: 'cpu' needs tensors on the CPU, got {b.device}")
    x: Tensor = _AffineScan.apply(a, b, x0, reverse, backend, levels)
    return x


class _AffineScan(torch.autograd.Function):
    """The scan, whose gradient is one scan in the other direction (so that it can be differentiated twice)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, x0: Tensor, reverse: bool, backend: Backend, levels: Any) -> Tensor:
        x = _RUN[backend](a, b, x0, reverse) if backend != "tree" else _tree(a, b, x0, reverse, levels)
        ctx.save_for_backward(a, x, x0)
        ctx.reverse, ctx.backend = reverse, backend
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        (g,) = grads
        a, x, x0 = ctx.saved_tensors
        reverse = ctx.reverse
        first = -1 if reverse else 0
        zero = torch.zeros_like(x0)
        conj = a.conj().resolve_conj()
        carried = shifted(conj, zero, not reverse)  # the factor of the step that comes after, 0 for the last
        adjoint = scan(carried, g, zero, reverse=not reverse, backend=ctx.backend)
        to_a = adjoint * shifted(x, x0, reverse).conj() if ctx.needs_input_grad[0] else None
        to_x0 = conj[:, first] * adjoint[:, first] if ctx.needs_input_grad[2] else None
        return to_a, adjoint, to_x0, None, None, None


def shifted(x: Num[Tensor, "n T d"], x0: Num[Tensor, "n d"], reverse: bool = False) -> Num[Tensor, "n T d"]:
    """Return what stands one step before each step: x₀, x₁, …, x_{T−1} (after it, if ``reverse``)."""
    if reverse:
        return torch.cat((x[:, 1:], x0.unsqueeze(1)), dim=1)
    return torch.cat((x0.unsqueeze(1), x[:, :-1]), dim=1)


def _for_device(b: Tensor) -> Backend:
    if b.device.type == "cpu":
        return "cpu"
    if b.device.type == "cuda" and b.dtype in {torch.float32, torch.float64}:
        from thrifty.models.lrcssm.scans import gpu

        if gpu.available():
            return "triton"
    return "blocked"


def _cpu(a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    from thrifty.models.lrcssm.scans import cpu
    from thrifty.models.lrcssm.scans.threads import over_rows

    a, b, x0 = _narrow(a.detach()).resolve_conj(), b.detach().resolve_conj().contiguous(), x0.detach().contiguous()
    x = torch.empty_like(b)
    over_rows(cpu.affine, (a, b, x0, x), reverse, work=b.numel())
    return x


def _narrow(a: Tensor) -> Tensor:
    """Undo a broadcast along sequences or time, which the compiled pass repeats by itself."""
    for dim in (0, 1):
        if a.stride(dim) == 0 and a.shape[dim] > 1:
            a = a.narrow(dim, 0, 1)
    return a.contiguous()


def _blocked(a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    """Scan within √T blocks at once, then carry from block to block, then add what was carried."""
    if reverse:
        return _blocked(a.flip(1), b.flip(1), x0, False).flip(1)
    n, T, d = b.shape
    size = math.isqrt(T - 1) + 1
    blocks = -(-T // size)
    pad = blocks * size - T
    if pad:
        a = torch.cat((a, a.new_ones(n, pad, d)), dim=1)
        b = torch.cat((b, b.new_zeros(n, pad, d)), dim=1)
    product, x = (v.reshape(n, blocks, size, d).clone() for v in (a, b))
    for t in range(1, size):
        x[:, :, t] += product[:, :, t] * x[:, :, t - 1]
        product[:, :, t] *= product[:, :, t - 1]
    carry = torch.empty_like(x[:, :, 0])
    held = x0
    for block in range(blocks):
        carry[:, block] = held
        held = product[:, block, -1] * held + x[:, block, -1]
    return torch.addcmul(x, product, carry.unsqueeze(2)).reshape(n, -1, d)[:, :T]


def _tree(a: Tensor, b: Tensor, x0: Tensor, reverse: bool, levels: Levels | None = None) -> Tensor:
    return _through(lambda a, b: associative_scan(combine_affine, (a, b), levels)[1], a, b, x0, reverse)


def _torch(a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    from torch._higher_order_ops import associative_scan as host

    mode = "pointwise" if b.is_cuda else "generic"

    def run(a: Tensor, b: Tensor) -> Tensor:
        found: Any = host(combine_affine, (a.contiguous(), b.contiguous()), 1, combine_mode=mode)
        last: Tensor = found[1]
        return last

    return _through(run, a, b, x0, reverse)


def _through(run: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    """Fold x₀ into the first offset, and run a forward scan in either direction."""
    if reverse:
        a, b = a.flip(1), b.flip(1)
    b = torch.cat((b[:, :1] + a[:, :1] * x0.unsqueeze(1), b[:, 1:]), dim=1)
    x = run(a, b)
    return x.flip(1) if reverse else x


def _triton(a: Tensor, b: Tensor, x0: Tensor, reverse: bool) -> Tensor:
    from thrifty.models.lrcssm.scans import gpu

    return gpu.affine(a, b, x0, reverse)


_RUN: dict[str, Callable[[Tensor, Tensor, Tensor, bool], Tensor]] = {
    "cpu": _cpu,
    "blocked": _blocked,
    "tree": _tree,
    "torch": _torch,
    "triton": _triton,
}
