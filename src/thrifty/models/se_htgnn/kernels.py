"""Compiled passes for the CPU: mean aggregation, the width-k GRU of the attention, and attention over neighbours.

Each works on frames, that is on copies of a snapshot's nodes: ``(frame, node, channel)``. A frame finds its edges in the
compressed rows of its snapshot, so that no block-diagonal matrix is ever built, and one call serves every frame of a
relation. All release the interpreter's lock; ``operations.py`` gives each thread a slice. Equations: arXiv 2510.18467,
section 4; the adjoints are worked out here.

Arrays: ``ptr`` (snapshots x nodes + 1) and ``col`` are the compressed rows of a relation over all snapshots, by
destination; ``snap`` (frames) is the snapshot of a frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

#: Fused multiply-add and reciprocal instructions, sums in any order; infinities and NaN keep their meaning.
JIT: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},
}


@njit(**JIT)
def gather(low: int, high: int, dst: Any, src: Any, snap: Any, ptr: Any, col: Any, weight: Any, own: Any,
           out: Any) -> None:  # fmt: skip
    """Fill ``out[f, i] = ELU(own * dst[f, i] + sum of weight * src[f, j] over the edges j -> i)`` for a slice of frames."""
    N, d = dst.shape[1], dst.shape[2]
    one = dst.dtype.type(1)
    for f in range(low, high):
        first = snap[f] * N
        for i in range(N):
            row, start = out[f, i], dst[f, i]
            scale = own[first + i]
            for c in range(d):
                row[c] = scale * start[c]
            for e in range(ptr[first + i], ptr[first + i + 1]):
                w, other = weight[e], src[f, col[e]]
                for c in range(d):
                    row[c] += w * other[c]
            for c in range(d):
                if row[c] < 0:
                    row[c] = math.exp(row[c]) - one


@njit(**JIT)
def gather_back(low: int, high: int, snap: Any, ptr: Any, col: Any, weight: Any, own: Any, out: Any, grad: Any,
                to_dst: Any, to_src: Any, buffer: Any) -> None:  # fmt: skip
    """Fill the gradients by ``dst`` and add those by ``src``; ELU's slope is 1 or its own value plus 1."""
    N, d = out.shape[1], out.shape[2]
    one = out.dtype.type(1)
    for f in range(low, high):
        first = snap[f] * N
        for i in range(N):
            row, value, target = grad[f, i], out[f, i], to_dst[f, i]
            scale = own[first + i]
            for c in range(d):
                buffer[c] = row[c] * (one if value[c] > 0 else value[c] + one)
            for c in range(d):
                target[c] = scale * buffer[c]
            for e in range(ptr[first + i], ptr[first + i + 1]):
                w, other = weight[e], to_src[f, col[e]]
                for c in range(d):
                    other[c] += w * buffer[c]


@njit(**JIT)
def _sigmoid(x: Any, one: Any) -> Any:
    return one / (one + math.exp(-x))


@njit(**JIT)
def recur(low: int, high: int, drive: Any, index: Any, U: Any, c: Any, start: Any, share: Any, E: Any,
          mean: Any) -> None:  # fmt: skip
    """Run the GRUs of R relations over B windows of T frames, for a slice of nodes, and add up the weighted states.

    ``drive`` (R, F, N, 3k) holds the input's part of the gates (reset, update, new), ``index`` (B, T) the frames of the
    windows, ``U`` (R, 3k, k) and ``c`` (R, 3k) the state's part, ``start`` (R, k) the first state, ``share`` (F, N) a
    node's weight in the mean; ``E`` (R, B, T, N, k) takes the states, ``mean`` (B, T, R, k) their weighted sums.
    """
    R, k = start.shape
    B, T = index.shape
    one = drive.dtype.type(1)
    fresh = np.empty(k, drive.dtype)
    for r in range(R):
        for b in range(B):
            for t in range(T):
                f = index[b, t]
                for i in range(low, high):
                    g = drive[r, f, i]
                    before = start[r] if t == 0 else E[r, b, t - 1, i]
                    for a in range(k):
                        reset, update, new = c[r, a], c[r, k + a], c[r, 2 * k + a]
                        for h in range(k):
                            reset += U[r, a, h] * before[h]
                            update += U[r, k + a, h] * before[h]
                            new += U[r, 2 * k + a, h] * before[h]
                        z = _sigmoid(g[k + a] + update, one)
                        n = math.tanh(g[2 * k + a] + _sigmoid(g[a] + reset, one) * new)
                        fresh[a] = (one - z) * n + z * before[a]
                    weight = share[f, i]
                    for a in range(k):
                        E[r, b, t, i, a] = fresh[a]
                        mean[b, t, r, a] += weight * fresh[a]


