"""Why one number a sample can be predicted from the sample alone: the partition function is linear in a feature of it.

On the sphere s a·b = s − ‖√s a − √s b‖²/2, so that with ω ~ N(0, I) and φ_ω(a) = e^{s/2} e^{i√s ω·a} the kernel is
e^{s a·b} = E_ω[φ_ω(a) conj φ_ω(b)] (random Fourier features), and Z(a) = E_b[e^{s a·b}] = E_ω[φ_ω(a) v̄_ω], where
v̄_ω = E_b[conj φ_ω(b)] depends on the other modality alone (arXiv 2505.18983, section 3.1). With M features the error
is of the order e^s/√M: a proof for s up to about 5, and no way to compute; that is what the networks are for.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty._common.checks import whole


def spectral_log_partition(
    features: Float[Tensor, "n dim"],
    bank: Float[Tensor, "m dim"],
    logit_scale: float,
    *,
    draws: int = 100_000,
    generator: torch.Generator | None = None,
    chunk_size: int = 8192,
) -> Float[Tensor, " n"]:
    """Estimate log mean_k e^{s x·r_k} by random Fourier features.

    Args:
        features: x, of unit length.
        bank: r, of unit length.
        logit_scale: s; beyond 5 the error is too large to be of use.
        draws: M.
        generator: Of ω; a fresh one seeded with 0 by default.
        chunk_size: Frequencies that are held at once.

    Returns:
        The estimate; NaN where the sum came out negative.

    Example:
        >>> import torch
        >>> x = torch.eye(3)
        >>> (spectral_log_partition(x, x, 0.5) - torch.tensor((2 + torch.e**0.5) / 3).log()).abs().max() < 0.01
        tensor(True)

    Source:
        arXiv 2505.18983, section 3.1.
    """
    whole("draws", draws)
    generator = generator or torch.Generator().manual_seed(0)
    root, total = logit_scale**0.5, features.new_zeros(len(features))
    for low in range(0, draws, chunk_size):
        count = min(chunk_size, draws - low)
        omega = torch.randn(features.shape[1], count, generator=generator).to(features)
        angle, other = root * features @ omega, root * bank @ omega
        # Re φ(x) conj φ̄: the imaginary part has mean zero.
        total += angle.cos() @ other.cos().mean(0) + angle.sin() @ other.sin().mean(0)
    return logit_scale + (total / draws).log()
