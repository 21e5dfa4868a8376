"""From influences to weights: the regularised problem on the scaled simplex, with exactly k examples kept.

    w* = argmin_w  −pᵀw + (η/2) wᵀQw + (λ/2)‖w‖²     subject to  w ≥ 0,  1ᵀw = n         (arXiv 2505.19051)

Without Q the problem has a closed form: the k largest p are kept, w_i = max(0, (p_i − τ)/λ) with τ between the k-th and
the next, and λ = (1/n) Σ_{i ≤ k} (p_i − τ). With Q it is solved by accelerated projected gradient descent, and λ is
found by bisection. Everything is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class SparseWeights:
    """Weights of pool examples, k of them above zero.

    Args:
        w: One a pool example, not negative, n in sum.
        lam: The regularisation λ that gave them.
        indices: The examples kept, by falling weight.
        tied: The k-th and the next influence are equal; the lower index was kept.
        raised: The problem would not have been convex; λ was raised to where it is.
        cut: More than k weights were above zero at that λ; the k largest were kept, and solved for again.
        curvature: Smallest and largest eigenvalue of ηQ, if there was a Q.

    Example:
        >>> sparse_simplex_weights(torch.tensor([3.0, 2.0, 1.0, 0.0]), 2).indices
        tensor([0, 1])

    Source:
        arXiv 2505.19051, the robust problem: argmin f(w) + (λ/2)‖w‖², w ≥ 0, Σw = n.
    """

    w: Float[Tensor, " n"]
    lam: float
    indices: Tensor
    tied: bool = False
    raised: bool = False
    cut: bool = False
    curvature: tuple[float, float] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Unpack as ``w, lam = sparse_simplex_weights(...)``."""
        return iter((self.w, self.lam))


