"""Compiled passes for the CPU: mean aggregation, the width-k GRU of the attention, and attention over neighbours.

Each works on frames, that is on copies of a snapshot's nodes: ``(frame, node, channel)``. A frame finds its edges in
the compressed rows of its snapshot, so that no block-diagonal matrix is ever built, and one call serves every frame of
a relation. All release the interpreter's lock; ``operations.py`` gives each thread a slice. Equations: arXiv
2510.18467, section 4; the adjoints are worked out here.

Arrays: ``ptr`` (snapshots x nodes + 1) and ``col`` are the compressed rows of a relation over all snapshots, by
destination; ``snap`` (frames) is the snapshot of a frame.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from thrifty._common.vectorised import exp, sigmoid, tanh

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
    """Fill ``out[f, i] = ELU(own * dst[f, i] + sum of weight * src[f, j] over edges j -> i)`` for a slice of frames."""
    N, d = dst.shape[1], dst.shape[2]
    one, nothing = dst.dtype.type(1), dst.dtype.type(0)
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
                row[c] = max(row[c], nothing) + exp(min(row[c], nothing)) - one


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
def recur(
    low: int, high: int, drive: Any, index: Any, U: Any, c: Any, start: Any, share: Any, E: Any, S: Any, mean: Any
) -> None:
    """Run the GRUs of R relations over B windows of T frames, for a slice of nodes, and add up the weighted states.

    ``drive`` (R, F, 3k, N) holds the input's part of the gates (reset, update, new), ``index`` (B, T) the frames of the
    windows, ``U`` (R, 3k, k) and ``c`` (R, 3k) the state's part, ``start`` (R, k) the first state, ``share`` (F, N) a
    node's weight in the mean; ``E`` (R, B, T, k, N) takes the states, ``S`` (R, B, T, 3k, N) the gates, and ``mean``
    (B, T, R, k) the states' weighted sums. Nodes come last, and loops are short, so that each becomes vector code.
    """
    R, k = start.shape
    B, T = index.shape
    N = high - low
    one = drive.dtype.type(1)
    before = np.empty((k, N), drive.dtype)
    for r in range(R):
        for b in range(B):
            for a in range(k):
                before[a, :] = start[r, a]
            for t in range(T):
                f = index[b, t]
                weight = share[f, low:high]
                for a in range(k):
                    p, z, n = S[r, b, t, a, low:high], S[r, b, t, k + a, low:high], S[r, b, t, 2 * k + a, low:high]
                    e, held = E[r, b, t, a, low:high], before[a]
                    _held(k, a, U[r], c[r], before, p, z, n)
                    gp, gz, gn = (
                        drive[r, f, a, low:high],
                        drive[r, f, k + a, low:high],
                        drive[r, f, 2 * k + a, low:high],
                    )
                    for i in range(N):
                        p[i] = sigmoid(gp[i] + p[i], one)
                    for i in range(N):
                        z[i] = sigmoid(gz[i] + z[i], one)
                    for i in range(N):
                        n[i] = tanh(gn[i] + p[i] * n[i], one)
                    total = drive.dtype.type(0)
                    for i in range(N):
                        e[i] = (one - z[i]) * n[i] + z[i] * held[i]
                    for i in range(N):
                        total += weight[i] * e[i]
                    mean[b, t, r, a] += total
                for a in range(k):
                    before[a, :] = E[r, b, t, a, low:high]


@njit(**JIT)
def _held(k: int, a: int, U: Any, c: Any, before: Any, p: Any, z: Any, n: Any) -> None:
    """Fill the state's part of the three gates of head ``a``."""
    N = p.size
    cp, cz, cn = c[a], c[k + a], c[2 * k + a]
    for i in range(N):
        p[i] = cp
    for i in range(N):
        z[i] = cz
    for i in range(N):
        n[i] = cn
    for h in range(k):
        up, uz, un, state = U[a, h], U[k + a, h], U[2 * k + a, h], before[h]
        for i in range(N):
            p[i] += up * state[i]
        for i in range(N):
            z[i] += uz * state[i]
        for i in range(N):
            n[i] += un * state[i]


