"""MACs from shapes against torch's own counter, on the meta device: nothing is computed."""

from __future__ import annotations

from typing import Any

import torch

from thrifty._common.extras import require
from thrifty.bench.claims import Measurement
from thrifty.bench.evidence import Evidence
from thrifty.inference.token_reduction.config import FreqReduceConfig, named
from thrifty.inference.token_reduction.macs import count_macs
from thrifty.inference.token_reduction.patch import reduce_tokens

MODELS = {"DeiT-T": "deit_tiny_patch16_224", "DeiT-S": "deit_small_patch16_224", "DeiT-B": "deit_base_patch16_224"}


def show(evidence: Evidence) -> None:
    """Count the published models, whole and reduced."""
    timm = require("timm", extra="vision")
    errors = []
    for label, name in MODELS.items():
        with torch.device("meta"):
            model = timm.create_model(name).eval()
        for block in model.blocks:
            block.attn.fused_attn = False  # the counter does not see into the CPU's fused kernel
        for method, config in (("whole", None), ("ours", FreqReduceConfig()), ("EViT", named("evit")),
                               ("ToMe", named("tome"))):  # fmt: skip
            reduction = None if config is None else reduce_tokens(model, config)
            ours, counted = count_macs(model), counted_macs(model, 224)
            if reduction is not None:
                reduction.remove()
            errors.append(abs(ours - counted) / counted)
            evidence.row(method, {"MACs": Measurement.of(ours / 1e9, "G")}, workload=f"{label} at 224")
    evidence.measured("macs-exact", Measurement.of(max(errors), "relative"))


@torch.no_grad()
def counted_macs(model: Any, side: int) -> int:
    """Return what torch's counter makes of a forward pass, halved."""
    counter = require("torch.utils.flop_counter", extra="vision").FlopCounterMode(display=False)
    with counter:
        model(torch.zeros(1, 3, side, side, device=next(model.parameters()).device))
    return int(counter.get_total_flops()) // 2
