"""The LRC cell compiled for the CPU: its recurrence in order, its linearisation at a guess, and its adjoint.

Each is one pass over memory. The channels of a step do not meet (that is the cell's whole point), so that every inner
loop is over channels and vectorises; the body is cut into short loops over scratch rows because a compiler does not
vectorise a loop in which a dozen arrays might overlap. Equations: arXiv 2505.21717, section 3; the closed-form Jacobian
and adjoint are worked out in ``lrc.py``.

Arrays: ``drive`` (n, T, 2D or 3D) holds F, Z and, where the elastance reads the input, its part ε_u; ``P`` (8, D) the
rows a, μ, w, k, e, α, β, κ; ``keep`` and ``take`` (n, T) blend a step, x⁺ = keep·x + take·φ(x). ``kind`` is 0 for the
asymmetric elastance, 1 for the symmetric one, 2 for a constant one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from thrifty._common.vectorised import sigmoid, tanh

ASYMMETRIC, SYMMETRIC, CONSTANT = 0, 1, 2

#: Fused multiply-add and reciprocal instructions; infinities and NaN keep their meaning.
FAST = {"contract", "nsz", "arcp"}


JIT: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": FAST}


@njit(**JIT)
def _elastance(x: Any, row: Any, P: Any, kind: int, E: Any, slope: Any, spread: Any) -> None:
    """Fill E(x)/dt, its derivative by ε, and that by κ."""
    D, one = x.size, P.dtype.type(1)
    alpha, beta, kappa = P[5], P[6], P[7]
    if kind == CONSTANT:
        E[:], slope[:], spread[:] = one, one - one, one - one
        return
    for d in range(D):
        E[d] = alpha[d] * x[d] + beta[d]
    if row.size > 2 * D:
        extra = row[2 * D :]
        for d in range(D):
            E[d] = E[d] + extra[d]
    if kind == ASYMMETRIC:
        for d in range(D):
            E[d] = sigmoid(E[d], one)
        for d in range(D):
            slope[d] = E[d] * (one - E[d])
        return
    for d in range(D):
        slope[d] = sigmoid(E[d] - kappa[d], one)
    for d in range(D):
        E[d] = sigmoid(E[d] + kappa[d], one)
    for d in range(D):
        high, low = E[d], slope[d]
        E[d] = high - low
        slope[d] = high * (one - high) - low * (one - low)
        spread[d] = high * (one - high) + low * (one - low)


@njit(**JIT)
def _branches(x: Any, row: Any, P: Any, p: Any, S: Any, h: Any, v: Any) -> None:
    """Fill p = σ(a(x − μ)), S = σ(F + wp), h = tanh(Z + kp) and v = eh − Sx."""
    D, one = x.size, P.dtype.type(1)
    F, Z = row[:D], row[D:]
    a, mu, w, k, e = P[0], P[1], P[2], P[3], P[4]
    for d in range(D):
        p[d] = sigmoid(a[d] * (x[d] - mu[d]), one)
    for d in range(D):
        S[d] = sigmoid(F[d] + w[d] * p[d], one)
    for d in range(D):
        h[d] = tanh(Z[d] + k[d] * p[d], one)
    for d in range(D):
        v[d] = e[d] * h[d] - S[d] * x[d]


@njit(**JIT)
def _pull(x: Any, P: Any, p: Any, S: Any, h: Any, E: Any, f: Any, z: Any, q: Any) -> None:
    """Fill the derivatives of E·v by F, by Z and by a(x − μ)."""
    D, one = x.size, P.dtype.type(1)
    w, k, e = P[2], P[3], P[4]
    for d in range(D):
        f[d] = -E[d] * x[d] * S[d] * (one - S[d])
    for d in range(D):
        z[d] = E[d] * e[d] * (one - h[d] * h[d])
    for d in range(D):
        q[d] = (f[d] * w[d] + z[d] * k[d]) * p[d] * (one - p[d])


@njit(**JIT)
def _slope(P: Any, v: Any, S: Any, E: Any, slope: Any, q: Any, stay: Any, go: Any, J: Any) -> None:
    """Fill the Jacobian of the blended step: keep + take·(1 + E'v + E(…))."""
    a, alpha = P[0], P[5]
    for d in range(v.size):
        J[d] = stay + go * (slope[d] * alpha[d] * v[d] + q[d] * a[d] - E[d] * S[d])


@njit(**JIT)
def run(drive: Any, x0: Any, keep: Any, take: Any, out: Any, P: Any, kind: int) -> None:
    """Fill ``out`` (n, T, D) with the states, step after step."""
    n, T, D = out.shape
    dtype = P.dtype  # a row each: the compiler must see that they do not overlap
    p, S, h, v, E = np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype)
    slope, spread, x = np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype)
    for i in range(n):
        x[:] = x0[i]
        for t in range(T):
            row, to = drive[i, t], out[i, t]
            _branches(x, row, P, p, S, h, v)
            _elastance(x, row, P, kind, E, slope, spread)
            stay, go = keep[i, t] + take[i, t], take[i, t]
            for d in range(D):
                x[d] = stay * x[d] + go * E[d] * v[d]
            for d in range(D):
                to[d] = x[d]