@njit(**JIT)
def recur_back(low: int, high: int, drive: Any, index: Any, U: Any, c: Any, start: Any, share: Any, E: Any, grad: Any,
               to_drive: Any, to_U: Any, to_c: Any, to_start: Any) -> None:  # fmt: skip
    """Add the gradients of :func:`recur`, given those by ``mean``; the gates are computed anew from the states."""
    R, k = start.shape
    B, T = index.shape
    one = drive.dtype.type(1)
    carry, passed = np.empty((high - low, k), drive.dtype), np.empty(k, drive.dtype)
    for r in range(R):
        for b in range(B):
            carry[:] = 0
            for t in range(T - 1, -1, -1):
                f = index[b, t]
                for i in range(low, high):
                    g, out = drive[r, f, i], to_drive[r, f, i]
                    before = start[r] if t == 0 else E[r, b, t - 1, i]
                    weight = share[f, i]
                    for a in range(k):
                        passed[a] = 0
                    for a in range(k):
                        reset, update, new = c[r, a], c[r, k + a], c[r, 2 * k + a]
                        for h in range(k):
                            reset += U[r, a, h] * before[h]
                            update += U[r, k + a, h] * before[h]
                            new += U[r, 2 * k + a, h] * before[h]
                        p = _sigmoid(g[a] + reset, one)
                        z = _sigmoid(g[k + a] + update, one)
                        n = math.tanh(g[2 * k + a] + p * new)
                        e = carry[i - low, a] + weight * grad[b, t, r, a]
                        to_n = e * (one - z) * (one - n * n)
                        to_z = e * (before[a] - n) * z * (one - z)
                        to_p = to_n * new * p * (one - p)
                        passed[a] += e * z
                        out[a] += to_p
                        out[k + a] += to_z
                        out[2 * k + a] += to_n
                        to_c[r, a] += to_p
                        to_c[r, k + a] += to_z
                        to_c[r, 2 * k + a] += to_n * p
                        for h in range(k):
                            passed[h] += to_p * U[r, a, h] + to_z * U[r, k + a, h] + to_n * p * U[r, 2 * k + a, h]
                            to_U[r, a, h] += to_p * before[h]
                            to_U[r, k + a, h] += to_z * before[h]
                            to_U[r, 2 * k + a, h] += to_n * p * before[h]
                    for a in range(k):
                        if t == 0:
                            to_start[r, a] += passed[a]
                        else:
                            carry[i - low, a] = passed[a]


@njit(**JIT)
def attend(low: int, high: int, h: Any, left: Any, right: Any, snap: Any, offset: Any, ptr: Any, col: Any, slope: Any,
           share: Any, out: Any) -> None:  # fmt: skip
    """Fill ``out[f, i] = sum of softmax_j(LeakyReLU(left[f, j] + right[f, i])) * h[f, j]`` over the edges j -> i.

    ``share`` keeps the softmax of each edge of each frame, from ``offset[f]`` on; a node without an edge gets 0.
    """
    N, d = out.shape[1], out.shape[2]
    for f in range(low, high):
        first = snap[f] * N
        shift = offset[f] - ptr[first]
        for i in range(N):
            row = out[f, i]
            row[:] = 0
            begin, end = ptr[first + i], ptr[first + i + 1]
            if begin == end:
                continue
            top = -np.inf
            for e in range(begin, end):
                score = left[f, col[e]] + right[f, i]
                score = score if score > 0 else slope * score
                share[shift + e] = score
                top = max(top, score)
            total = h.dtype.type(0)
            for e in range(begin, end):
                share[shift + e] = math.exp(share[shift + e] - h.dtype.type(top))
                total += share[shift + e]
            for e in range(begin, end):
                share[shift + e] /= total
                w, other = share[shift + e], h[f, col[e]]
                for c in range(d):
                    row[c] += w * other[c]


@njit(**JIT)
def attend_back(low: int, high: int, h: Any, left: Any, right: Any, snap: Any, offset: Any, ptr: Any, col: Any,
                slope: Any, share: Any, out: Any, grad: Any, to_h: Any, to_left: Any, to_right: Any) -> None:  # fmt: skip
    """Add the gradients of :func:`attend`."""
    N, d = out.shape[1], out.shape[2]
    for f in range(low, high):
        first = snap[f] * N
        shift = offset[f] - ptr[first]
        for i in range(N):
            row, value = grad[f, i], out[f, i]
            mean = h.dtype.type(0)  # sum over the edges of share times its gradient
            for c in range(d):
                mean += row[c] * value[c]
            for e in range(ptr[first + i], ptr[first + i + 1]):
                j = col[e]
                w, other, target = share[shift + e], h[f, j], to_h[f, j]
                dot = h.dtype.type(0)
                for c in range(d):
                    dot += row[c] * other[c]
                for c in range(d):
                    target[c] += w * row[c]
                back = w * (dot - mean)
                if left[f, j] + right[f, i] <= 0:
                    back *= slope
                to_left[f, j] += back
                to_right[f, i] += back
