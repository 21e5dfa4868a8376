"""From raw gradients to the rows that are compared: masked, scaled by the optimizer, normalised, projected.

Source rows (the pool's) are scaled by a, target rows are not. Both are divided by their length before the projection,
so that scores are cosines and long examples, whose gradients are small, do not lose by it (arXiv 2505.19051). A zero
gradient stays zero: its score is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from thrifty.data.influence.coefficients import StepCoefficients
from thrifty.data.influence.config import InfluenceConfig
from thrifty.data.influence.projection import Projection, coordinate_mask


@dataclass(frozen=True)
class GradientFeatures:
    """What turns gradient rows into features.

    Args:
        kept: Coordinates that are kept; ``None`` for all.
        a: What the optimizer multiplies a gradient by, on those coordinates; ``None`` where it is 1 throughout.
        projection: Applied last.
    """

    kept: Int[Tensor, " kept"] | None
    a: Float[Tensor, " kept"] | None
    projection: Projection

    @classmethod
    def of(
        cls, params: Mapping[str, nn.Parameter], coefficients: StepCoefficients, config: InfluenceConfig
    ) -> GradientFeatures:
        """Draw mask and projection for these parameters."""
        drawn = coordinate_mask({name: p.shape for name, p in params.items()}, config.mask_numel, config.seed)
        device = next(iter(params.values())).device
        pieces, start = [], 0
        for name, p in params.items():
            inside = drawn[name]
            if inside is not None:
                pieces.append(inside + start)
            start += p.numel()
        kept = torch.cat(pieces).to(device) if pieces else None
        plain = all(isinstance(value, float) and value == 1.0 for value in coefficients.a.values())
        a = None if plain else coefficients.flat("a", params)
        if a is not None and kept is not None:
            a = a[kept]
        length = start if kept is None else len(kept)
        return cls(kept, a, Projection(length, config.grad_dim, config.projection, config.seed))

    def masked(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b kept"]:
        """Keep the drawn coordinates."""
        return rows if self.kept is None else rows[:, self.kept]

    def source(self, rows: Float[Tensor, "b d"], *, normalise: bool = True) -> Float[Tensor, "b out"]:
        """Return features of pool examples."""
        scaled = self.scaled(rows)
        return self.projection(unit(scaled) if normalise else scaled)

    def target(self, rows: Float[Tensor, "b d"], *, normalise: bool = True) -> Float[Tensor, "b out"]:
        """Return features of target examples."""
        masked = self.masked(rows)
        return self.projection(unit(masked) if normalise else masked)

    def scaled(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b kept"]:
        """Return a ⊙ g on the drawn coordinates."""
        masked = self.masked(rows)
        return masked if self.a is None else masked * self.a


def unit(rows: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """Divide rows by their length; zero rows stay zero."""
    lengths = rows.norm(dim=1, keepdim=True)
    return rows * torch.where(lengths > 0, 1 / lengths, 0.0)
