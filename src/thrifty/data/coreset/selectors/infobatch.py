"""InfoBatch: easy samples dropped at random, the rest of them counting for those (Qin et al., arXiv 2303.04947)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thrifty._common.checks import number
from thrifty.data.coreset.gradients import GradientSource, LastLayerGradients
from thrifty.data.coreset.scoring import losses_of
from thrifty.data.coreset.subsets import Subset


@dataclass(frozen=True)
class InfoBatch:
    """Keep all samples with a loss of at least the mean, and of the others each with probability 1 − r.

    The kept among the others weigh 1 / (1 − r), so that the gradient stays unbiased. The subset is not of a given size
    (about 1 − r/2 of the data); go with ``trigger="interval", every=1`` and give it the losses of training
    (``Coreset.observe``), else it scores all data anew.

    Args:
        ratio: r.

    Raises:
        ValueError: It is out of range.

    Example:
        >>> import torch
        >>> subset = InfoBatch().of_losses(torch.tensor([0.1] * 50 + [2.0] * 50), torch.Generator().manual_seed(0))
        >>> 50 < len(subset) < 100, sorted(set(subset.weights.tolist()))
        (True, [1.0, 2.0])

    Source:
        arXiv 2303.04947, section 2. Its last epochs on all data are the ``anneal`` of ``Coreset``.
    """

    ratio: float = 0.5

    def __post_init__(self) -> None:
        number("ratio", self.ratio, "a share in [0, 1)", least=0.0, below=1.0)

    def of_losses(self, losses: Tensor, generator: torch.Generator | None = None) -> Subset:
        """Return the samples that are kept, by their last known losses ``(n,)``; those unknown (NaN) stay."""
        losses = losses.cpu().double()
        easy = losses < losses.nanmean()
        kept = ~easy | (torch.rand(len(losses), generator=generator) >= self.ratio)
        weights = torch.where(easy, 1 / (1 - self.ratio), 1.0)
        return Subset(kept.nonzero()[:, 0], weights[kept].float())

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return the samples that are kept.

        Args:
            gradients: Of all n samples, of a last layer, with their losses.
            k: Not looked at.
            generator: Of the draw.
            validation: Not looked at.

        Raises:
            TypeError: The gradients are not those of a last layer.
        """
        if not isinstance(gradients, LastLayerGradients):
            raise TypeError(f"gradients: expected those of a last layer, got {type(gradients).__name__}")
        return self.of_losses(losses_of(gradients), generator)
