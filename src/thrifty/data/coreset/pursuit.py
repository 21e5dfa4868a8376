"""Batch orthogonal matching pursuit: few atoms whose weighted sum comes near a target, without forming the residual.

Kept are the atoms' products with the target, and one column of products with all atoms for each that is taken, so
that a step costs two thin products and a triangular solve (Rubinstein, Zibulevsky and Elad, 2008).
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.data.coreset.gradients import GradientSource

_log = logging.getLogger(__name__)
#: Numbers of the kept columns beyond which they are made anew at each step.
KEPT = 200_000_000
#: Share of the mean squared length that is added to the diagonal where atoms are collinear.
RIDGE = 1e-8


@dataclass(frozen=True)
class Pursuit:
    """What was found.

    Args:
        indices: ``(k',)``, at most k positions, in the order in which they were taken.
        weights: ``(k',)``, float64.
        residual: ‖Σ γᵢ gᵢ − b‖.
        collinear: Atoms for which a ridge was needed.
    """

    indices: Int[Tensor, " k"]
    weights: Float[Tensor, " k"]
    residual: float
    collinear: int = 0


def matching_pursuit(
    atoms: GradientSource,
    target: Float[Tensor, " d"],
    k: int,
    lam: float = 0.5,
    eps: float = 1e-4,
    nonneg: bool = True,
) -> Pursuit:
    """Choose at most k atoms greedily, with weights that minimise ‖Σ γᵢ gᵢ − b‖² + λ‖γ‖² over those chosen.

    The next atom is the one with the largest product with the residual (ties: the lowest position); there must be a
    positive one. An atom whose weight turns negative is dropped, and may come back once.

    Args:
        atoms: n gradients.
        target: b, for example their sum.
        k: Atoms at most.
        lam: λ, at least 0.
        eps: Stop at ‖r‖ ≤ ε‖b‖.
        nonneg: Weights of at least 0.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset.gradients import DenseGradients
        >>> rows = DenseGradients(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        >>> found = matching_pursuit(rows, torch.tensor([3.0, 2.0]), k=2, lam=0.5)
        >>> found.indices.tolist(), [round(w, 4) for w in found.weights.tolist()], round(found.residual, 4)
        ([0, 2], [0.6897, 1.4483], 0.578)

    Source:
        arXiv 2103.00123, section 3; without its code's faults (λ ignored, repeated columns).
    """
    whole("k", k)
    number("lam", lam, "a number of at least 0", least=0.0)
    number("eps", eps, "a number of at least 0", least=0.0)
    atoms, target = atoms.double(), target.double()
    n = len(atoms)
    k = min(k, n)
    with_target = atoms.correlate(target)
    size = float(target @ target)
    active = _Active(lam, float(atoms.square_norms().mean()), k)
    columns = torch.empty(k, n, dtype=torch.float64, device=target.device) if n * k <= KEPT else None
    taken = torch.zeros(n, dtype=torch.int64, device=target.device)  # how often; 2 and those active: no more
    barred = torch.zeros(n, dtype=torch.bool, device=target.device)
    towards, rest = with_target, math.sqrt(size)
    for _ in range(2 * k):
        if len(active) == k or rest <= eps * math.sqrt(size):
            break
        best = int(torch.argmax(towards.masked_fill(barred, -math.inf)))
        if not float(towards[best]) > 0:
            break
        column = atoms.gram(torch.tensor([best], device=target.device))[:, 0]
        if columns is not None:
            columns[len(active)] = column
        products = column[torch.tensor([*active.atoms, best], device=target.device)].cpu().numpy()
        active.add(best, products, float(with_target[best]))
        taken[best] += 1
        barred[best] = True
        while nonneg and len(active) and active.weights.min() < 0:
            at = int(active.weights.argmin())
            if columns is not None:
                columns[at : len(active) - 1] = columns[at + 1 : len(active)].clone()
            dropped = active.drop(at)
            barred[dropped] = taken[dropped] > 1
        weights = torch.from_numpy(active.weights).to(target.device)
        if columns is not None:
            towards = with_target - weights @ columns[: len(active)]
            rest = active.residual(size)
        if columns is None or rest < 1e-5 * math.sqrt(size):  # what is left would drown in rounding
            left = target - atoms.combine(_spread(active.atoms, weights, n))
            rest = float(left.norm())
            towards = atoms.correlate(left) if columns is None else towards
    if active.collinear:
        _log.warning("%d collinear gradients were given a ridge of %.1e", active.collinear, active.ridge)
    return Pursuit(
        torch.tensor(active.atoms, dtype=torch.int64, device=target.device),
        torch.from_numpy(active.weights).to(target.device),
        rest,
        active.collinear,
    )


def _spread(at: list[int], weights: Tensor, n: int) -> Tensor:
    spread = weights.new_zeros(n)
    spread[torch.tensor(at, dtype=torch.int64, device=weights.device)] = weights
    return spread


class _Active:
    """The atoms taken, the Cholesky factor of G + λI over them, and the weights that solve it."""

    def __init__(self, lam: float, mean_square: float, k: int) -> None:
        self.lam, self.ridge = lam, RIDGE * mean_square
        self.atoms: list[int] = []
        self.collinear = 0
        self.weights: NDArray[np.float64] = np.empty(0)
        self._gram = np.empty((k, k))
        self._factor = np.zeros((k, k), order="F")  # as LAPACK wants it
        self._with_target = np.empty(k)

    def __len__(self) -> int:
        return len(self.atoms)

    def add(self, atom: int, products: NDArray[np.float64], with_target: float) -> None:
        """Take an atom; ``products`` are those with the atoms taken before, and with itself."""
        at = len(self.atoms)
        self.atoms.append(atom)
        self._gram[at, : at + 1] = self._gram[: at + 1, at] = products
        self._with_target[at] = with_target
        self._extend(at)
        self._solve()

    def drop(self, at: int) -> int:
        """Give an atom back, and return it."""
        dropped, size = self.atoms.pop(at), len(self.atoms)
        keep = [i for i in range(size + 1) if i != at]
        self._gram[:size, :size] = self._gram[np.ix_(keep, keep)]
        self._with_target[:size] = self._with_target[keep]
        for row in range(at, size):  # the factor's rows before it stay as they are
            self._extend(row)
        self._solve()
        return dropped

    def residual(self, size: float) -> float:
        """Return ‖b − Σ γᵢ gᵢ‖, ‖b‖² being ``size``."""
        n = len(self.atoms)
        square = size - 2 * self.weights @ self._with_target[:n] + self.weights @ self._gram[:n, :n] @ self.weights
        return math.sqrt(max(0.0, float(square)))

    def _extend(self, at: int) -> None:
        row = self._gram[at, :at]
        if at:
            row = _solved(self._factor[:at, :at], row)
        left = self._gram[at, at] + self.lam - row @ row
        if left <= self.ridge * 1e-4:
            left = max(left, 0.0) + self.ridge
            self.collinear += 1
        self._factor[at, :at], self._factor[at, at] = row, math.sqrt(left)

    def _solve(self) -> None:
        n = len(self.atoms)
        factor = self._factor[:n, :n]
        self.weights = _solved(factor, _solved(factor, self._with_target[:n]), transposed=True)


def _solved(factor: NDArray[np.float64], right: NDArray[np.float64], transposed: bool = False) -> NDArray[np.float64]:
    """Solve with a lower triangular factor, by LAPACK itself: SciPy's wrapper takes longer than a small system."""
    found: NDArray[np.float64] = dtrtrs(factor, right, lower=True, trans=transposed)[0]
    return found