@njit(**JIT)
def linearise(drive: Any, xp: Any, keep: Any, take: Any, J: Any, phi: Any, P: Any, kind: int) -> None:
    """Fill ``phi`` (n, T, D) with the step at every guess ``xp``, and ``J`` with its derivative."""
    n, T, D = xp.shape
    dtype = P.dtype  # a row each: the compiler must see that they do not overlap
    p, S, h, v, E = np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype)
    slope, spread, x, f, z = (
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
    )
    q, Jt = np.empty(D, dtype), np.empty(D, dtype)
    for i in range(n):
        for t in range(T):
            row, to = drive[i, t], phi[i, t]
            x[:] = xp[i, t]
            _branches(x, row, P, p, S, h, v)
            _elastance(x, row, P, kind, E, slope, spread)
            _pull(x, P, p, S, h, E, f, z, q)
            stay, go = keep[i, t] + take[i, t], take[i, t]
            _slope(P, v, S, E, slope, q, stay, go, Jt)
            J[i, t] = Jt
            for d in range(D):
                v[d] = stay * x[d] + go * E[d] * v[d]
            for d in range(D):
                to[d] = v[d]


@njit(**JIT)
def adjoint(
    drive: Any, x: Any, x0: Any, keep: Any, take: Any, g: Any, to_drive: Any, to_P: Any, to_x0: Any, P: Any, kind: int
) -> None:
    """Run the reverse recurrence λ_t = g_t + J_{t+1} λ_{t+1}, and pull each λ back to drive, parameters and x₀.

    ``to_P`` (n, 8, D) holds a sum over time for each sequence. Everything is evaluated at the states ``x``.
    """
    n, T, D = x.shape
    a, mu = P[0], P[1]
    dtype = P.dtype  # a row each: the compiler must see that they do not overlap
    p, S, h, v, E = np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype)
    slope, spread, xp, f, z = (
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
        np.empty(D, dtype),
    )
    q, J, lam, c = np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype), np.empty(D, dtype)
    for i in range(n):
        lam[:] = 0
        sums = to_P[i]
        sums[:] = 0
        for t in range(T - 1, -1, -1):
            row, gt, to = drive[i, t], g[i, t], to_drive[i, t]
            xp[:] = x[i, t - 1] if t else x0[i]
            _branches(xp, row, P, p, S, h, v)
            _elastance(xp, row, P, kind, E, slope, spread)
            _pull(xp, P, p, S, h, E, f, z, q)
            stay, go = keep[i, t] + take[i, t], take[i, t]
            _slope(P, v, S, E, slope, q, stay, go, J)
            for d in range(D):
                lam[d] = lam[d] + gt[d]
            for d in range(D):
                c[d] = go * lam[d]  # the cotangent of E v
            for d in range(D):
                lam[d] = lam[d] * J[d]
            for d in range(D):
                sums[0, d] += c[d] * q[d] * (xp[d] - mu[d])
            for d in range(D):
                sums[1, d] -= c[d] * q[d] * a[d]
            for d in range(D):
                f[d] = f[d] * c[d]
                sums[2, d] += f[d] * p[d]
            for d in range(D):
                z[d] = z[d] * c[d]
                sums[3, d] += z[d] * p[d]
            for d in range(D):
                sums[4, d] += c[d] * E[d] * h[d]
            if kind == SYMMETRIC:
                for d in range(D):
                    sums[7, d] += c[d] * v[d] * spread[d]
            for d in range(D):
                v[d] = v[d] * slope[d] * c[d]  # the cotangent of ε
            for d in range(D):
                sums[5, d] += v[d] * xp[d]
            for d in range(D):
                sums[6, d] += v[d]
            to[:D], to[D : 2 * D] = f, z
            if to.size > 2 * D:
                to[2 * D :] = v
        to_x0[i] = lam
