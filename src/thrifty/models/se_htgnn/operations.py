"""The three operations of the model as differentiable functions: compiled on a CPU, in plain tensor code elsewhere.

Neighbours are averaged (arXiv 2510.18467, equation 4), relation logits are carried by a narrow GRU (equations 5 to 7),
and attention over neighbours is there for rivals and the ``aggr="gat"`` ablation. The tensor code is also what the
compiled passes are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from thrifty.models.se_htgnn import kernels
from thrifty.models.se_htgnn.topology import Rows

#: Numbers below which a second thread costs more than it saves (starting one takes about 0.1 ms).
WORTH_SHARING = 400_000


def average(
    dst: Float[Tensor, "frame node d"], src: Float[Tensor, "frame other d"], rows: Rows, snap: Int[Tensor, " frame"]
) -> Float[Tensor, "frame node d"]:
    """Return ELU of the weighted sum of a node and its in-neighbours, for every frame of one relation.

    Args:
        dst: The destination nodes' states.
        src: The source nodes' states.
        rows: The relation's edges over all snapshots, with the weights of edges and of the node itself.
        snap: The snapshot of each frame.
    """
    if _compiled(dst):
        return _Average.apply(dst, src, rows, snap)  # type: ignore[no-any-return]
    frames, nodes, d = dst.shape
    where, sources, edges = rows.block(snap)
    own = rows.own.view(-1, nodes)[snap].unsqueeze(-1)
    messages = src.reshape(-1, d)[sources] * rows.weight[edges].unsqueeze(-1)
    return functional.elu((own * dst).reshape(-1, d).index_add(0, where, messages)).view(frames, nodes, d)


def carry(
    drive: Float[Tensor, "relation frame gates node"],
    index: Int[Tensor, "window time"],
    U: Float[Tensor, "relation gates head"],
    c: Float[Tensor, "relation gates"],
    start: Float[Tensor, "relation head"],
    share: Float[Tensor, "frame node"],
) -> Float[Tensor, "window time relation head"]:
    """Run the GRUs of all relations with one destination over all windows, and return their states' weighted means.

    Args:
        drive: The input's part of the gates, in ``torch.nn.GRU``'s order: reset, update, new.
        index: The frames of each window, in order of time.
        U: The state's weights.
        c: The state's biases.
        start: State before the first step.
        share: Weight of each node in the mean over a frame's nodes.
    """
    if _compiled(drive):
        return _Carry.apply(drive, index, U, c, start, share)  # type: ignore[no-any-return]
    (relations, k), windows, means = start.shape, len(index), []
    e = start[:, None, :, None].expand(relations, windows, k, drive.shape[3])
    for t in range(index.shape[1]):
        given = drive[:, index[:, t]]
        held = torch.einsum("rgk,rbkn->rbgn", U, e) + c[:, None, :, None]
        p, z = torch.chunk(torch.sigmoid(given[:, :, : 2 * k] + held[:, :, : 2 * k]), 2, 2)
        n = torch.tanh(given[:, :, 2 * k :] + p * held[:, :, 2 * k :])
        e = (1 - z) * n + z * e
        means.append(torch.einsum("rbkn,bn->brk", e, share[index[:, t]]))
    return torch.stack(means, 1)


def attend(
    h: Float[Tensor, "frame other d"],
    left: Float[Tensor, "frame other"],
    right: Float[Tensor, "frame node"],
    rows: Rows,
    snap: Int[Tensor, " frame"],
    slope: float = 0.2,
) -> Float[Tensor, "frame node d"]:
    """Return each node's in-neighbours averaged by softmax(LeakyReLU(left + right)); 0 where there is none.

    Args:
        h: States of the source nodes.
        left: Their part of the score.
        right: The destination nodes' part.
        rows: The relation's edges over all snapshots.
        snap: The snapshot of each frame.
        slope: LeakyReLU's below 0.
    """
    if _compiled(h):
        return _Attend.apply(h, left, right, rows, snap, slope)  # type: ignore[no-any-return]
    frames, nodes = right.shape
    where, sources, _ = rows.block(snap)
    score = functional.leaky_relu(left.reshape(-1)[sources] + right.reshape(-1)[where], slope)
    top = torch.full((frames * nodes,), -torch.inf, dtype=h.dtype, device=h.device)
    top = top.scatter_reduce(0, where, score.detach(), "amax")
    raised = torch.exp(score - top[where])
    total = torch.zeros_like(top).index_add(0, where, raised)
    messages = h.reshape(-1, h.shape[-1])[sources] * (raised / total[where]).unsqueeze(-1)
    out = torch.zeros(frames * nodes, h.shape[-1], dtype=h.dtype, device=h.device)
    return out.index_add(0, where, messages).view(frames, nodes, -1)


def _compiled(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)


def _slices(kernel: Callable[..., None], rows: int, work: int, scratch: Callable[[], tuple[Any, ...]], *shared: Any
            ) -> list[tuple[Any, ...]]:  # fmt: skip
    """Call a kernel on slices of ``rows``, one a thread of torch's setting, each with scratch of its own behind.

    Args:
        kernel: Takes the first and the last row, then the arrays.
        rows: How many there are.
        work: How many numbers the call touches.
        scratch: Makes what no two threads may write to.
        shared: Tensors that all read, or write to in their own rows.
    """
    count = max(1, min(torch.get_num_threads(), rows)) if work >= WORTH_SHARING else 1
    arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in shared]
    own = [scratch() for _ in range(count)]
    held = [tuple(x.numpy() if isinstance(x, Tensor) else x for x in mine) for mine in own]
    edges = [rows * part // count for part in range(count + 1)]
    if count == 1:
        kernel(0, rows, *arrays, *held[0])
        return own
    with ThreadPoolExecutor(count) as pool:
        calls = [
            pool.submit(kernel, low, high, *arrays, *mine)
            for (low, high), mine in zip(pairwise(edges), held, strict=True)
        ]
        for call in calls:
            call.result()
    return own


class _Average(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dst: Tensor, src: Tensor, rows: Rows, snap: Tensor) -> Tensor:
        dst, src = dst.contiguous(), src.contiguous()
        out = torch.empty_like(dst)
        weight, own = rows.weight.to(dst.dtype), rows.own.to(dst.dtype)
        _slices(kernels.gather, len(dst), rows.work(snap) * dst.shape[2], tuple, dst, src, snap, rows.ptr, rows.col,
                weight, own, out)  # fmt: skip
        ctx.save_for_backward(out, snap)
        ctx.rows, ctx.sources = rows, src.shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        out, snap = ctx.saved_tensors
        rows, grad = ctx.rows, grads[0].contiguous()
        to_dst, to_src = torch.empty_like(out), torch.zeros(ctx.sources, dtype=out.dtype)
        weight, own = rows.weight.to(out.dtype), rows.own.to(out.dtype)
        _slices(kernels.gather_back, len(out), rows.work(snap) * out.shape[2],
                lambda: (torch.empty(out.shape[2], dtype=out.dtype),), snap, rows.ptr, rows.col, weight, own, out, grad,
                to_dst, to_src)  # fmt: skip
        return to_dst, to_src, None, None


class _Carry(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor, index: Tensor, U: Tensor, c: Tensor, start: Tensor, share: Tensor) -> Tensor:
        drive, U, c, start, share = (x.contiguous() for x in (drive, U, c, start, share))
        (R, k), (B, T), N = start.shape, index.shape, drive.shape[3]
        E, S = (torch.empty(R, B, T, width, N, dtype=drive.dtype) for width in (k, 3 * k))
        means = _slices(kernels.recur, N, 5 * S.numel(), lambda: (torch.zeros(B, T, R, k, dtype=drive.dtype),),
                        drive, index, U, c, start, share, E, S)  # fmt: skip
        ctx.save_for_backward(drive, index, U, c, start, share, E, S)
        total: Tensor = sum(mine[0] for mine in means)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        drive, index, U, c, start, share, E, S = ctx.saved_tensors
        grad, to_drive = grads[0].contiguous(), torch.zeros_like(drive)
        own = _slices(kernels.recur_back, drive.shape[3], 5 * S.numel(),
                      lambda: (torch.zeros_like(U), torch.zeros_like(c), torch.zeros_like(start)),
                      drive, index, U, c, start, share, E, S, grad, to_drive)  # fmt: skip
        to_U, to_c, to_start = (sum(parts) for parts in zip(*own, strict=True))
        return to_drive, None, to_U, to_c, to_start, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, left: Tensor, right: Tensor, rows: Rows, snap: Tensor, slope: float) -> Tensor:
        h, left, right = h.contiguous(), left.contiguous(), right.contiguous()
        offset, total = rows.offsets(snap)
        share = torch.empty(total, dtype=h.dtype)
        out = torch.empty(*right.shape, h.shape[-1], dtype=h.dtype)
        lean = torch.tensor(slope, dtype=h.dtype).numpy()[()]
        _slices(kernels.attend, len(h), rows.work(snap) * h.shape[2], tuple, h, left, right, snap, offset, rows.ptr,
                rows.col, lean, share, out)  # fmt: skip
        ctx.save_for_backward(h, left, right, snap, offset, share, out)
        ctx.rows, ctx.lean = rows, lean
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        h, left, right, snap, offset, share, out = ctx.saved_tensors
        to_h, to_left, to_right = torch.zeros_like(h), torch.zeros_like(left), torch.zeros_like(right)
        _slices(kernels.attend_back, len(h), ctx.rows.work(snap) * h.shape[2] * 2, tuple, h, left, right, snap, offset,
                ctx.rows.ptr, ctx.rows.col, ctx.lean, share, out, grads[0].contiguous(), to_h, to_left,
                to_right)  # fmt: skip
        return to_h, to_left, to_right, None, None, None
