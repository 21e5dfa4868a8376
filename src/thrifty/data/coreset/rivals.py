"""The rival that no kept package gives: matching pursuit on written-out gradients, solved from scratch at each pick."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray


def resolved_pursuit(
    atoms: Float[NDArray, "n d"], target: Float[NDArray, " d"], k: int, lam: float = 0.5, eps: float = 1e-4
) -> tuple[list[int], Float[NDArray, " k"], float]:
    """Choose as :func:`~thrifty.data.coreset.matching_pursuit` does, with everything made anew at each step.

    It is CORDS' way on the CPU, with its faults mended (λ is heeded, no atom comes twice).

    Returns:
        Positions, weights, and the length of the residual.

    Source:
        arXiv 2103.00123, section 3.
    """
    active: list[int] = []
    taken: dict[int, int] = {}
    weights, rest = np.empty(0), target
    for _ in range(2 * k):
        if len(active) == k or np.linalg.norm(rest) <= eps * np.linalg.norm(target):
            break
        products = atoms @ rest
        products[[at for at, times in taken.items() if at in active or times > 1]] = -np.inf
        best = int(products.argmax())
        if products[best] <= 0:
            break
        active.append(best)
        taken[best] = taken.get(best, 0) + 1
        while True:
            chosen = atoms[active]
            weights = np.linalg.solve(chosen @ chosen.T + lam * np.eye(len(active)), chosen @ target)
            if len(weights) == 0 or weights.min() >= 0:
                break
            active.pop(int(weights.argmin()))
        rest = target - weights @ atoms[active] if active else target
    return active, weights, float(np.linalg.norm(rest))
