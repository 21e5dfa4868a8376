"""The kernels behind ``gpu.py``. Importing this needs Triton. Equations as in ``cells/compiled.py``."""

# mypy: ignore-errors
# (the kernel language has no types)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def compose(a1, b1, a2, b2):
    """Compose x → a₁x + b₁ with x → a₂x + b₂."""
    return a2 * a1, a2 * b1 + b2


@triton.jit
def affine_kernel(A, B, X0, X, T, D, reverse, BT: tl.constexpr, BD: tl.constexpr):
    """Solve x_t = a_t x_{t−1} + b_t tile by tile."""
    i, d = tl.program_id(0), tl.program_id(1) * BD + tl.arange(0, BD)
    within, rows = d < D, tl.arange(0, BT)
    held = tl.load(X0 + i * D + d, mask=within, other=0.0)
    for start in range(0, T, BT):
        s = start + rows
        t = tl.where(reverse != 0, T - 1 - s, s)
        at = i * T * D + t[:, None] * D + d[None, :]
        ok = (s < T)[:, None] & within[None, :]
        a, b = tl.load(A + at, mask=ok, other=1.0), tl.load(B + at, mask=ok, other=0.0)
        a, b = tl.associative_scan((a, b), 0, compose)
        x = a * held[None, :] + b
        tl.store(X + at, x, mask=ok)
        held = tl.sum(tl.where((rows == BT - 1)[:, None], x, 0.0), 0)


@triton.jit
def terms(x, F, Z, extra, a, mu, w, k, e, alpha, beta, kappa, KIND: tl.constexpr):
    """Return v, E, p, S, h, dE/dε and dE/dκ."""
    p = tl.sigmoid(a * (x - mu))
    S = tl.sigmoid(F + w * p)
    h = 2 * tl.sigmoid(2 * (Z + k * p)) - 1
    v = e * h - S * x
    epsilon = alpha * x + beta + extra
    if KIND == 0:
        E = tl.sigmoid(epsilon)
        slope = E * (1 - E)
        spread = E * 0
    elif KIND == 1:
        high, low = tl.sigmoid(epsilon + kappa), tl.sigmoid(epsilon - kappa)
        E = high - low
        slope = high * (1 - high) - low * (1 - low)
        spread = high * (1 - high) + low * (1 - low)
    else:
        E = epsilon * 0 + 1
        slope = epsilon * 0
        spread = epsilon * 0
    return v, E, p, S, h, slope, spread


@triton.jit
def jacobian(x, v, E, p, S, h, slope, a, w, k, e, alpha):
    """Return dφ/dx − 1 of the bare step."""
    dp = p * (1 - p) * a
    return alpha * slope * v + E * (dp * (e * (1 - h * h) * k - x * S * (1 - S) * w) - S)