@dataclass(frozen=True)
class Quadratic:
    """ηQ = C B Cᵀ, kept as its factors so that no n × n matrix is formed.

    Args:
        core: B, symmetric.
        spread: C, one row a pool example; ``None`` where B is ηQ itself.
    """

    core: Float[Tensor, "l l"]
    spread: Float[Tensor, "n l"] | None = None
    _extremes: list[tuple[float, float]] = field(default_factory=list, repr=False, compare=False)

    def times(self, w: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return ηQ w."""
        if self.spread is None:
            return self.core @ w
        return self.spread @ (self.core @ (self.spread.T @ w))

    def only(self, rows: Tensor) -> Quadratic:
        """Return the quadratic of some examples."""
        if self.spread is None:
            return Quadratic(self.core[rows][:, rows])
        return Quadratic(self.core, self.spread[rows])

    def scaled(self, factor: float) -> Quadratic:
        """Return ``factor`` times it."""
        return Quadratic(self.core * factor, self.spread)

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and the largest eigenvalue of ηQ.

        Those of C B Cᵀ are those of SᵀBS with CᵀC = S Sᵀ, and zeros.
        """
        if not self._extremes:
            values = torch.linalg.eigvalsh(self._compressed())
            low, high = float(values[0]), float(values[-1])
            if self.spread is not None and len(self.spread) > len(self.core):
                low, high = min(low, 0.0), max(high, 0.0)
            self._extremes.append((low, high))
        return self._extremes[0]

    def _compressed(self) -> Tensor:
        if self.spread is None:
            return self.core
        scale, basis = torch.linalg.eigh(self.spread.T @ self.spread)
        root: Tensor = basis * scale.clamp_min(0).sqrt()
        return root.T @ self.core @ root


def joined(parts: Sequence[Quadratic]) -> Quadratic:
    """Return the sum of quadratics, as factors side by side."""
    spreads = [torch.eye(len(q.core), dtype=q.core.dtype) if q.spread is None else q.spread for q in parts]
    return Quadratic(_block_diagonal([q.core for q in parts]), torch.cat(spreads, dim=1))


def _block_diagonal(blocks: Sequence[Tensor]) -> Tensor:
    out = torch.zeros(2 * (sum(len(block) for block in blocks),), dtype=blocks[0].dtype)
    start = 0
    for block in blocks:
        out[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return out


def simplex_projection(v: Float[Tensor, " n"], total: float) -> Float[Tensor, " n"]:
    """Return the nearest point to ``v`` with no negative entry and ``total`` as its sum.

    Example:
        >>> simplex_projection(torch.tensor([3.0, 1.0, -5.0]), 2.0)
        tensor([2., 0., 0.])
    """
    ordered = v.sort(descending=True).values
    excess = ordered.cumsum(0) - total
    counts = torch.arange(1, len(v) + 1, device=v.device, dtype=v.dtype)
    kept = int((ordered - excess / counts > 0).sum())
    return (v - excess[kept - 1] / kept).clamp_min(0)


def simplex_weights(
    p: Float[Tensor, " n"], lam: float, Q: Quadratic | None = None, *, start: Tensor | None = None
) -> Float[Tensor, " n"]:
    """Solve the problem at a given λ.

    Args:
        p: Influences.
        lam: λ, above zero; with Q at least −(smallest eigenvalue of ηQ).
        Q: ηQ, if the second order counts.
        start: Where to begin.

    Returns:
        The weights.
    """
    p = p.double()
    n = len(p)
    if Q is None:
        return simplex_projection(p / lam, n)
    low, high = Q.extremes()
    step = 1 / (max(high, 0.0) + lam)
    strength = max(low + lam, 0.0) * step  # how convex the problem is, between 0 and 1
    w = simplex_projection(p / (max(high, 0.0) + lam), n) if start is None else start.double()
    ahead, age = w, 1.0
    for _ in range(20_000):
        following = simplex_projection(ahead - step * (Q.times(ahead) + lam * ahead - p), n)
        moved = following - w
        if float(moved.abs().max()) <= 1e-13 * n and float((following - ahead).abs().max()) <= 1e-12 * n:
            return following
        if float((ahead - following) @ moved) > 0:  # it overshot: forget the momentum
            age = 1.0
        older, age = age, (1 + math.sqrt(1 + 4 * age * age)) / 2
        fixed = (1 - math.sqrt(strength)) / (1 + math.sqrt(strength))
        ahead = following + min((older - 1) / age, fixed) * moved
        w = following
    return w


def sparse_simplex_weights(
    p: Float[Tensor, " n"],
    k: int,
    Q: Quadratic | Float[Tensor, "n n"] | None = None,
    eta: float | None = None,
) -> SparseWeights:
    """Weight the examples so that exactly ``k`` weights are above zero and λ is as large as that allows.

    Args:
        p: Influences, finite; −inf marks an example that may not be chosen.
        k: How many examples to keep.
        Q: The quadratic term: a matrix (then ``eta`` is needed), or ηQ as a :class:`Quadratic`.
        eta: Learning rate.

    Returns:
        The weights; it unpacks as ``w, lam``.

    Raises:
        ValueError: ``k`` is below 1 or above the number of examples that may be chosen, or ``p`` is not finite.

    Example:
        >>> w, lam = sparse_simplex_weights(torch.tensor([3.0, 2.0, 1.0, 0.0]), 2)
        >>> [round(x, 4) for x in w.tolist()], lam
        ([2.6667, 1.3333, 0.0, 0.0], 0.75)

    Source:
        arXiv 2505.19051, the robust problem; the closed form at first order is ours.
    """
    p = torch.as_tensor(p).double()
    allowed = ~torch.isneginf(p)
    if not bool(torch.isfinite(p[allowed]).all()):
        raise ValueError("p: expected finite influences, got NaN or inf")
    if not 1 <= k <= int(allowed.sum()):
        raise ValueError(f"k: expected 1 to {int(allowed.sum())} (examples that may be chosen), got {k}")
    if Q is not None and not isinstance(Q, Quadratic):
        if eta is None or not eta >= 0:
            raise ValueError(f"eta: a matrix Q needs the learning rate, at least 0; got {eta}")
        Q = torch.as_tensor(Q).double()
        if Q.shape != (len(p), len(p)) or not bool(torch.isfinite(Q).all()):
            raise ValueError(f"Q: expected a finite matrix, {len(p)} × {len(p)}, got shape {tuple(Q.shape)}")
        Q = Quadratic(eta * (Q + Q.T) / 2)  # wᵀQw sees no more of it
    if not bool(allowed.all()):
        rows = allowed.nonzero().squeeze(1)
        # n stays that of the whole pool: it is the sum of the weights, and it scales λ.
        stretch = len(p) / len(rows)
        inner = sparse_simplex_weights(p[rows], k, None if Q is None else Q.only(rows).scaled(stretch))
        w = torch.zeros_like(p)
        w[rows] = inner.w * stretch
        return replace(inner, w=w, lam=inner.lam / stretch, indices=rows[inner.indices])
    if Q is None or bool((Q.core == 0).all()):
        return _first_order(p, k)
    return _second_order(p, k, Q)


def _first_order(p: Tensor, k: int) -> SparseWeights:
    n = len(p)
    value, order = torch.sort(p, descending=True, stable=True)  # stable: among equals, the lower index first
    tied = k < n and bool(value[k - 1] == value[k])
    if k < n and not tied:
        tau = value[k]
    else:  # nothing bounds τ from below (all are kept), or nothing lies between: a mean gap below the k-th
        tau = value[k - 1] - (float(value[0] - value[k - 1]) / k or float(value[0].abs()) or 1.0)
    gaps = value[:k] - tau
    lam = float(gaps.sum()) / n
    w = torch.zeros_like(p)
    w[order[:k]] = gaps / lam
    return SparseWeights(w, lam, order[:k], tied)


def _second_order(p: Tensor, k: int, Q: Quadratic) -> SparseWeights:
    n, tiny = len(p), 1e-9 * len(p)
    low, high = Q.extremes()
    scale = max(abs(low), abs(high), float(p.max() - p.min()) / n, 1e-300)
    floor = max(1e-9 * scale, -low * (1 + 1e-9))
    w = simplex_weights(p, floor, Q)
    lower, upper = math.log(floor), None
    if int((w > tiny).sum()) <= k:
        top = floor
        while top < 1e9 * scale * n:
            top *= 4
            tried = simplex_weights(p, top, Q, start=w)
            if int((tried > tiny).sum()) > k:
                upper = math.log(top)
                break
            w, lower = tried, math.log(top)
        while upper is not None and upper - lower > 1e-9:
            middle = (lower + upper) / 2
            tried = simplex_weights(p, math.exp(middle), Q, start=w)
            if int((tried > tiny).sum()) <= k:
                w, lower = tried, middle
            else:
                upper = middle
    lam, count = math.exp(lower), int((w > tiny).sum())
    if count < k and upper is not None:  # the count jumps over k: take the side that has enough
        lam = math.exp(upper)
        w = simplex_weights(p, lam, Q, start=w)
    kept = torch.sort(w, descending=True, stable=True).indices[:k]
    cut = int((w > tiny).sum()) > k
    if cut:
        stretch = n / k
        on_support = simplex_weights(p[kept], lam * stretch, Q.only(kept).scaled(stretch))
        w = torch.zeros_like(w)
        w[kept] = on_support * stretch
    w = torch.where(w > tiny, w, 0.0)
    kept = kept[torch.sort(w[kept], descending=True, stable=True).indices]
    return SparseWeights(w * (n / w.sum()), lam, kept, False, low < 0 and lam <= floor * (1 + 1e-6), cut, (low, high))
