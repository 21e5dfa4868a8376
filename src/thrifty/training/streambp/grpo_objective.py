"""The policy-gradient loss of one token, and what it is multiplied by: GRPO, BNPO, Dr. GRPO, DAPO.

The losses: arXiv 2402.03300 (GRPO), 2503.14476 (DAPO), 2503.20783 (Dr. GRPO); the upper clamp: two-sided clipping.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

GRPOLoss = Literal["grpo", "bnpo", "dr_grpo", "dapo"]


@dataclass(frozen=True)
class GRPOStats:
    """What is usually logged beside the loss: means over the tokens that count."""

    kl: Tensor
    clip_low: Tensor
    clip_high: Tensor
    entropy: Tensor

    @property
    def clip_region(self) -> Tensor:
        """Share of tokens that either bound clips."""
        return self.clip_low + self.clip_high


@dataclass(frozen=True)
class Objective:
    """The loss of a token as a function of its log-probability."""

    beta: float
    eps_low: float
    eps_high: float
    delta: float | None

    def losses(self, logps: Tensor, log_ratio: Tensor, advantages: Tensor, ref_logps: Tensor | None) -> Tensor:
        """Return the loss of each token."""
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.eps_low, 1 + self.eps_high)
        if self.delta is not None:
            ratio = ratio.clamp(max=self.delta)
        losses = -torch.minimum(ratio * advantages, clipped * advantages)
        if ref_logps is not None and self.beta:
            losses = losses + self.beta * kl_estimate(logps, ref_logps)
        return losses

    def clipped(self, log_ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        """Tell where the lower and the upper bound hold the ratio."""
        ratio = log_ratio.exp()
        return (ratio < 1 - self.eps_low) & (advantages < 0), (ratio > 1 + self.eps_high) & (advantages > 0)


def kl_estimate(logps: Tensor, ref_logps: Tensor) -> Tensor:
    """Return Schulman's k3 estimate of the divergence from the reference, never negative."""
    difference = ref_logps - logps
    return difference.exp() - difference - 1


def token_weights(mask: Tensor, loss_type: str, items: int | Tensor | None, max_length: int | None) -> Tensor:
    """Return what each token's loss is multiplied by in the sum that is the loss."""
    mask = mask.double()
    if loss_type == "grpo":
        return mask / mask.sum(-1, keepdim=True).clamp(min=1) / len(mask)
    if loss_type == "dr_grpo":
        return mask / (len(mask) * (max_length or mask.shape[1]))
    if loss_type == "bnpo" or items is None:
        return mask / mask.sum().clamp(min=1)
    return mask / items
