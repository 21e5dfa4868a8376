"""GLISTER: samples whose gradient step would lower the loss on held-out data (Killamsetty et al., arXiv 2012.10630)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thrifty._common.checks import number, whole
from thrifty.data.coreset.gradients import GradientSource, LastLayerGradients
from thrifty.data.coreset.subsets import Subset, check_k


@dataclass(frozen=True)
class Glister:
    """Choose greedily by the first-order gain on held-out data, stepping the last layer after each round of picks.

    Args:
        lr: Of a step on the last layer.
        rounds: Steps; picks are shared evenly among them.
        candidates: Draw as many candidates for a round as (n / k) · ln(100) a pick; else look at all.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> import torch
        >>> from thrifty.data.coreset import GradientScorer
        >>> model = torch.nn.Linear(2, 2)
        >>> batch = torch.randn(20, 2), torch.arange(20) % 2
        >>> scorer = GradientScorer(model)
        >>> len(Glister().select(scorer([batch]), 4, validation=scorer([batch])))
        4

    Source:
        arXiv 2012.10630, section 4: the Taylor approximation, with stochastic and r-greedy selection.
    """

    lr: float = 0.1
    rounds: int = 20
    candidates: bool = True

    def __post_init__(self) -> None:
        number("lr", self.lr, "a number above 0", least=1e-300)
        whole("rounds", self.rounds)

    def select(
        self,
        gradients: GradientSource,
        k: int,
        *,
        generator: torch.Generator | None = None,
        validation: GradientSource | None = None,
    ) -> Subset:
        """Return k samples, of weight 1.

        Args:
            gradients: Of all n samples.
            k: How many to choose.
            generator: Of the candidates.
            validation: Of held-out samples, of the last layer and with their logits, as a scorer gives them; None:
                the samples themselves.

        Raises:
            ValueError: ``k`` is out of range.
            TypeError: The gradients are not those of a last layer.
        """
        n = len(gradients)
        check_k(k, n)
        held = gradients if validation is None else validation
        if not isinstance(held, LastLayerGradients):
            raise TypeError(f"validation: expected gradients of a last layer, got {type(held).__name__}")
        free = torch.ones(n, dtype=torch.bool)
        chosen: list[Tensor] = []
        step = torch.zeros_like(gradients.combine(torch.zeros_like(gradients.square_norms())))
        for quota in _shares(k, min(self.rounds, k)):
            moved = held if not chosen else held.after_step(step)
            direction = moved.combine(torch.ones_like(moved.square_norms()) / len(moved))
            pool = free.nonzero()[:, 0]
            if self.candidates:
                wanted = max(quota, math.ceil(quota * n / k * math.log(100)))
                pool = pool[torch.randperm(len(pool), generator=generator)[:wanted]].sort().values
            part = gradients.take(pool.to(direction.device))
            best = torch.sort(part.correlate(direction), descending=True, stable=True).indices[:quota]
            step = step - self.lr * part.take(best).combine(torch.ones_like(part.square_norms()[best]))
            chosen.append(pool[best.cpu()])
            free[chosen[-1]] = False
        return Subset(torch.cat(chosen), torch.ones(k))


def _shares(k: int, rounds: int) -> list[int]:
    return [k // rounds + (at < k % rounds) for at in range(rounds)]