@triton.jit
def run_kernel(
    DRIVE, P, KEEP, TAKE, X0, X, COUNTS, FAILED, T, D, wide, tol, max_iter,
    KIND: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Solve the LRC recurrence: Newton within a tile, tiles in order."""
    i, block = tl.program_id(0), tl.program_id(1)
    d, rows = block * BD + tl.arange(0, BD), tl.arange(0, BT)
    within = d < D
    a, mu = tl.load(P + d, mask=within, other=0.0), tl.load(P + D + d, mask=within, other=0.0)
    w, k = tl.load(P + 2 * D + d, mask=within, other=0.0), tl.load(P + 3 * D + d, mask=within, other=0.0)
    e, alpha = tl.load(P + 4 * D + d, mask=within, other=0.0), tl.load(P + 5 * D + d, mask=within, other=0.0)
    beta, kappa = tl.load(P + 6 * D + d, mask=within, other=0.0), tl.load(P + 7 * D + d, mask=within, other=0.0)
    held = tl.load(X0 + i * D + d, mask=within, other=0.0)
    most, bad = 0, 0
    for start in range(0, T, BT):
        t = start + rows
        ok = (t < T)[:, None] & within[None, :]
        source = DRIVE + i * T * wide + t[:, None] * wide + d[None, :]
        F, Z = tl.load(source, mask=ok, other=0.0), tl.load(source + D, mask=ok, other=0.0)
        extra = tl.load(source + 2 * D, mask=ok & (wide > 2 * D), other=0.0)
        keep = tl.load(KEEP + i * T + t, mask=t < T, other=1.0)[:, None]
        take = tl.load(TAKE + i * T + t, mask=t < T, other=0.0)[:, None]
        place = i * T * D + t[:, None] * D + d[None, :]
        x = tl.zeros((BT, BD), F.dtype) + held[None, :]
        error, count = 2 * tol + 1, 0
        size = tl.max(tl.abs(x), 0)
        while (error > tol) & (count < max_iter):
            tl.store(X + place, x, mask=ok)
            tl.debug_barrier()
            # The state before each step: the row above, which another lane may have written.
            xp = tl.load(X + place - D, mask=ok & (rows > 0)[:, None], other=0.0)
            xp = tl.where((rows == 0)[:, None], held[None, :], xp)
            v, E, p, S, h, slope, _ = terms(
                xp, F, Z, extra, a[None, :], mu[None, :], w[None, :], k[None, :], e[None, :], alpha[None, :],
                beta[None, :], kappa[None, :], KIND,
            )  # fmt: skip
            J = jacobian(xp, v, E, p, S, h, slope, a[None, :], w[None, :], k[None, :], e[None, :], alpha[None, :])
            J = keep + take + take * J
            c = (keep + take) * xp + take * E * v - J * xp
            A, C = tl.associative_scan((J, c), 0, compose)
            new = A * held[None, :] + C
            new = tl.where(new == new, tl.minimum(tl.maximum(new, -1e8), 1e8), 0.0)  # noqa: PLR0124 (NaN)
            new = tl.where(ok, new, 0.0)
            x = tl.where(ok, x, 0.0)
            size = tl.maximum(tl.max(tl.abs(new), 0), 1.0)
            error = tl.max(tl.max(tl.abs(new - x), 0) / size, 0)
            x = new
            count += 1
            tl.debug_barrier()
        tl.store(X + place, x, mask=ok)
        tl.debug_barrier()
        last = tl.minimum(T - start, BT) - 1
        held = tl.sum(tl.where((rows == last)[:, None], x, 0.0), 0)
        most = tl.maximum(most, count)
        wrong = (error > tol) | (tl.max(size, 0) >= 1e8)  # at the guard, these are not the recurrence's states
        bad = tl.maximum(bad, wrong.to(tl.int32))
    blocks = tl.num_programs(1)
    tl.store(COUNTS + i * blocks + block, most)
    tl.store(FAILED + i * blocks + block, bad)


@triton.jit
def pull_kernel(
    DRIVE, P, KEEP, TAKE, X0, X, G, MU, TO_DRIVE, TO_P, TO_X0, T, D, wide,
    KIND: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Run the adjoint from the end: ν_t = J_t(g_t + ν_{t+1}) by a scan, λ_t = g_t + ν_{t+1} by a shifted load."""
    i, block = tl.program_id(0), tl.program_id(1)
    d, rows = block * BD + tl.arange(0, BD), tl.arange(0, BT)
    within = d < D
    a, mu = tl.load(P + d, mask=within, other=0.0), tl.load(P + D + d, mask=within, other=0.0)
    w, k = tl.load(P + 2 * D + d, mask=within, other=0.0), tl.load(P + 3 * D + d, mask=within, other=0.0)
    e, alpha = tl.load(P + 4 * D + d, mask=within, other=0.0), tl.load(P + 5 * D + d, mask=within, other=0.0)
    beta, kappa = tl.load(P + 6 * D + d, mask=within, other=0.0), tl.load(P + 7 * D + d, mask=within, other=0.0)
    first = tl.load(X0 + i * D + d, mask=within, other=0.0)
    held = first * 0
    s_a, s_mu, s_w, s_k = first * 0, first * 0, first * 0, first * 0
    s_e, s_alpha, s_beta, s_kappa = first * 0, first * 0, first * 0, first * 0
    for start in range(0, T, BT):
        s = start + rows
        t = T - 1 - s
        ok = (s < T)[:, None] & within[None, :]
        source = DRIVE + i * T * wide + t[:, None] * wide + d[None, :]
        F, Z = tl.load(source, mask=ok, other=0.0), tl.load(source + D, mask=ok, other=0.0)
        extra = tl.load(source + 2 * D, mask=ok & (wide > 2 * D), other=0.0)
        keep = tl.load(KEEP + i * T + t, mask=s < T, other=1.0)[:, None]
        take = tl.load(TAKE + i * T + t, mask=s < T, other=0.0)[:, None]
        place = i * T * D + t[:, None] * D + d[None, :]
        xp = tl.load(X + place - D, mask=ok & (t > 0)[:, None], other=0.0)
        xp = tl.where((t == 0)[:, None], first[None, :], xp)
        g = tl.load(G + place, mask=ok, other=0.0)
        v, E, p, S, h, slope, spread = terms(
            xp, F, Z, extra, a[None, :], mu[None, :], w[None, :], k[None, :], e[None, :], alpha[None, :],
            beta[None, :], kappa[None, :], KIND,
        )  # fmt: skip
        J = jacobian(xp, v, E, p, S, h, slope, a[None, :], w[None, :], k[None, :], e[None, :], alpha[None, :])
        J = tl.where(ok, keep + take + take * J, 1.0)
        A, C = tl.associative_scan((J, J * g), 0, compose)
        nu = A * held[None, :] + C
        tl.store(MU + place, nu, mask=ok)
        tl.debug_barrier()
        after = tl.load(MU + place + D, mask=ok & (rows > 0)[:, None], other=0.0)
        after = tl.where((rows == 0)[:, None], held[None, :], after)
        c = tl.where(ok, take * (g + after), 0.0)  # the cotangent of E v
        held = tl.sum(tl.where((rows == BT - 1)[:, None], nu, 0.0), 0)
        f = -c * E * xp * S * (1 - S)
        z = c * E * e[None, :] * (1 - h * h)
        q = (f * w[None, :] + z * k[None, :]) * p * (1 - p)
        epsilon = c * v * slope
        target = TO_DRIVE + i * T * wide + t[:, None] * wide + d[None, :]
        tl.store(target, f, mask=ok)
        tl.store(target + D, z, mask=ok)
        tl.store(target + 2 * D, epsilon, mask=ok & (wide > 2 * D))
        s_a += tl.sum(q * (xp - mu[None, :]), 0)
        s_mu -= tl.sum(q * a[None, :], 0)
        s_w += tl.sum(f * p, 0)
        s_k += tl.sum(z * p, 0)
        s_e += tl.sum(c * E * h, 0)
        s_alpha += tl.sum(epsilon * xp, 0)
        s_beta += tl.sum(epsilon, 0)
        s_kappa += tl.sum(c * v * spread, 0)
    to = TO_P + i * 8 * D + d
    tl.store(to, s_a, mask=within)
    tl.store(to + D, s_mu, mask=within)
    tl.store(to + 2 * D, s_w, mask=within)
    tl.store(to + 3 * D, s_k, mask=within)
    tl.store(to + 4 * D, s_e, mask=within)
    tl.store(to + 5 * D, s_alpha, mask=within)
    tl.store(to + 6 * D, s_beta, mask=within)
    tl.store(to + 7 * D, s_kappa, mask=within)
    tl.store(TO_X0 + i * D + d, held, mask=within)
