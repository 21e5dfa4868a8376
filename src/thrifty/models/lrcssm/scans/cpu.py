"""Affine recurrences on the CPU: one pass over memory, vector instructions across the channels.

Time runs in order here. On a CPU a recurrence with a diagonal Jacobian is already parallel, across channels and
sequences: the pass moves each number once, which no scan over time can undercut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def affine(a: Any, b: Any, x0: Any, x: Any, reverse: bool) -> None:
    """Fill ``x[i, t] = a[i, t] * x[i, t-1] + b[i, t]`` (t+1 if ``reverse``); ``a`` may have length 1 in i or t."""
    n, T, D = b.shape
    held = np.empty(D, b.dtype)
    for i in range(n):
        held[:] = x0[i]
        ai = a[i if a.shape[0] > 1 else 0]
        for s in range(T):
            t = T - 1 - s if reverse else s
            at = ai[t if a.shape[1] > 1 else 0]
            bt, xt = b[i, t], x[i, t]
            for d in range(D):
                held[d] = at[d] * held[d] + bt[d]
            for d in range(D):
                xt[d] = held[d]


@njit(cache=True, nogil=True, error_model="numpy")
def matrix_affine(a: Any, b: Any, x0: Any, x: Any, reverse: bool) -> None:
    """Fill ``x[i, t] = a[i, t] @ x[i, t-1] + b[i, t]``, matrices in place of factors."""
    n, T, D = b.shape
    held, new = np.empty(D, b.dtype), np.empty(D, b.dtype)
    for i in range(n):
        held[:] = x0[i]
        for s in range(T):
            t = T - 1 - s if reverse else s
            for d in range(D):
                total = b[i, t, d]
                for j in range(D):
                    total += a[i, t, d, j] * held[j]
                new[d] = total
            for d in range(D):
                held[d] = new[d]
                x[i, t, d] = new[d]
