"""Experiment A: how near the class token stays to the whole model's, without training."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from thrifty.bench.claims import Measurement
from thrifty.bench.context import Context
from thrifty.bench.evidence import Evidence
from thrifty.bench.timing import threads
from thrifty.inference.token_reduction.config import Config, FreqReduceConfig, ToMeConfig, named
from thrifty.inference.token_reduction.evidence.images import SIDE, backbone
from thrifty.inference.token_reduction.macs import count_macs
from thrifty.inference.token_reduction.patch import reduce_tokens

LAYERS = (4, 7, 10)
#: ToMe's own schedule, as many tokens in every layer: the r whose MACs are nearest to ours at the same keep.
R_EVERYWHERE = {0.7: 14, 0.5: 21}

Cosines = dict[tuple[str, float], list[float]]


def contenders(keep: float, *, full: bool) -> dict[str, Config]:
    """Return who is set side by side at one keep; the ablations only in a full run."""
    rivals: dict[str, Config] = {
        "ours": FreqReduceConfig(LAYERS, keep, reweight="none"),
        "ToMe": named("tome", LAYERS, keep),
        "EViT": named("evit", LAYERS, keep),
        "random": named("random", LAYERS, keep),
    }
    if full or keep == 0.5:
        rivals["ToMe, every layer"] = ToMeConfig(layers=None, r=R_EVERYWHERE[keep])
    if full or keep == 0.7:
        rivals["keep low-frequency"] = named("low", LAYERS, keep)
    if full:
        rivals["pooling"] = named("pool", LAYERS, keep)
        rivals["ours, no DC token"] = FreqReduceConfig(LAYERS, keep, window=0, reweight="none")
        rivals["ours, cosine to the mean"] = FreqReduceConfig(LAYERS, keep, score="cos_dc", reweight="none")
        rivals["ours, queries' mean"] = FreqReduceConfig(LAYERS, keep, score="qk_mean", reweight="none")
        rivals["ours, sizes in logits"] = FreqReduceConfig(LAYERS, keep, dc_size_bias=True, reweight="none")
    return rivals


def show(ctx: Context, evidence: Evidence, x: Tensor, workload: str) -> Cosines:
    """Measure on the first workload, and return the cosines that gate speed."""
    with threads(1):  # all cores would wait for each other wherever the machine is shared
        cosines = _measure(ctx, evidence, x, workload)
    mean = {key: sum(values) / len(values) for key, values in cosines.items()}
    _show_half(evidence, mean, "fidelity-at-half")
    gradual = mean["ours", 0.5] - mean["ToMe, every layer", 0.5]
    evidence.measured("fidelity-tome-everywhere", Measurement.of(gradual, "cosine"))
    gap = mean["ours", 0.7] - mean["keep low-frequency", 0.7]
    evidence.measured("hf-beats-lf", Measurement.of(gap, "cosine"))
    gap = mean["ours", 0.7] - mean["ToMe", 0.7]
    evidence.measured("fidelity-at-seven-tenths", Measurement.of(gap, "cosine"))
    return cosines


def show_again(ctx: Context, evidence: Evidence, x: Tensor, workload: str) -> None:
    """Measure on the second workload."""
    with threads(1):
        cosines = _measure(ctx, evidence, x, workload)
    mean = {key: sum(values) / len(values) for key, values in cosines.items()}
    _show_half(evidence, mean, "fidelity-at-half-clothes")


def _show_half(evidence: Evidence, mean: Mapping[tuple[str, float], float], claim: str) -> None:
    """Compare with the best rival that reduces at the same layers."""
    best = max(mean[name, 0.5] for name in ("ToMe", "EViT", "random"))
    evidence.measured(claim, Measurement.of(mean["ours", 0.5] - best, "cosine"))


def _measure(ctx: Context, evidence: Evidence, x: Tensor, workload: str) -> Cosines:
    model = backbone(ctx)
    whole = class_tokens(model, x)
    cosines: Cosines = {}
    points: dict[str, list[tuple[float, float]]] = {}
    for keep in (0.7, 0.5):
        for name, config in contenders(keep, full=ctx.full).items():
            with reduce_tokens(model, config) as reduction:
                reduced = class_tokens(model, x)
                macs = count_macs(model, (SIDE, SIDE)) / 1e9
                left = reduction.tokens.prefix + reduction.tokens.size.shape[1]
            cosine = torch.cosine_similarity(whole, reduced).tolist()
            cosines[name, keep] = cosine
            points.setdefault(name, []).append((macs, sum(cosine) / len(cosine)))
            metrics: Mapping[str, Measurement] = {
                "cosine": Measurement.of(cosine, "cosine"),
                "mean cosine": Measurement.of(sum(cosine) / len(cosine), "cosine"),
                "tokens left": Measurement.of(left, "tokens"),
                "MACs": Measurement.of(macs, "G"),
            }
            evidence.row(name, metrics, workload=f"{workload}, keep {keep}")
    ordered = {name: sorted(held) for name, held in points.items()}
    curves = {name: ([macs for macs, _ in held], [mean for _, mean in held]) for name, held in ordered.items()}
    title = f"Class token without training ({workload})"
    evidence.curves(title, "GMACs", "cosine to the whole model's", curves)
    return cosines


@torch.inference_mode()
def class_tokens(model: nn.Module, x: Tensor, batch: int = 8) -> Tensor:
    """Return the class tokens of images, a few at a time."""
    return torch.cat([model(part).pooler_output for part in torch.split(x, batch)])
