"""Element-wise functions for numba kernels, in a form that the compiler turns into vector instructions.

``math.exp`` is a call into a library, and a loop that calls does not vectorise. In float32 the exponential is therefore
Cody and Waite's reduction by ln 2 and the polynomial of the Cephes library (one unit in the last place); in float64,
where only tests and gradient checks run, it is the library's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

F = np.float32


@njit(inline="always")
def _exp32(x: Any) -> Any:
    x = min(max(x, F(-87.0)), F(88.0))
    n = np.floor(x * F(1.4426950408889634) + F(0.5))
    r = (x - n * F(0.693359375)) + n * F(2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    p = p * r * r + r + F(1.0)
    power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
    return p * power.view(np.float32)


def exp(x: Any) -> Any:
    """Return e to the x, in the precision of x."""
    return np.exp(x)


@overload(exp)
def _exp(x: Any) -> Any:
    def single(x: Any) -> Any:
        return _exp32(x)

    def double(x: Any) -> Any:
        return math.exp(min(max(x, -700.0), 700.0))

    return single if x == types.float32 else double


@njit(inline="always")
def sigmoid(x: Any, one: Any) -> Any:
    """Return the logistic function; ``one`` is 1 in the precision of x."""
    return one / (one + exp(-x))


@njit(inline="always")
def tanh(x: Any, one: Any) -> Any:
    """Return the hyperbolic tangent."""
    return one - (one + one) / (one + exp(x + x))
