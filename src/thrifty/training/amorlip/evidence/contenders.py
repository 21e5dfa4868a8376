"""The losses that are set beside each other, each as its authors recommend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from thrifty._common.extras import require
from thrifty.training.amorlip.evidence.pictures import DIM
from thrifty.training.amorlip.loss import AmorLIPLoss
from thrifty.training.amorlip.rivals import FastCLIPLoss, NeuCLIPLoss, SogCLRLoss

OURS, CLIP, SIGLIP, SOGCLR, FASTCLIP, NEUCLIP = "AmorLIP", "ClipLoss", "SigLipLoss", "SogCLR", "FastCLIP-v3", "NeuCLIP"
RIVALS = (CLIP, SIGLIP, SOGCLR, FASTCLIP, NEUCLIP)

#: Ways of ours that are measured beside it.
VARIANTS: dict[str, dict[str, Any]] = {
    "AmorLIP, target": {"encoder_lambda": "target"},
    "AmorLIP, online": {"encoder_lambda": "online"},
    "AmorLIP, no previous network": {"encoder_lambda": "target", "use_prev": False},
    "AmorLIP, kappa 1": {"pos_coef": 1.0},
    "AmorLIP, generalised KL": {"objective": "gkl"},
    "AmorLIP, prototypes": {"network": "prototypes", "objective": "neuclip", "prototypes": 512},
}

#: CLIP's initial scale, which stays fixed except where the method is about it.
SCALE = 1 / 0.07


@dataclass(frozen=True)
class Contender:
    """A loss, and how the temperature is treated with it.

    Args:
        make: The loss, for (samples, steps an epoch, epochs).
        scale: Initial s.
        bias: Initial b; ``None``: there is none.
        learned: s (and b) are trained.
    """

    make: Callable[[int, int, int], nn.Module]
    scale: float = SCALE
    bias: float | None = None
    learned: bool = False


def contender(name: str) -> Contender:
    """Return a contender by name.

    Raises:
        ImportError: Its package is not installed.
    """
    if name == CLIP:
        return Contender(lambda *_: require("open_clip", extra="vision").ClipLoss())
    if name == SIGLIP:
        return Contender(
            lambda *_: require("open_clip.loss", extra="vision").SigLipLoss(), scale=10.0, bias=-10.0, learned=True
        )
    if name == SOGCLR:
        return Contender(lambda n, _, __: SogCLRLoss(n))
    if name == FASTCLIP:
        return Contender(lambda n, _, epochs: FastCLIPLoss(n, gamma_epochs=max(1, epochs // 2)), learned=True)
    if name == NEUCLIP:
        return Contender(lambda *_: NeuCLIPLoss(DIM, prototypes=512))
    options: dict[str, Any] = VARIANTS.get(name, {})
    return Contender(
        lambda n, steps, epochs: AmorLIPLoss(
            DIM, num_samples=n, steps_per_epoch=steps, epochs=epochs, ema_decay=0.9, **options
        )
    )
