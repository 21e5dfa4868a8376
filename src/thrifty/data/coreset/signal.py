"""How much the gradients of a subset agree among themselves, and how near they come to those of all data."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.checks import number, one_of, whole
from thrifty.data.coreset.gradients import DenseGradients, GradientSource

KINDS = ("spectral", "trace", "norms")
#: Up to as many gradients, the largest eigenvalue comes of their Gram matrix; beyond, of power iteration.
EXACT = 512
ITERATIONS, TOLERANCE = 30, 1e-4


def gradient_snr(
    gradients: GradientSource | Float[Tensor, "m d"],
    kind: str = "spectral",
    weights: Float[Tensor, " m"] | None = None,
    unbiased: bool = True,
) -> float:
    """Return the signal-to-noise ratio of per-sample gradients; it falls as a model overfits the samples.

    With μ the mean and C the covariance of the gradients: ``"spectral"``, ‖μ‖ / √λ_max(C); ``"trace"``, ‖μ‖ / √tr C;
    ``"norms"``, the mean of the gradients' lengths over their standard deviation. No d × d matrix is formed.

    Args:
        gradients: Of the subset, or a matrix with one a row.
        kind: Which ratio. The theorem is about the first; the paper's text and first figure show the others.
        weights: ``(m,)``, for weighted mean and covariance; None: all alike, as the theorem has it.
        unbiased: Divide the covariance by m − 1 rather than m (with weights: by Σw − Σw²/Σw).

    Returns:
        The ratio: infinite where all gradients are the same, 0 where all are 0.

    Raises:
        ValueError: There are fewer than two gradients, or an argument will not do.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> [round(gradient_snr(rows, kind), 5) for kind in ("spectral", "trace", "norms")]
        [1.06748, 1.04083, 2.92848]

    Source:
        Cheng et al., "Efficient Representativeness-Aware Coreset Selection" (2025), supplement and section on the
        signal-to-noise ratio.
    """
    one_of("kind", kind, KINDS)
    source = DenseGradients(gradients) if isinstance(gradients, Tensor) else gradients
    m = len(source)
    if m < 2:
        raise ValueError(f"gradients: expected at least two, for a covariance, got {m}")
    norms = source.square_norms()
    w = torch.ones_like(norms) if weights is None else _weights(weights, norms)
    total = float(w.sum())
    divisor = total - float(w.square().sum()) / total if unbiased else total
    if kind == "norms":
        lengths = norms.clamp(min=0).sqrt()
        mean = float(lengths @ w) / total
        return _ratio(mean, float(w @ (lengths - mean).square()) / divisor, mean**2)
    mu = source.combine(w) / total
    signal, scale = float(mu.norm()), float(norms.max())
    if kind == "trace":
        return _ratio(signal, (float(w @ norms) - total * signal**2) / divisor, scale)
    return _ratio(signal, _largest_eigenvalue(source, w, mu) / divisor, scale)


def _ratio(signal: float, variance: float, scale: float) -> float:
    """Return signal / √variance, a variance below rounding being none."""
    if variance <= 1e-12 * scale:
        return math.inf if signal > 0 else 0.0
    return signal / math.sqrt(variance)


def _weights(weights: Tensor, like: Tensor) -> Tensor:
    if weights.shape != like.shape or not bool((weights >= 0).all()) or not float(weights.sum()) > 0:
        raise ValueError(f"weights: expected {len(like)} of at least 0, not all 0, got {weights!r}")
    return weights.to(like)


def _largest_eigenvalue(source: GradientSource, w: Tensor, mu: Tensor) -> float:
    """Return the largest eigenvalue of Σᵢ wᵢ (gᵢ − μ)(gᵢ − μ)ᵀ."""
    m = len(source)
    if m <= EXACT:
        gram = source.gram(torch.arange(m, device=w.device)).double()
        w = w.double()
        with_mean = gram @ w / w.sum()
        centred = gram - with_mean[:, None] - with_mean + with_mean @ w / w.sum()
        root = w.sqrt()
        return float(torch.linalg.eigvalsh(root[:, None] * centred * root)[-1].clamp(min=0))
    apart = source.square_norms() - 2 * source.correlate(mu)  # + ‖μ‖², the same for all
    start = torch.zeros_like(w)
    start[torch.argmax(apart)] = 1
    v = source.combine(start) - mu
    value = 0.0
    for _ in range(ITERATIONS):
        length = v.norm()
        if not length > 0:
            return 0.0
        v = v / length
        u = w * (source.correlate(v) - v @ mu)
        v = source.combine(u)  # the entries of u add up to nothing
        last, value = value, float(v.norm())
        if abs(value - last) <= TOLERANCE * value:
            break
    return value


def gradient_discrepancy(full: Float[Tensor, " d"], subset: Float[Tensor, " d"]) -> float:
    """Return 1 − the cosine between the gradient of all data and that of the subset: what the ratio stands in for.

    Args:
        full: Mean or sum over all data.
        subset: Weighted mean or sum over the subset.

    Returns:
        In [0, 2]; NaN where one of them is 0.

    Example:
        >>> import torch
        >>> gradient_discrepancy(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0]))
        1.0

    Source:
        The paper's ideal criterion.
    """
    lengths = float(full.norm()) * float(subset.norm())
    return 1 - float(full @ subset) / lengths if lengths > 0 else math.nan


def relative_error_bound(snr: float, d: int, m: int, delta: float = 0.05) -> float:
    """Return what ‖μ̂ − μ‖/‖μ̂‖ stays below with probability 1 − δ, for m independent sub-Gaussian gradients.

    Args:
        snr: Spectral, of the sample.
        d: Numbers a gradient.
        m: Gradients.
        delta: δ.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> round(relative_error_bound(1.0, d=5, m=200), 3)
        0.685

    Source:
        The paper's theorem; a ½-net of at most 5^d directions and a union bound.
    """
    whole("d", d), whole("m", m)
    number("snr", snr, "a number above 0", least=1e-300)
    number("delta", delta, "a number in (0, 1)", least=1e-300, below=1.0)
    return 2 / snr * math.sqrt(2 * (d * math.log(5) + math.log(2 / delta)) / m)
