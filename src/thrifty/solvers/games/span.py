"""What the actions span, without listing them: rank, coordinates, basis, barycentric spanner.

The paper inverts the second moment; where every action obeys an equation (one number of soldiers a battlefield, flow
conservation) that is singular. On a subset J of coordinates of full rank it is not, and uᵀP⁺v = u_JᵀP_JJ⁻¹v_J for all
actions u and v, so that every law stays as it is.

Source: Awerbuch and Kleinberg (2008) for the spanner; pivoted Cholesky for J.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from thrifty.solvers.games.actions.base import ActionSet

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Pivots below this share of the largest count as nothing; no pivot may lie just above it.
NOTHING, SOMETHING = 1e-10, 1e-8

#: Swaps after which the running inverse is computed afresh.
REFRESH = 50


def support(sigma: Floats) -> Ints:
    """Return coordinates on which a second moment has full rank, in order.

    Raises:
        ArithmeticError: A pivot is neither clearly nothing nor clearly something.
    """
    chosen, pivots = _pivots(sigma.copy(), NOTHING)
    if pivots.size and pivots.min() < SOMETHING * pivots.max():
        raise ArithmeticError(f"rank: a pivot of {pivots.min():.1e} is neither nothing nor something")
    return np.sort(chosen)


@njit(cache=True)
def _pivots(left: Floats, tolerance: float) -> tuple[Ints, Floats]:
    """Return the pivots of a Cholesky factorisation in the order of size."""
    d = left.shape[0]
    factor = np.zeros((d, d))
    diagonal = np.diag(left).copy()
    chosen, sizes = np.empty(d, np.int64), np.empty(d)
    largest = diagonal.max()
    for k in range(d):
        p = int(np.argmax(diagonal))
        if diagonal[p] <= tolerance * largest:
            return chosen[:k], sizes[:k]
        chosen[k], sizes[k] = p, diagonal[p]
        root = np.sqrt(diagonal[p])
        for i in range(d):
            total = left[i, p]
            for j in range(k):
                total -= factor[i, j] * factor[p, j]
            factor[i, k] = total / root
        for i in range(d):
            diagonal[i] -= factor[i, k] ** 2
        for j in range(k + 1):
            diagonal[chosen[j]] = 0.0
    return chosen, sizes


def basis(sigma: Floats, rank: int) -> Floats:
    """Return the eigenvectors of a second moment that are not of eigenvalue 0."""
    return np.ascontiguousarray(np.linalg.eigh(sigma)[1][:, ::-1][:, :rank])


def spanner(actions: ActionSet, C: float) -> NDArray[np.uint8]:
    """Return a C-approximate barycentric spanner, found by linear optimisation on the coordinates of full rank."""
    J, r = actions.support, actions.support.size
    held = np.eye(r)
    inverse: Floats = np.eye(r)
    rows = np.zeros((r, actions.d), np.uint8)
    swaps = 0

    def farthest(direction: Floats) -> tuple[NDArray[np.uint8], float]:
        loss = np.zeros(actions.d)
        loss[J] = direction
        low, least = actions.argmin(loss)
        high, most = actions.argmin(-loss)
        return (low, abs(least)) if abs(least) > abs(most) else (high, abs(most))

    def swap(i: int, action: NDArray[np.uint8]) -> None:
        nonlocal inverse, swaps
        rows[i] = action
        held[:, i] = action[J]
        swaps += 1
        if swaps % REFRESH == 0:
            inverse = np.linalg.solve(held, np.eye(r)).astype(np.float64)
            return
        mixed = inverse @ action[J].astype(float)
        row = inverse[i] / mixed[i]
        inverse = inverse - np.outer(mixed, row)
        inverse[i] = row

    for i in range(r):
        swap(i, farthest(inverse[i])[0])
    inverse = np.linalg.solve(held, np.eye(r)).astype(np.float64)
    i = 0
    while i < r:
        action, coefficient = farthest(inverse[i])
        if coefficient > C * (1 + 1e-9):
            swap(i, action)
            i = 0
        else:
            i += 1
    return rows