@njit(**JIT)
def recur_back(low: int, high: int, drive: Any, index: Any, U: Any, c: Any, start: Any, share: Any, E: Any, S: Any,
               grad: Any, to_drive: Any, to_U: Any, to_c: Any, to_start: Any) -> None:  # fmt: skip
    """Add the gradients of :func:`recur`, given those by ``mean``."""
    R, k = start.shape
    B, T = index.shape
    N = high - low
    kind = drive.dtype
    one, nothing = kind.type(1), kind.type(0)
    carry, passed, before = np.empty((k, N), kind), np.empty((k, N), kind), np.empty((k, N), kind)
    new, e, dp, dz, dn, dh = (np.empty(N, kind), np.empty(N, kind), np.empty(N, kind), np.empty(N, kind),
                              np.empty(N, kind), np.empty(N, kind))  # fmt: skip
    for r in range(R):
        for b in range(B):
            carry[:, :] = nothing
            for t in range(T - 1, -1, -1):
                f = index[b, t]
                weight = share[f, low:high]
                for a in range(k):
                    if t == 0:
                        before[a, :] = start[r, a]
                    else:
                        before[a, :] = E[r, b, t - 1, a, low:high]
                passed[:, :] = nothing
                for a in range(k):
                    p, z, n = S[r, b, t, a, low:high], S[r, b, t, k + a, low:high], S[r, b, t, 2 * k + a, low:high]
                    held, back, coming = before[a], passed[a], carry[a]
                    g = grad[b, t, r, a]
                    cn = c[r, 2 * k + a]
                    for i in range(N):
                        new[i] = cn
                    for h in range(k):
                        un, state = U[r, 2 * k + a, h], before[h]
                        for i in range(N):
                            new[i] += un * state[i]
                    for i in range(N):
                        e[i] = coming[i] + weight[i] * g
                    for i in range(N):
                        dn[i] = e[i] * (one - z[i]) * (one - n[i] * n[i])
                    for i in range(N):
                        dz[i] = e[i] * (held[i] - n[i]) * z[i] * (one - z[i])
                    for i in range(N):
                        dp[i] = dn[i] * new[i] * p[i] * (one - p[i])
                    for i in range(N):
                        dh[i] = dn[i] * p[i]
                    for i in range(N):
                        back[i] += e[i] * z[i]
                    _add(to_drive[r, f, a, low:high], dp)
                    _add(to_drive[r, f, k + a, low:high], dz)
                    _add(to_drive[r, f, 2 * k + a, low:high], dn)
                    to_c[r, a] += _total(dp)
                    to_c[r, k + a] += _total(dz)
                    to_c[r, 2 * k + a] += _total(dh)
                    for h in range(k):
                        up, uz, un = U[r, a, h], U[r, k + a, h], U[r, 2 * k + a, h]
                        state, through = before[h], passed[h]
                        for i in range(N):
                            through[i] += up * dp[i] + uz * dz[i] + un * dh[i]
                        to_U[r, a, h] += _dot(dp, state)
                        to_U[r, k + a, h] += _dot(dz, state)
                        to_U[r, 2 * k + a, h] += _dot(dh, state)
                for a in range(k):
                    if t == 0:
                        to_start[r, a] += _total(passed[a])
                    carry[a, :] = passed[a]


@njit(**JIT)
def _add(to: Any, x: Any) -> None:
    for i in range(x.size):
        to[i] += x[i]


@njit(**JIT)
def _total(x: Any) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i]
    return total


@njit(**JIT)
def _dot(x: Any, y: Any) -> Any:
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


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
                slope: Any, share: Any, out: Any, grad: Any, to_h: Any, to_left: Any,
                to_right: Any) -> None:  # fmt: skip
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
