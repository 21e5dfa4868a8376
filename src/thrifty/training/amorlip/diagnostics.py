"""What a call of the loss found, as numbers: weights, drift of the networks, and how far log λ̄ is from log Z."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from thrifty.training.amorlip.amortizer import Pair, PartitionAmortizer
from thrifty.training.amorlip.contrastive import Contrast
from thrifty.training.amorlip.partition import estimate_log_partition


@torch.no_grad()
def diagnose(
    amortizer: PartitionAmortizer,
    seen: tuple[Tensor, Tensor, Tensor],
    found: Contrast,
    log_lambda: Pair,
    count: float,
    text_bank: Float[Tensor, "m dim"] | None,
) -> dict[str, float]:
    """Return what a call found; the keys are told by ``AmorLIPLoss.diagnostics``.

    Args:
        amortizer: The networks.
        seen: u, v and s of the call.
        found: Its loss and weights.
        log_lambda: What it divided by.
        count: N of its sums.
        text_bank: Texts against whom log Z of the images is estimated.
    """
    u, v, scale = seen
    weight = torch.cat([found.image_weight, found.text_weight])
    online, target = (amortizer.predict(u, v, scale, which=which) for which in ("online", "target"))
    said = {
        "beta": amortizer.beta,
        "weight_median": float(weight.quantile(0.5)),
        "weight_p90": float(weight.quantile(0.9)),
        "weight_max": float(weight.max()),
        "limited": float(found.limited),
        "log_lambda": float(torch.cat(log_lambda).mean()),
        "lambda_drift": float((torch.cat(online) - torch.cat(target)).square().mean().sqrt()),
    }
    if text_bank is not None:
        exact = estimate_log_partition(u, text_bank, scale)
        for name, value in (("lambda", log_lambda[0] - math.log(count)), ("online", online[0]), ("target", target[0])):
            said[f"error_{name}"] = float((value - exact).square().mean())
    return said
